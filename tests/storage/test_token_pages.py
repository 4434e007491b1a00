"""A statement that was applied is known as such for as long as it may be sent again, however many follow it."""

import zlib

import pyarrow as pa
import pytest

from ballista_py.errors import DocumentLost, DocumentUnreadable, TryLater
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, TableDocument, table_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.write_tokens import PATIENCE_MS, RESEND_MS, TOKENS_KEPT_MS
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage import manifest as manifests
from ballista_py.storage.manifest import TAIL_TOKENS, DataFile, Prepared, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.token_pages import TokenPages
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS, find_garbage
from ballista_py.storage.upkeep.repair import find_repairs
from ballista_py.storage.upkeep.verify import history, verify_table

PAGE = 128
SCHEMA = pa.schema([pa.field("p", pa.int64(), nullable=False)])


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr("ballista_py.storage.token_pages.PAGE_TOKENS", PAGE)


@pytest.fixture
def inner():
    return MemoryStore()


@pytest.fixture
def partition(inner, clock):
    made = owner(inner, clock)
    made.create()
    made.activate(1)
    return made


def owner(store, clock) -> PartitionStorage:
    """A process that owns the partition, and remembers nothing of what another one saw."""
    return PartitionStorage(store, "t", "p=1", runtime=clock, pages=TokenPages(store, clock))


def write(partition, first: int, count: int) -> None:
    """Statements that bring no file, so that the tokens alone weigh something."""
    for n in range(first, first + count):
        partition.commit(epoch=1, token=f"token-{n}", affected=n)


def send_again(partition, n: int):
    before = partition.read().document.rows
    landed = partition.commit(
        add=[DataFile(path=f"again-{n}", rows=1, bytes=1)], epoch=1, token=f"token-{n}"
    ).document
    return partition.applied(landed, f"token-{n}"), landed.rows - before


def test_tokens_outlive_whoever_sends_a_statement_again():
    assert TOKENS_KEPT_MS >= 2 * (RESEND_MS + PATIENCE_MS)


def test_a_statement_whose_reply_was_lost_is_applied_once_though_thousands_follow_it(partition, inner, clock):
    write(partition, 0, 5_000)
    for asked in (partition, owner(inner, clock)):
        for n in (0, 1, 31, 32, 1_000, 1_500, 3_968, 4_999):
            applied, more = send_again(asked, n)
            assert (applied.token, applied.affected, more) == (f"token-{n}", n, 0)
    assert len(partition.read().document.tokens) <= TAIL_TOKENS


def test_a_statement_prepared_again_after_it_was_applied_changes_nothing(partition):
    write(partition, 0, 3 * TAIL_TOKENS)
    again = manifests.Prepared(attempt="a", token="token-3", add=(DataFile(path="again", rows=1, bytes=1),))
    assert partition.prepare(again, epoch=1).document.prepared == ()


def test_pages_go_once_they_are_surely_old_and_the_last_thousand_stay(partition, clock):
    count = 3 * PAGE
    write(partition, 0, count)
    pages = partition.read().document.pages
    clock.now_ms += TOKENS_KEPT_MS - 1_000
    write(partition, count, TAIL_TOKENS)
    assert set(pages[:2]) <= set(partition.read().document.pages)
    clock.now_ms += 2_000
    write(partition, count + TAIL_TOKENS, TAIL_TOKENS)
    assert not set(pages[:1]) & set(partition.read().document.pages)
    assert send_again(partition, count + 2 * TAIL_TOKENS - PAGE)[1] == 0


def test_an_owner_that_is_new_counts_from_when_it_saw_a_page_itself(partition, inner, clock):
    write(partition, 0, 3 * PAGE)
    clock.now_ms += 10 * TOKENS_KEPT_MS
    write(owner(inner, clock), 3 * PAGE, 2 * TAIL_TOKENS)
    assert send_again(owner(inner, clock), 0)[1] == 0


def test_where_no_more_can_be_remembered_statements_are_refused_and_none_is_forgotten(
    partition, clock, monkeypatch
):
    monkeypatch.setattr("ballista_py.storage.token_pages.MAX_PAGES", 1)
    monkeypatch.setattr(manifests, "MAX_TAIL", 100)
    with pytest.raises(TryLater, match="more statements than can be remembered"):
        write(partition, 0, PAGE + 300)
    assert send_again(partition, 0)[1] == 0
    assert send_again(partition, PAGE)[1] == 0


def test_pages_are_no_garbage_and_those_that_were_taken_in_are_removed_at_once(partition, inner, clock):
    write(partition, 0, 5 * TAIL_TOKENS)
    (page,) = partition.read().document.pages
    assert [entry.key for entry in inner.list("snapshots/t/tokens/")] == [page.path]
    clock.ahead_ms += int(2 * MAX_WRITE_MS)
    found = find_garbage(inner, {"t"}, min_age_ms=MAX_WRITE_MS, runtime=clock)
    clock.ahead_ms += int(2 * MAX_WRITE_MS)
    found = find_garbage(inner, {"t"}, min_age_ms=MAX_WRITE_MS, runtime=clock)
    assert page.path not in {entry.key for entry in found.files}


def test_a_lost_page_is_an_error_and_not_a_second_row(partition, inner, clock):
    write(partition, 0, 2 * TAIL_TOKENS)
    (page,) = partition.read().document.pages
    inner.delete(page.path)
    for number in (0, 10 * TAIL_TOKENS):
        with pytest.raises(DocumentLost, match=f"{page.path}.*storage repair"):
            send_again(owner(inner, clock), number)


def test_a_page_that_went_because_others_follow_it_is_no_lost_one(partition, inner, clock):
    write(partition, 0, 2 * TAIL_TOKENS)
    older = partition.read().document
    write(partition, 2 * TAIL_TOKENS, TAIL_TOKENS)
    assert partition.read().document.pages != older.pages
    with pytest.raises(TryLater, match="changed meanwhile"):
        TokenPages(inner, clock).applied(older, "token-0")


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "another"])
def test_a_page_that_is_not_whole_is_found_by_verify_and_repair_goes_on_without_it(inner, clock, damage):
    table = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["p"], SCHEMA))
    ObjectState(inner, CLUSTER_KEY, ClusterDocument).create(ClusterDocument().with_table(table))
    ObjectState(inner, table_key("t"), TableDocument).create(TableDocument(table=table))
    partition = owner(inner, clock)
    partition.create()
    partition.activate(1)
    write(partition, 0, 2 * TAIL_TOKENS)
    (page,) = partition.read().document.pages
    assert verify_table(inner, table, ["p=1"]).problems == ()
    data = inner.get(page.path).data
    inner.delete(page.path)
    if damage != "gone":
        other = zlib.compress(b"[]")
        flipped = bytes([data[0]]) + bytes([data[1] ^ 1]) + data[2:]
        inner.create(page.path, {"cut": data[:-3], "flipped": flipped, "another": other}[damage])
        with pytest.raises(DocumentUnreadable, match="storage repair"):
            send_again(owner(inner, clock), 0)
    (problem,) = verify_table(inner, table, ["p=1"]).problems
    assert (problem.file, problem.partition) == (page.path, "p=1")
    found = find_repairs(inner)
    (one,) = (one for one in found.repairs if one.key == manifest_key("t", "p=1"))
    assert f"of {page.tokens} earlier statement(s)" in one.what
    for repair in found.repairs:
        repair.apply()
    assert manifest_key("t", "p=1") not in {one.key for one in find_repairs(inner).repairs}
    assert partition.read().document.pages == ()
    last = 2 * TAIL_TOKENS - 1
    assert send_again(owner(inner, clock), last)[1] == 0  # the newest are in the manifest


def test_the_manifest_stays_small_under_many_small_statements(partition, inner):
    write(partition, 0, 1_000)
    assert len(inner.get("snapshots/t/p=1/manifest.json").data) < 6_000


def test_the_history_of_a_partition_goes_on_in_its_pages(partition, inner, clock):
    write(partition, 0, 3 * TAIL_TOKENS)

    class Table:
        folder = "t"

    told = [applied.token for applied in history(inner, Table(), "p=1")]
    assert told == [f"token-{n}" for n in reversed(range(3 * TAIL_TOKENS))]


def test_what_two_phases_apply_turns_pages_as_well(partition):
    """Statements over several partitions leave tokens, too: the manifest does not grow with their number."""
    for n in range(3 * TAIL_TOKENS):
        partition.prepare(Prepared(attempt=f"a{n}", token=f"token-{n}"), epoch=1)
        partition.fold(f"a{n}", epoch=1, sequence=n + 1)
    manifest = partition.read().document
    assert len(manifest.tokens) <= TAIL_TOKENS
    assert all(partition.applied(manifest, f"token-{n}") is not None for n in range(3 * TAIL_TOKENS))
