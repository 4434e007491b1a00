"""Every function of the engine, computed over partitions as on a single node."""

from __future__ import annotations

import os

import duckdb
import pyarrow as pa
import pytest

from ballista_py.engines.same_answer import difference
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.bind.engine_functions import aggregates, allowed_calls
from ballista_py.sql.parse.kind import REWRITTEN
from ballista_py.testing.sql.function_sweep import counts_of_arguments, kept_by_parser, statements, sweep, table
from ballista_py.testing.sql.single_node import InProcessCluster

# The parser writes these in another way that means the same; what is left of a call is refused by the binder first.
SAME_MEANING = {
    "array_append": "list_append, of which it is a macro",
    "array_prepend": "list_prepend, of which it is a macro",
    "bit_and": "a text is cast, which the engine would refuse",
    "bit_or": "a text is cast, which the engine would refuse",
    "bit_xor": "a text is cast, which the engine would refuse",
    "bool_and": "casts to the type that it takes",
    "bool_or": "casts to the type that it takes",
    "current_catalog": "a word without brackets",
    "current_date": "a word without brackets",
    "current_localtimestamp": "a word without brackets",
    "date_diff": "a unit that is no constant, or a text, has the statement run as it stands",
    "date_trunc": "a unit that is no constant has the statement run as it stands",
    "datediff": "as date_diff",
    "datetrunc": "as date_trunc",
    "generate_series": "its start is written",
    "get_current_time": "a word without brackets",
    "group_concat": "its separator is written",
    "if": "a CASE",
    "listagg": "its separator is written",
    "ltrim": "a date is cast, which the engine would refuse",
    "mod": "an operator, in brackets where it needs them",
    "range": "its start is written",
    "regexp_extract": "options must be constants",
    "regexp_extract_all": "options must be constants",
    "regexp_replace": "options must be constants",
    "rtrim": "a date is cast, which the engine would refuse",
    "session_user": "a word without brackets",
    "string_agg": "its separator is written",
    "struct_pack": "a struct in braces",
    "time_bucket": "a third argument has the statement run as it stands",
    "today": "current_date",
    "trim": "a date is cast, which the engine would refuse",
    "starts_with": "a date is cast, which the engine would refuse",
}


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(executors=3) as made:
        made.add("t", table(), "bucket(5, k)")
        yield made


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "call",
    [
        "product(k)",
        "product(2)",
        "fsum(k)",
        "histogram(k)",
        "histogram_exact(k, [1, 2])",
        "json_group_array(k)",
        "json_group_object(k, 1)",
        "mad(k)",
        "entropy(k)",
        "sem(k)",
        "mean(k)",
        "geomean(k)",
        "weighted_avg(k, 1)",
        "count_star()",
        "sum_no_overflow(k)",
        "bitstring_agg(k, 0, 10)",
        '"product"(k)',
        "product(k) filter (where i > 0)",
        "product(distinct k)",
        "product(k) + 1",
    ],
)
def test_an_aggregate_that_the_parser_does_not_know_is_computed_over_rows(cluster, call):
    for key in ("k", "g", "k, g"):
        sql = f"select {key}, {call} as v from t group by {key}"
        cluster.check(sql.replace("(k", f"({key[-1]}"))
        cluster.check(f"select {key} from t group by {key} having {call} is not null".replace("(k", f"({key[-1]}"))
    if "json" not in call:  # its text depends on the order of rows
        cluster.check(f"select {call} as v from t")


@pytest.mark.parametrize(
    "expression",
    [
        "date_add(d, to_days(3))",
        "log2(f + 1)",
        "log10(f + 1)",
        "decode(x, 'utf8')",
        "decode(x)",
        "json_extract(j, 'a') = '[1,\"x\"]'",
        "json_extract_string(j, 'a.b')",
        "date_diff('hour', ts, '2024-03-04 23:30:00')",
        "date_sub('hour', tz, '2024-03-04 23:30:00+02')",
        "list_reduce(l, lambda a, b: a + b, 3)",
        "reduce(l, lambda a, b: a + b, 3)",
        "list_has_any(l, [1]) = true",
        "jaro_winkler_similarity(s, p, 0.5)",
    ],
)
def test_what_the_parser_would_change_keeps_its_meaning(cluster, expression):
    cluster.check(f"select id, {expression} as v from t")
    cluster.check(f"select count(*) as n from t where {expression} is not null")


def test_a_share_of_all_functions_gives_what_a_single_node_gives():
    seed = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", SystemRuntime().wall_ms()))
    asked = list(sweep(share=0.012, seed=seed))
    assert not [(one.sql, one.wrong) for one in asked if one.wrong is not None], f"seed {seed}"


@pytest.mark.share(5)
def test_no_statement_is_asked_whose_answer_goes_by_the_order_of_rows():
    def ordered_by(order: str) -> duckdb.DuckDBPyConnection:
        node = duckdb.connect()
        node.register("rows", table())
        node.execute(f"create table t as select * from rows order by {order}")
        return node

    def answer(node: duckdb.DuckDBPyConnection, sql: str) -> pa.Table | None:
        try:
            return node.sql(sql).to_arrow_table()
        except duckdb.Error:
            return None

    first, *others = map(ordered_by, ("id", "id desc", "hash(id)"))
    wrong = set()
    for name, sql in statements():
        if (expected := answer(first, sql)) is not None:
            found = [answer(node, sql) for node in others]
            if any(rows is None or difference(rows, expected, ordered=False) for rows in found):
                wrong.add((name, sql))
    assert not wrong


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_all_functions_give_what_a_single_node_gives():
    asked = list(sweep())
    assert len({one.function for one in asked}) > 400
    assert not [(one.sql, one.wrong) for one in asked if one.wrong is not None]


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_every_call_that_the_parser_changes_was_looked_at():
    counts = counts_of_arguments()
    names = sorted(name for name in counts if name in allowed_calls() and "collate" not in name)
    changed = {name for name in names if kept_by_parser(name, counts[name]) is not None}
    assert changed - SAME_MEANING.keys() - REWRITTEN == set()


@pytest.mark.parametrize("name", ["abs", "product", "concat", "list_transform", "regexp_matches"])
def test_a_call_that_the_parser_keeps_is_told_from_one_that_it_changes(name):
    assert kept_by_parser(name, frozenset((1, 2))) is None
    assert kept_by_parser("log2", frozenset((1,))) == ("select log2(x)", "SELECT LOG(2, x)")


def test_aggregates_are_those_of_the_engine():
    assert {"sum", "product", "json_group_array", "geometric_mean", "wavg"} <= aggregates()
    assert not aggregates() & {"abs", "list_sum", "row_number"}
    assert isinstance(table(), pa.Table)
