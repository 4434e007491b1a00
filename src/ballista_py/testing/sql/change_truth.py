"""Changes held against themselves: what must be so of any predicate, whatever owners run and however they prune.

- *Ternary-logic partitioning*: of `p`, `not p` and `p is null` one is true for each row. So three changes under these
  conditions, each of the whole table, touch every row once, and no row twice.
- *No-optimisation pairs*: a change touches the rows for which `case when p then …` says so, computed of all rows of the
  table without a WHERE, by which nothing can be left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError
from ballista_py.runtime import seeded_chance
from ballista_py.sql.parse.changes import General, Local, read_change
from ballista_py.testing.sql.changes import CHANGED, change_statement, predicate
from ballista_py.testing.sql.single_node import InProcessCluster, PartitionBy
from ballista_py.testing.sql.single_node_changes import Done, Tables, by_partitions

_NOT_RUN = ("engine does not run", "its engine alone can run it")
PLACE = "place"  # a column that tells every row from every other
FORMS: Mapping[str, str] = {
    "delete": "delete from t where {}",
    "update": "update t set s = 'touched' where {}",
    "returned": "delete from t where {} returning place",
    "using": "delete from t using (select 1 as one) as src where src.one = 1 and ({})",
    "merge": "merge into t using (select 1 as one) as src on ({}) when matched then delete",
    "merge when": "merge into t using (select 1 as one) as src on true when matched and ({}) then delete",
}
LAYOUTS: tuple[PartitionBy, ...] = (
    "bucket(4, id)",
    ["region", "d"],
    "truncate(id, 4)",
    "id",
    "year(d)",
    None,
    "s",
)


def compare_truths(seed: int, predicates: int, engine: Engine) -> int:
    """Hold so many random predicates against themselves, in some forms of change; how many changes were compared.

    What the engine of the owners says that it does not run is left out.

    Raises `AssertionError` at the first that touches a row twice, or not at all, or another one.
    """
    chance = seeded_chance(seed)
    compared = 0
    with InProcessCluster(executors=3) as cluster:
        rows = CHANGED.empty_table()
        cluster.add("t", rows, None)
        cluster.add("u", rows, None)
        while rows.num_rows < 30:
            statement = change_statement(chance)
            if statement.startswith("insert into t (") and "returning" not in statement:
                rows = pa.concat_tables([rows, cluster.check_change(statement)])
        rows = rows.append_column(PLACE, pa.array(range(rows.num_rows), pa.int64()))
        for number in range(predicates):
            if number % 3 == 0:
                cluster.add("t", rows, LAYOUTS[(seed + number // 3) % len(LAYOUTS)])
            condition = predicate(chance)
            wanted = _by_case(cluster, condition)
            for form in ("delete", "update", chance.choice(tuple(FORMS))):
                compared += _parts_compared(cluster, engine, form, condition, wanted)
    return compared


def _by_case(cluster: InProcessCluster, condition: str) -> list[list[int]]:
    """The places of the rows for which the condition is true, false and null; of all rows, without a WHERE."""
    found = cluster.single(
        f"select {PLACE}, case when ({condition}) then 0 when not ({condition}) then 1 else 2 end as says from t"
    )
    says = Counter(dict(zip(found[PLACE].to_pylist(), found["says"].to_pylist(), strict=True)))
    return [sorted(place for place, one in says.items() if one == number) for number in range(3)]


def _parts_compared(
    cluster: InProcessCluster, engine: Engine, form: str, condition: str, wanted: list[list[int]]
) -> int:
    for places, part in zip(
        wanted, (f"({condition})", f"not ({condition})", f"({condition}) is null"), strict=True
    ):
        sql = FORMS[form].format(part)
        change = read_change(sql)
        assert isinstance(change, Local | General)
        try:
            done = by_partitions(cluster, engine, cluster.tables["t"], change)
        except (BallistaError, pa.ArrowException) as error:
            if any(words in str(error) for words in _NOT_RUN):
                return 0
            raise AssertionError(f"it fails: {error}\n{sql}") from error
        found = touched(cluster, done, form)
        if found != places or done.affected != len(places):
            raise AssertionError(f"rows {found} ({done.affected} counted) instead of {places}\n{sql}")
    return len(wanted)


def touched(cluster: Tables, done: Done, form: str) -> list[int]:
    """The places of the rows that a change of this form touched."""
    before, after = cluster.rows["t"], done.rows
    if form != "update":
        return sorted({*before[PLACE].to_pylist()} - {*after[PLACE].to_pylist()})
    marks = zip(after[PLACE].to_pylist(), after["s"].to_pylist(), strict=True)
    return sorted(place for place, mark in marks if mark == "touched")
