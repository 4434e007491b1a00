"""A client's token stands for one statement: another one is refused before it writes, and nothing is half applied."""

from __future__ import annotations

import pytest

from ballista_py.errors import SqlError
from ballista_py.state.documents.aged_objects import AgedObjects
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.token_claims import CLAIMED_MS, TOKENS_PREFIX, TokenClaims, token_key
from ballista_py.state.documents.write_tokens import token_for
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import TAIL_TOKENS, DataFile, Prepared
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.models.claimed_tokens import Rules, run, variants

INSERT, DELETE = token_for("A", "execute", "insert", False), token_for("A", "execute", "delete", False)
ADAS, BOBS = (token_for("A", "execute", "insert", False, client=name) for name in ("ada", "bob"))
FILE = DataFile(path="snapshots/t/data/a", rows=1, bytes=1)


@pytest.fixture
def partition(store, clock):
    made = PartitionStorage(store, "t", "p=0", runtime=clock)
    made.create()
    made.activate(1)
    return made


@pytest.mark.parametrize("later", [0, 3 * TAIL_TOKENS], ids=["in the manifest", "on a page"])
def test_a_partition_takes_two_statements_under_one_word_for_two(partition, later):
    """Who may not be applied is refused before: a partition that refuses by itself would leave half a statement."""
    partition.commit(add=[FILE], epoch=1, token=INSERT)
    for n in range(later):
        partition.commit(epoch=1, token=f"later-{n}")
    before = partition.read()
    assert partition.commit(add=[FILE], epoch=1, token=INSERT) == before
    assert partition.applied(before.document, INSERT).added == 1
    assert partition.commit(remove=[FILE.path], epoch=1, token=DELETE).document.files == ()
    assert partition.applied(partition.read().document, INSERT).added == 1


def test_a_token_kept_without_a_digest_stands_for_whatever_comes_under_it(partition):
    partition.commit(add=[FILE], epoch=1, token="A")
    assert partition.commit(remove=[FILE.path], epoch=1, token=DELETE).document.files == (FILE,)


def test_a_statement_that_was_decided_is_folded_in_though_another_one_took_its_token_meanwhile(partition):
    partition.prepare(Prepared(attempt="a", token=INSERT, add=(FILE,)), epoch=1)
    partition.commit(epoch=1, token=DELETE)
    assert partition.fold("a", epoch=1, sequence=1).document.files[0].path == FILE.path


def test_a_decision_under_a_token_counts_for_its_statement_alone():
    statements = TableDecisions(MemoryStore(), "t")
    statements.commit("a1", INSERT, affected=1)
    decided = statements.read()
    assert (decided.of(INSERT).attempt, decided.of("A").attempt, decided.of(DELETE)) == ("a1", "a1", None)


def test_a_claim_is_one_statements_in_its_table_until_it_is_forgotten(store, clock):
    claims, others = TokenClaims(store, clock), TokenClaims(store, clock)
    claims.claim("t", INSERT)
    for one in (claims, others):
        one.claim("t", INSERT)
        with pytest.raises(SqlError, match="token 'A' was used for another statement, or for other rows: nothing"):
            one.claim("t", DELETE)
    claims.claim("u", DELETE)
    aged, others = (AgedObjects(store, clock, TOKENS_PREFIX, CLAIMED_MS) for _ in range(2))
    assert aged.tick() == 0
    clock.sleep_ms(CLAIMED_MS - 1)
    assert (aged.tick(), others.tick()) == (0, 0)
    clock.sleep_ms(1)
    assert aged.tick() == 2
    claims.claim("t", DELETE)
    clock.sleep_ms(CLAIMED_MS - 2)
    assert others.tick() == 0
    clock.sleep_ms(1)
    assert others.tick() == 0  # it is another claim than the one that it saw an hour ago
    assert store.get(token_key("t", "A")).data


@pytest.mark.parametrize("later", [0, 3 * TAIL_TOKENS], ids=["in the manifest", "on a page"])
def test_a_partition_takes_one_statement_of_two_clients_for_two(partition, later):
    partition.commit(add=[FILE], epoch=1, token=ADAS)
    for n in range(later):
        partition.commit(epoch=1, token=f"later-{n}")
    before = partition.read()
    assert partition.applied(before.document, BOBS) is None
    assert partition.commit(add=[FILE], epoch=1, token=ADAS) == before
    assert partition.commit(remove=[FILE.path], epoch=1, token=BOBS).document.files == ()


@pytest.mark.parametrize("later", [0, 3 * TAIL_TOKENS], ids=["in the manifest", "on a page"])
def test_what_was_applied_before_clients_were_told_apart_is_not_applied_again(partition, later):
    partition.commit(add=[FILE], epoch=1, token=INSERT)
    for n in range(later):
        partition.commit(epoch=1, token=f"later-{n}")
    before = partition.read()
    assert partition.commit(add=[FILE], epoch=1, token=ADAS) == before
    assert partition.applied(before.document, ADAS).added == 1


def test_a_decision_is_that_of_the_client_whose_statement_it_was():
    statements = TableDecisions(MemoryStore(), "t")
    statements.commit("a1", ADAS, affected=1)
    statements.commit("b1", BOBS, affected=1)
    decided = statements.read()
    assert (decided.of(ADAS).attempt, decided.of(BOBS).attempt) == ("a1", "b1")


def test_no_client_claims_the_words_of_another(store, clock):
    claims = TokenClaims(store, clock)
    claims.claim("t", token_for("A", "execute", "delete", False, client="bob"))
    claims.claim("t", ADAS)
    claims.claim("t", INSERT)
    with pytest.raises(SqlError, match="token 'A' was used for another statement"):
        claims.claim("t", BOBS)


def test_with_all_rules_no_load_is_applied_in_part_and_no_name_stands_for_two():
    assert [seed for seed in range(60) if run(seed, Rules())] == []


@pytest.mark.parametrize("name", [name for name in variants() if name != "all rules"])
def test_no_rule_of_tokens_is_idle(name):
    assert any(run(seed, variants()[name]) for seed in range(80)), name
