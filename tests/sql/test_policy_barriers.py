"""Statements over tables behind barriers: as over copies that hold nothing else, however they are planned."""

from __future__ import annotations

import json
from contextlib import closing

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.engines.polars.plan import translate
from ballista_py.errors import BallistaError, SqlError
from ballista_py.partitions.policies import ColumnMask, Policies, RowFilter
from ballista_py.sql.barriers import barred, barrier_of, require_row_expression, said_of, shown_spec
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query
from ballista_py.testing.sql.fuzz import random_query
from ballista_py.testing.sql.single_node import InProcessCluster, difference
from ballista_py.testing.sql.tables import fill_with_small_tables

COUNT = 60
ROWS = 240
TYPES = (
    "INTEGER",
    "BIGINT",
    "INTEGER",
    "VARCHAR",
    "DECIMAL(12,2)",
    "DOUBLE",
    "DATE",
    "TIMESTAMP",
    "BOOLEAN",
    "BIGINT",
)


class Guarded(InProcessCluster):
    """Plans as for a client of whom policies hide something."""

    def __init__(self, policies: Policies, **options) -> None:
        super().__init__(**options)
        self.rights = policies.of("anna", ["emea"])

    @property
    def catalog(self) -> Catalog:
        whole = super().catalog
        behind = {n: t for n, t in whole.tables.items() if self.rights.is_protected(n)}
        types = {name: self._engine.sql_types(table.schema) for name, table in behind.items()}
        return evolve(
            whole,
            tables={n: shown_spec(t, self.rights.masks(n)) for n, t in whole.tables.items()},
            sizes={n: s for n, s in whole.sizes.items() if n not in behind},
            barriers={n: barrier_of(t, self.rights, types[n]) for n, t in behind.items()},
        )

    def copied(self, name: str) -> pa.Table:
        """What the client sees of a table, as one node gives it."""
        barrier = self.catalog.barriers.get(name)
        return self.rows[name] if barrier is None else self.single(barrier)


def seen(cluster: Guarded) -> InProcessCluster:
    """One node that holds what the client sees, and no more."""
    other = InProcessCluster(executors=1)
    other.rows = {name: cluster.copied(name) for name in cluster.rows}
    return other


HIDDEN = "coalesce(id % 3, 0) = 1"
POLICIES = Policies(
    rows=(
        RowFilter(tables=("*",), where=f"NOT ({HIDDEN}) -- the third part"),
        RowFilter(tables=("t", "w"), where="list_contains(current_groups(), 'emea') AND current_user() <> s"),
        RowFilter(tables=("t",), where="false", spares=("emea",)),
    ),
    masks=(
        ColumnMask(tables=("*",), columns=("d",), value="CASE WHEN bo THEN 0.15 END"),
        ColumnMask(tables=("*",), columns=("x",), value="1.5"),
        ColumnMask(tables=("t",), columns=("b",), value="a + 0", spares=("user:anna",)),
    ),
)


@pytest.fixture(scope="module", params=[(3, 1, 50), (1, 1, 25), (2, 2, 40)], ids=str)
def guarded(request):
    executors, replicas, rows = request.param
    with fill_with_small_tables(
        Guarded(POLICIES, executors=executors, replicas=replicas), seed=executors, rows=rows
    ) as cluster:
        cluster.measure()
        yield cluster


@pytest.fixture(scope="module")
def copies(guarded):
    with seen(guarded) as other:
        yield other


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(COUNT * 6))
def test_a_statement_answers_as_over_copies_of_what_its_client_sees(guarded, copies, seed):
    query = random_query(seed)
    try:
        expected = copies.single(query.sql)
    except BallistaError:
        return
    plan = plan_query(query.sql, guarded.catalog, expected.schema)
    wrong = difference(guarded.execute(plan), expected, ordered=query.ordered)
    assert wrong is None, (wrong, query.sql)


def test_the_copies_lack_what_is_hidden_and_the_table_has_it(guarded):
    for name in guarded.rows:
        shown, whole = guarded.copied(name), guarded.rows[name]
        assert not {n for n in shown["id"].to_pylist() if n % 3 == 1}
        assert set(shown["x"].to_pylist()) <= {1.5}
        assert len(shown) < len(whole) or len(whole) < 2, name


FAILS_HIDDEN = "CASE WHEN {q}id % 3 = 1 THEN CAST('LEAK ' || {q}id AS INTEGER) ELSE 1 END"
FAILS_MASKED = "CASE WHEN {q}x <> 1.5 OR isnan({q}x) THEN CAST('LEAK ' || {q}x AS INTEGER) ELSE 1 END"
PLACES = (
    "SELECT {e} AS n FROM {t}",
    "SELECT count(*) FROM {t} WHERE {e} = 1",
    "SELECT id FROM {t} WHERE k = 3 AND {e} = 1",
    "SELECT id FROM {t} WHERE {e} = 1 AND id > 2 ORDER BY id LIMIT 3",
    "SELECT sum({e}), count(DISTINCT {e}) FROM {t}",
    "SELECT a, sum({e}) FROM {t} GROUP BY a",
    "SELECT count(*) FROM {t} GROUP BY {e}",
    "SELECT a, count(*) FROM {t} GROUP BY a HAVING min({e}) = 1",
    "SELECT id FROM {t} ORDER BY {e}, id",
    "SELECT row_number() OVER (PARTITION BY {e} ORDER BY id) FROM {t}",
    "SELECT sum(a) OVER (ORDER BY {e}, id) FROM {t}",
    "SELECT id FROM {t} QUALIFY row_number() OVER (ORDER BY {e}, id) < 3",
    "SELECT count(*) FROM {t} JOIN r2 ON {t}.a = r2.a AND {j} = 1",
    "SELECT count(*) FROM {t} LEFT JOIN u ON {t}.k = u.k AND {j} = u.b",
    "SELECT count(*) FROM r2 JOIN {t} ON r2.a = {j}",
    "SELECT count(*) FROM r2 WHERE EXISTS (SELECT 1 FROM {t} WHERE {t}.a = r2.a AND {j} = 1)",
    "SELECT count(*) FROM r2 WHERE a IN (SELECT {e} FROM {t})",
    "SELECT (SELECT max({e}) FROM {t})",
    "SELECT * FROM (SELECT {e} AS n, k FROM {t}) WHERE n = 1 AND k = 2",
    "WITH c AS (SELECT {e} AS n, id FROM {t}) SELECT count(*) FROM c AS one JOIN c AS other USING (id) WHERE one.n = 1",
    "SELECT {e} FROM {t} UNION SELECT a FROM r2",
    "SELECT count(*) FROM {t} AS {t} WHERE k IN (1, 2, 3) AND {e} BETWEEN 0 AND 2",
    "SELECT count(*) FILTER (WHERE {e} = 1) FROM {t}",
    "SELECT list({e} ORDER BY id) FROM {t}",
    "SELECT * REPLACE ({e} AS b) FROM {t}",
    "SELECT min(id), max(id), count(*), count(x) FROM {t} WHERE {e} = 1",
    "SELECT DISTINCT {e} FROM {t}",
    "SELECT id FROM {t} WHERE s IS NOT NULL AND {e} = 1 GROUP BY id",
)


@pytest.mark.parametrize("fails", [FAILS_HIDDEN, FAILS_MASKED], ids=["rows", "values"])
@pytest.mark.parametrize("place", range(len(PLACES)))
@pytest.mark.parametrize("table", ["t", "w", "r", "z"])
def test_nothing_fails_over_what_is_hidden(guarded, copies, table, place, fails):
    sql = PLACES[place].format(t=table, e=fails.format(q=""), j=fails.format(q=f"{table}."))
    expected = copies.single(sql)
    plan = plan_query(sql, guarded.catalog, expected.schema)
    assert difference(guarded.execute(plan), expected, ordered=False) is None
    for leg in guarded.legs(plan):
        assert all(f'"{one.table}" AS (SELECT' in leg.sql for one in leg.tables), leg.sql


def test_without_a_barrier_they_do_fail(guarded):
    """What the tests above look for would be there."""
    for fails in (FAILS_HIDDEN, FAILS_MASKED):
        with pytest.raises(BallistaError, match="LEAK"):
            guarded.single(PLACES[0].format(t="t", e=fails.format(q="")))


def test_duckdb_keeps_the_barrier_that_a_leg_names(guarded):
    """In its optimized plan a LIMIT is between the scan with the policy's filter and whatever the statement says."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("w0", guarded.rows["w"])
        connection.execute("CREATE TABLE w AS FROM w0")
        for place in PLACES:
            sql = place.replace("{t}.", "").format(
                t="w", e="(length(w.s || 'MARK') % 2)", j="(length(w.s || 'MARK') % 2)"
            )
            if "r2" in sql or " u " in sql or not sql.startswith("SELECT "):
                continue
            text = barred(sql, ["w"], guarded.catalog)
            said = connection.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchall()[0][1]
            scans = list(scanned(json.loads(said), behind=False))
            assert scans, (sql, said)
            assert all(behind and "MARK" not in told for behind, told in scans), (sql, scans)


def scanned(nodes, behind):
    """Of each scan of the table: whether a LIMIT is above it, and all that is said from there on."""
    for node in nodes:
        below = list(scanned(node["children"], behind or "LIMIT" in node["name"].upper()))
        if node["name"].strip() == "SEQ_SCAN":
            below = [(behind, "")]
        own = json.dumps(node["extra_info"]) if behind else ""
        yield from ((limited, own + told) for limited, told in below)


def test_polars_keeps_it_too_or_refuses(guarded):
    """It does no TRY, so it refuses what may fail; most of the places it refuses anyway, as casts that may fail."""
    where = f"id NOT IN ({', '.join(str(n) for n in range(1, ROWS, 3))})"
    rights = Policies(rows=(RowFilter(tables=("w",), where=where),)).of("anna", ())
    catalog = Catalog(tables={}, maps={}, barriers={"w": barrier_of(guarded.tables["w"], rights, TYPES)})
    assert "TRY" not in catalog.barriers["w"]
    whole = guarded.rows["w"]
    visible = whole.filter(pa.array([n % 3 != 1 for n in whole["id"].to_pylist()]))
    other = InProcessCluster(executors=1)
    other.rows = {"w": visible}
    done, refused = 0, ""
    with closing(PolarsEngine()) as engine, other:
        for place in (*PLACES, "SELECT id FROM {t} WHERE {q}", "SELECT count(*) FROM {t} WHERE {q}"):
            fails = FAILS_HIDDEN.format(q="")
            sql = place.replace("{t}.", "").format(t="w", e=fails, j=fails, q="id % 3 = 1 OR x <> 1.5 OR d > 1")
            if "r2" in sql or " u " in sql or not sql.startswith("SELECT "):
                continue
            for barriers in (catalog, guarded.catalog):
                try:
                    running = engine.query(barred(sql, ["w"], barriers), streams={"w": whole})
                    found = pa.Table.from_batches(running.batches(), running.schema)
                except SqlError as error:
                    refused += str(error)
                    continue
                done += 1
                assert barriers is catalog, sql
                assert difference(found, other.single(sql), ordered=False) is None, sql
    assert done >= 2
    assert "LEAK" not in refused


def test_polars_optimizer_has_a_step_between_that_it_does_not_enter():
    import polars as pl

    rows = pa.table({"id": [1, 2, 3], "a": [1, 2, 3]})
    with closing(PolarsEngine()) as engine:
        text = 'WITH "w" AS (SELECT id, a FROM "w" WHERE (id <> 1) OFFSET 0) SELECT id FROM w WHERE a + 1 > 2'
        plan = translate(
            engine._binder.plan(text, {"w": rows.schema}), {"w": pl.from_arrow(rows).lazy()}
        ).explain()
    above, below = plan.split("OPAQUE_PYTHON")
    assert (above.count("FILTER"), below.count("FILTER")) == (1, 1), plan


def test_an_expression_of_a_policy_that_fails_hides_the_row_and_its_error(guarded):
    table = guarded.tables["w"]
    policies = Policies(
        rows=(RowFilter(tables=("w",), where="CAST('9' || s AS INTEGER) > 0"),),
        masks=(ColumnMask(tables=("w",), columns=("b",), value="CAST('LEAK' || id AS INTEGER)"),),
    )
    found = guarded.single(barrier_of(table, policies.of("anna", ()), TYPES))
    assert set(found["s"].to_pylist()) <= {""}
    assert set(found["b"].to_pylist()) <= {None}


@pytest.mark.parametrize(
    ("where", "sure"),
    [
        ("s = current_user()", True), ("list_contains(current_groups(), s)", True),
        ("id IN (1, 2) AND NOT k < 3", True),
        ("bo OR (s <> 'x' AND a BETWEEN 1 AND 2)", True), ("true", True), ("s = 5", False), ("id = 'x'", False),
        ("a + 1 = 2", False), ("CAST(s AS INTEGER) = 1", False), ("d = 1", False), ("x = 1", False), ("s", False),
        ("id IN ('a')", False), ("dt = '2020-01-01'", False), ("id = 99999999999999999999", False), ("id = bo", False),
        ("s = id", False), ("lower(s) = 'a'", False), ("list_contains(current_groups(), id)", False), ("NOT s", False),
    ],
)  # fmt: skip
def test_a_condition_is_tried_unless_it_surely_fails_over_no_row(guarded, where, sure):
    rights = Policies(rows=(RowFilter(tables=("w",), where=where),)).of("anna", ())
    assert ("TRY(" not in barrier_of(guarded.tables["w"], rights, TYPES)) is sure


def test_a_leg_of_an_unknown_form_is_refused_and_not_run_bare(guarded):
    with pytest.raises(SqlError, match="not run over tables of which policies hide"):
        barred("FROM t", ["t"], guarded.catalog)
    assert barred("FROM t", ["other"], guarded.catalog) == "FROM t"


def test_a_mask_for_what_is_not_there_or_splits_the_table_shows_nothing(guarded):
    table = guarded.tables["t"]
    types = guarded._engine.sql_types(table.schema)
    for column, said in (("gone", "has no such column"), ("K", "is split")):
        mask = ColumnMask(tables=("t",), columns=(column,), value="1")
        with pytest.raises(SqlError, match=said):
            barrier_of(table, Policies(masks=(mask,)).of("anna", ()), types)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1) OR (true", "a = 1) FROM t --", "a, b", "(SELECT 1) = 1", "EXISTS (SELECT 1)", "a IN (SELECT a FROM u)",
        "sum(a) > 1", "row_number() OVER () = 1", "*", "u.a = 1", "gone = 1", "", "a = 1; DROP TABLE t", "a = ?",
        "a = $1", "a AS n",
    ],
)  # fmt: skip
def test_what_is_no_expression_over_one_row_is_no_policy(guarded, text):
    with pytest.raises(SqlError, match="no expression over one row"):
        require_row_expression(text, guarded.tables["t"].schema.names)


def test_the_client_of_an_expression_is_a_value_and_never_sql(guarded):
    table = guarded.tables["t"]
    said = said_of(table, "current_user = s AND 'current_user' <> s /* current_user() */", "o'x", ["a'b"])
    assert said.startswith("'o''x' = s AND 'current_user' <> s")
    assert said_of(table, "list_contains(current_groups(), s)", "x", ["a'b"]).startswith(
        "list_contains(['a''b']::VARCHAR[], s)"
    )
