"""What is known of a change holds for those that differ in whole numbers of the same size, and for no other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.checks import MAX_REMEMBERED, BoundShapes, RowChecks
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import read_change

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int8()), ("s", pa.string()), ("m", pa.decimal128(4, 1))])
SEEN = "update t set v = 1, s = 'a' where id = 17 and s <> '5'"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (SEEN, True),
        ("update t set v = 9, s = 'a' where id = 99 and s <> '5'", True),
        ("update t set v = 19, s = 'a' where id = 99 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where id = 100 and s <> '5'", False),
        ("update t set v = 1, s = 'b' where id = 17 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where id = 17 and s <> '6'", False),
        ("update t set v = -1, s = 'a' where id = 17 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where id = 1.7 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where id = 1e7 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where i2 = 17 and s <> '5'", False),
        ("update t set v = 1, s = 'a' where id = 17 /* 8 */ and s <> '5'", False),
    ],
)
def test_only_whole_numbers_may_differ(text, known):
    shapes = BoundShapes()
    shapes.add(SEEN, SCHEMA)
    assert shapes.knows(text, SCHEMA) is known
    assert not shapes.knows(text, SCHEMA.append(pa.field("new", pa.int64())))


def test_numbers_of_one_class_go_into_the_same_types():
    for low, high in ((127, 128), (255, 256), (32_767, 32_768), (65_535, 65_536), (2**31 - 1, 2**31), (99, 100)):
        shapes = BoundShapes()
        shapes.add(f"delete from t where id = {low}", SCHEMA)
        assert shapes.knows(f"delete from t where id = {low - 1}", SCHEMA)
        assert not shapes.knows(f"delete from t where id = {high}", SCHEMA)


def test_names_with_numbers_are_other_names():
    shapes = BoundShapes()
    shapes.add('update t1 set "v 1" = 1 where x1 = 1', SCHEMA)
    assert shapes.knows('update t1 set "v 1" = 2 where x1 = 3', SCHEMA)
    for other in ('update t2 set "v 1" = 1 where x1 = 1', 'update t1 set "v 2" = 1 where x1 = 1'):
        assert not shapes.knows(other, SCHEMA)


def test_it_remembers_a_bounded_number():
    shapes = BoundShapes()
    for number in range(3 * MAX_REMEMBERED):
        shapes.add(f"delete from t{number}", SCHEMA)
    assert len(shapes._known) <= MAX_REMEMBERED


class Counting(DuckDBEngine):
    """An engine that counts how often it binds a change."""

    bound = 0

    def bind_change(self, sql, schemas, same=None):
        self.bound += 1
        return super().bind_change(sql, schemas, same)


def test_a_change_is_bound_once_for_its_shape_and_one_that_fails_every_time():
    table = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA))
    engine = Counting()
    checks = RowChecks(engine)
    for number in (11, 12, 99):
        assert checks.bind(read_change(f"update t set m = m + {number} where id = {number}"), table)
    assert engine.bound == 1
    for _ in range(2):
        with pytest.raises(SqlError, match="nosuch"):
            checks.bind(read_change("update t set nosuch = 5 where id = 7"), table)
    assert engine.bound == 3
    wider = TableSpec(
        name="t",
        schema=SCHEMA.append(pa.field("x", pa.int64())),
        spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA),
    )
    assert checks.bind(read_change("update t set m = m + 11 where id = 11"), wider)
    assert engine.bound == 4
    engine.close()
