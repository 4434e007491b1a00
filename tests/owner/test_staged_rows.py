"""Rows that tasks put are held against the table and split as it is, whatever their senders say of them."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SchemaMismatch, SnapshotGone
from ballista_py.owner import staged_rows
from ballista_py.owner.staged_rows import StagedRows, ValueNumbers
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.writes.leases import WRITES_PREFIX, staging_prefix

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("v", pa.float64()),
    ]
)
SPLITS = (
    ["region"],
    ["bucket(4, id)"],
    ["region", "day", "bucket(3, id)"],
    ["date_trunc('month', day)", "region"],
)
ROWS = st.lists(
    st.tuples(
        st.integers(-5, 5),
        st.none() | st.sampled_from(["", "eu", "us", "é/x"]),
        st.none() | st.dates(date(2020, 1, 1), date(2020, 4, 1)),
        st.none() | st.floats(),
    ),
    max_size=30,
)


def table_of(*partition_by: str, **options) -> TableSpec:
    spec = PartitionSpec.parse(list(partition_by), SCHEMA) if partition_by else PartitionSpec.whole()
    kind = "partitioned" if partition_by else "replicated"
    return TableSpec(name="t", schema=SCHEMA, spec=spec, distribution=kind, **options)


def batch_of(rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@given(rows=ROWS, more=ROWS, split=st.sampled_from(SPLITS))
def test_rows_have_the_number_of_the_value_that_a_map_would_find_them_by(rows, more, split):
    table = table_of(*split)
    numbers = ValueNumbers(table)
    found = [numbers.tagged(batch) for batch in (batch_of(rows), batch_of(more))]
    assert len(set(map(table.spec.path, numbers.values))) == len(numbers.values)
    pmap = PartitionMap.build("t", table.spec, numbers.values)
    for tagged in found:
        batch = tagged.drop_columns([PARTITION_COLUMN])
        wanted = pmap.lookup(table.spec.evaluate(batch), batch.num_rows)
        assert tagged.column(tagged.num_columns - 1).to_pylist() == wanted.tolist()


def test_a_table_without_keys_has_one_partition():
    numbers = ValueNumbers(table_of())
    assert numbers.tagged(batch_of([(1, None, None, None)] * 3)).column(4).to_pylist() == [0, 0, 0]
    assert numbers.values == [()]


def test_too_many_partitions_in_the_rows_of_one_sender_are_refused(monkeypatch):
    monkeypatch.setattr(staged_rows, "MAX_VALUES", 2)
    numbers = ValueNumbers(table_of("region"))
    numbers.tagged(batch_of([(1, "a", None, None), (1, "b", None, None), (1, "a", None, None)]))
    with pytest.raises(SchemaMismatch, match="sort them by partition"):
        numbers.tagged(batch_of([(1, "c", None, None)]))


def test_a_value_that_can_name_no_partition_is_refused():
    with pytest.raises(SchemaMismatch, match=r"partition value of 2,000 bytes"):
        ValueNumbers(table_of("region")).tagged(batch_of([(1, "x" * 2_000, None, None)]))


class Taking:
    """An executor that takes rows, and a write."""

    def __init__(self, table: TableSpec, **options) -> None:
        self.store, self.runtime = MemoryStore(), SystemRuntime()
        self.engine = DuckDBEngine()
        self.staged = StagedRows(self.store, self.engine, self.runtime, map, **options)
        self.table = table
        self.write_id = self.staged.leases.take(table, "me", "t1", "append")

    def keep(self, *batches: pa.RecordBatch, schema: pa.Schema | None = None):
        write = self.staged.begun(self.write_id, "me")
        return self.staged.keep(self.write_id, write, schema or batches[0].schema, batches)

    def files(self) -> list[str]:
        prefix = staging_prefix(self.table.folder, self.write_id)
        return [entry.key for entry in self.store.list(prefix)]

    def named(self) -> list[str]:
        return [entry.key for entry in self.store.list(f"{WRITES_PREFIX}{self.write_id}/")]


@pytest.fixture
def taking():
    made = []

    def make(*partition_by: str, spool_bytes: int = 1 << 20, **options) -> Taking:
        made.append(Taking(table_of(*partition_by, **options), spool_bytes=spool_bytes))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def test_rows_lie_in_files_of_their_partitions_and_the_receipt_names_them(taking):
    mine = taking("region")
    kept = mine.keep(batch_of([(1, "eu", None, 1.0), (2, None, None, None)]), batch_of([(3, "eu", None, 2.0)]))
    assert kept.rows == 3
    staged = mine.staged.leases.staged(mine.write_id, kept.sender, kept.digest, mine.table)
    found = {one.value: read_data_file(mine.store, one.file, SCHEMA)["id"].to_pylist() for one in staged.files}
    assert found == {("eu",): [1, 3], (None,): [2]}
    assert sorted(mine.files()) == sorted(one.file.path for one in staged.files)


def test_a_sender_without_rows_has_a_receipt_of_none(taking):
    mine = taking("region")
    kept = mine.keep(schema=SCHEMA)
    assert kept.rows == 0
    assert mine.staged.leases.staged(mine.write_id, kept.sender, kept.digest, mine.table).files == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (batch_of([(None, "eu", None, None)]), "no value in column 'id'"),
        (batch_of([(7, "eu", None, -1.0)]), r"row 1 \(id = 7, .* violates CHECK"),
        (pa.record_batch({"id": [1]}), "no column 'region'"),
        (batch_of([]).rename_columns(["id", "region", "day", "other"]), "no column 'v'"),
    ],
)
def test_rows_that_are_not_the_tables_are_refused_and_nothing_is_kept(taking, rows, said):
    mine = taking("region", checks=("v >= 0",))
    good = batch_of([(1, "eu", None, 1.0)])
    batches = (good, rows) if rows.schema == SCHEMA else (rows,)
    with pytest.raises(SchemaMismatch, match=said):
        mine.keep(*batches)
    assert mine.files() == mine.named() == []


def test_rows_that_break_off_are_kept_by_nobody(taking):
    mine = taking("region", spool_bytes=1)  # each batch is written as it comes

    def rows():
        yield batch_of([(1, "eu", None, 1.0)])
        assert mine.files()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        mine.staged.keep(mine.write_id, mine.staged.begun(mine.write_id, "me"), SCHEMA, rows())
    assert mine.files() == mine.named() == []


def test_a_write_that_is_over_before_the_rows_have_come_keeps_none(taking):
    mine = taking("region")

    def rows():
        yield batch_of([(1, "eu", None, 1.0)])
        mine.staged.leases.end(mine.write_id, "me")

    with pytest.raises(SnapshotGone):
        mine.staged.keep(mine.write_id, mine.staged.begun(mine.write_id, "me"), SCHEMA, rows())
    assert mine.files() == mine.named() == []


def test_a_write_is_kept_on_while_rows_come(taking):
    mine = taking("region")
    write = mine.staged.begun(mine.write_id, "me")
    clock = [mine.runtime.monotonic_ms(), mine.runtime.wall_ms()]

    class Later(SystemRuntime):
        def monotonic_ms(self) -> float:
            return clock[0]

        def wall_ms(self) -> int:
            return int(clock[1])

    staged = StagedRows(mine.store, mine.engine, Later(), map)

    def rows():
        for _ in range(4):
            yield batch_of([(1, "eu", None, 1.0)])
            clock[0] += write.lease_ms / 3
            clock[1] += write.lease_ms / 3

    staged.keep(mine.write_id, write, SCHEMA, rows())
    assert staged.leases.read(mine.write_id).renewals >= 3
