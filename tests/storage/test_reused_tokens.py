"""A token that comes with another statement is refused: nothing is taken for done because something else was."""

from __future__ import annotations

import pytest

from ballista_py.errors import SqlError
from ballista_py.planning.write_tokens import token_for
from ballista_py.state.memory import MemoryStore
from ballista_py.state.statements import Statements
from ballista_py.storage.manifest import TAIL_TOKENS, DataFile, Prepared
from ballista_py.storage.partition_storage import PartitionStorage

INSERT, DELETE = token_for("A", "execute", "insert", False), token_for("A", "execute", "delete", False)
FILE = DataFile(path="snapshots/t/data/a", rows=1, bytes=1)


@pytest.fixture
def partition(store, clock):
    made = PartitionStorage(store, "t", "p=0", runtime=clock)
    made.create()
    made.activate(1)
    return made


@pytest.mark.parametrize("later", [0, 3 * TAIL_TOKENS], ids=["in the manifest", "on a page"])
def test_another_statement_under_a_token_is_refused_and_the_same_one_is_content(partition, later):
    partition.commit(add=[FILE], epoch=1, token=INSERT)
    for n in range(later):
        partition.commit(epoch=1, token=f"later-{n}")
    before = partition.read()
    for verb in (
        lambda: partition.commit(remove=[FILE.path], epoch=1, token=DELETE),
        lambda: partition.prepare(Prepared(attempt="a", token=DELETE, remove=(FILE.path,)), epoch=1),
    ):
        for _ in range(2):
            with pytest.raises(SqlError, match="token 'A' was used for another statement: take a new token"):
                verb()
    assert partition.commit(add=[FILE], epoch=1, token=INSERT) == before
    assert partition.applied(before.document, INSERT).added == 1


def test_a_token_kept_without_a_digest_stands_for_whatever_comes_under_it(partition):
    partition.commit(add=[FILE], epoch=1, token="A")
    assert partition.commit(remove=[FILE.path], epoch=1, token=DELETE).document.files == (FILE,)


def test_a_statement_that_was_decided_is_folded_in_though_another_one_took_its_token_meanwhile(partition):
    partition.prepare(Prepared(attempt="a", token=INSERT, add=(FILE,)), epoch=1)
    partition.commit(epoch=1, token=DELETE)
    assert partition.fold("a", epoch=1, sequence=1).document.files[0].path == FILE.path


def test_a_decision_under_a_token_counts_for_its_statement_alone():
    statements = Statements(MemoryStore(), "t")
    statements.commit("a1", INSERT, affected=1)
    decided = statements.read()
    assert (decided.of(INSERT).attempt, decided.of("A").attempt, decided.of(DELETE)) == ("a1", "a1", None)
    with pytest.raises(SqlError, match="another statement"):
        decided.require_own(DELETE)
    decided.require_own(INSERT)
