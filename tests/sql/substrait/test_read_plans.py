"""What each piece of a plan means, shown by the statement that it becomes and by the rows of that."""

import base64
import subprocess
import sys
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.narrowing import with_columns
from ballista_py.sql.substrait.reading import columns_of, read_plan

ARITHMETIC = "https://github.com/substrait-io/substrait/blob/main/extensions/functions_arithmetic.yaml"
ROWS = [(1, 10, 1.5, "x", True), (2, None, -0.0, "y", False), (3, 30, None, None, None), (4, 40, 9.0, "x", True)]


@pytest.fixture
def rows(made):
    """What a plan gives over four rows, after checking its types."""
    connection = duckdb.connect()
    columns = zip(*ROWS, strict=True)
    given = pa.table(
        [pa.array(one, kind) for one, kind in zip(columns, made.schema.types, strict=True)], made.schema
    )
    connection.register("given", given)
    connection.execute("create table t as select * from given")

    def run(data):
        query = read_plan(data, made.schemas)
        found = connection.sql(query.sql).to_arrow_table()
        assert (found.schema.names, found.schema.types) == (query.schema.names, query.schema.types)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    yield run
    connection.close()


def one(made, rows, expression, functions=(), origin=None):
    """The values of an expression over the four rows."""
    return [row[0] for row in rows(made.plan(made.project(expression), ["z"], functions, origin))]


def i32(value):
    return {"literal": {"i32": value}}


def cast(made, place, kind, behaviour):
    return {
        "cast": {
            "type": {kind: {}},
            "input": made.field(place),
            "failureBehavior": f"FAILURE_BEHAVIOR_{behaviour}",
        }
    }


def fetch(below, **how):
    return {"fetch": {"input": below, **how}}


def sort(below, key, direction="ASC_NULLS_LAST"):
    return {"sort": {"input": below, "sorts": [{"expr": key, "direction": f"SORT_DIRECTION_{direction}"}]}}


def test_compound_names_of_an_extension_of_substrait_are_read(made, rows):
    added = made.call(0, made.field(0), made.i64(5), gives="i64")
    assert one(made, rows, added, ["add:i64_i64"], ARITHMETIC) == [6, 7, 8, 9]
    assert one(made, rows, added, ["add"], "/functions_arithmetic.yaml") == [6, 7, 8, 9]


def test_extensions_by_their_urn_are_read(made, rows):
    added = made.call(0, made.field(0), made.i64(5), gives="i64")
    urn = b"extension:io.substrait:functions_arithmetic"
    declared = b"\x1a\x0badd:i64_i64\x20\x07"  # its name, and field 4: the anchor of its URN
    extension = b"\x1a" + bytes([len(declared)]) + declared
    said = b"\x08\x07\x12" + bytes([len(urn)]) + urn
    data = b"\x12" + bytes([len(extension)]) + extension + b"\x42" + bytes([len(said)]) + said
    bare = made.plan(made.project(added), ["z"], [])
    assert rows(data + bare) == [(6,), (7,), (8,), (9,)]
    strange = (data + bare).replace(b"io.substrait", b"com.anybody!")
    with pytest.raises(UnsupportedExpression, match=r"com\.anybody"):
        read_plan(strange, made.schemas)
    with pytest.raises(InvalidData, match="no extension"):
        read_plan(data.replace(b"\x20\x07", b"\x20\x08") + bare, made.schemas)


def test_a_name_of_somebodys_own_extension_says_nothing(made):
    data = made.plan(
        made.project(made.call(0, made.field(0), made.i64(5), gives="i64")), ["z"], ["add"], "acme:math"
    )
    with pytest.raises(UnsupportedExpression, match="'add' of 'acme:math'"):
        read_plan(data, made.schemas)


@pytest.mark.parametrize(("preference", "taken"), [("ERROR", True), ("SILENT", False), ("SATURATE", False)])
def test_an_option_that_the_engine_does_not_follow_is_refused(preference, taken, made, rows):
    option = [{"name": "overflow", "preference": [preference]}]
    added = made.call(0, made.field(0), made.i64(5), gives="i64", options=option)
    if taken:
        assert one(made, rows, added, ["add:i64_i64"], ARITHMETIC) == [6, 7, 8, 9]
    else:
        with pytest.raises(UnsupportedExpression, match="overflow"):
            one(made, rows, added, ["add:i64_i64"], ARITHMETIC)


def test_a_function_is_what_the_plan_says_that_it_gives_or_refused(made, rows):
    assert one(made, rows, made.call(0, made.field(0), made.field(0), gives="i32"), ["add"]) == [2, 4, 6, 8]
    with pytest.raises(UnsupportedExpression, match="takes it for fp64"):
        one(made, rows, made.call(0, made.field(0), made.i64(2), gives="fp64"), ["divide"])


def test_whole_numbers_are_divided_to_whole_numbers_towards_zero(made, rows):
    negative = made.call(1, made.field(0), gives="i64")
    assert one(made, rows, made.call(0, negative, made.i64(2), gives="i64"), ["divide", "negate"]) == [
        0,
        -1,
        -1,
        -2,
    ]
    assert one(made, rows, made.call(0, negative, made.i64(2), gives="i64"), ["modulus", "negate"]) == [
        -1,
        0,
        -1,
        0,
    ]


def test_null_is_neither_equal_nor_not_but_may_be_told_apart(made, rows):
    assert one(made, rows, made.call(0, made.field(1), i32(10)), ["equal"]) == [True, None, False, False]
    null = {"literal": {"null": {"i32": {}}}}
    assert one(made, rows, made.call(0, made.field(1), null), ["is_not_distinct_from"]) == [
        False,
        True,
        False,
        False,
    ]
    assert one(made, rows, made.call(0, made.field(1), null), ["is_distinct_from"]) == [True, False, True, True]


def test_not_binds_as_the_plan_nests_it(made, rows):
    both = made.call(1, made.call(2, made.field(4)), made.call(0, made.field(0), made.i64(2)))
    assert one(made, rows, made.call(2, both), ["equal", "or", "not"]) == [True, False, None, True]
    choice = made.call(1, made.field(4), made.call(3, made.field(4), made.call(0, made.field(0), made.i64(3))))
    assert one(made, rows, choice, ["equal", "and", "not", "or"]) == [True, False, None, True]


def test_casts_that_fail_give_what_the_plan_says(made, rows):
    assert one(made, rows, cast(made, 3, "fp64", "RETURN_NULL")) == [None] * 4
    with pytest.raises(duckdb.Error):
        one(made, rows, cast(made, 3, "fp64", "THROW_EXCEPTION"))
    with pytest.raises(duckdb.Error):
        one(made, rows, cast(made, 3, "fp64", "UNSPECIFIED"))


@pytest.mark.parametrize(("place", "kind"), [(2, "i64"), (2, "string"), (3, "i32"), (4, "fp64"), (0, "date")])
def test_casts_that_are_done_in_several_ways_are_refused(place, kind, made):
    data = made.plan(made.project(cast(made, place, kind, "RETURN_NULL")), ["z"])
    with pytest.raises(UnsupportedExpression, match="several ways"):
        read_plan(data, made.schemas)


def test_a_switch_compares_and_a_choice_without_else_is_null(made, rows):
    ifs = [{"if": {"string": "x"}, "then": made.i64(1)}, {"if": {"string": "y"}, "then": made.i64(2)}]
    assert one(made, rows, {"switchExpression": {"match": made.field(3), "ifs": ifs}}) == [1, 2, None, 1]
    chosen = {"ifThen": {"ifs": [{"if": made.field(4), "then": made.field(0)}], "else": made.i64(-1)}}
    assert one(made, rows, chosen) == [1, -1, -1, 4]


def test_a_list_holds_a_value_or_does_not_or_nobody_knows(made, rows):
    options = [i32(10), {"literal": {"null": {"i32": {}}}}]
    assert one(made, rows, {"singularOrList": {"value": made.field(1), "options": options}}) == [
        True,
        None,
        None,
        None,
    ]


def test_columns_go_by_their_names_in_whatever_order_the_plan_has_them(made, rows):
    base = {"names": ["S", "a"], "struct": {"types": [{"string": {}}, {"i64": {}}]}}
    read = made.read(baseSchema=base)
    assert rows(made.plan(read, ["p", "q"])) == [("x", 1), ("y", 2), (None, 3), ("x", 4)]


@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        (["a"], {"i32": {}}, "is i64"),
        (["nothing"], {"i64": {}}, "no column"),
        (["a", "b"], {"i64": {}}, "more names"),
    ],
)
def test_columns_that_do_not_fit_the_table_are_told(names, kind, said, made):
    data = made.plan(made.read(baseSchema={"names": names, "struct": {"types": [kind]}}), ["z"])
    with pytest.raises(InvalidData, match=said):
        read_plan(data, made.schemas)


def test_a_mask_then_an_emit_choose_among_the_columns(made, rows):
    mask = {"select": {"structItems": [{"field": 3}, {"field": 0}]}}
    read = made.read(projection=mask, common={"emit": {"outputMapping": [1, 0, 1]}})
    assert rows(made.plan(read, ["p", "q", "r"])) == [(1, "x", 1), (2, "y", 2), (3, None, 3), (4, "x", 4)]


def test_filters_of_a_read_are_over_all_columns_of_the_table(made, rows):
    mask = {"select": {"structItems": [{"field": 3}]}}
    read = made.read(
        projection=mask,
        filter=made.call(0, made.field(0), made.i64(1)),
        bestEffortFilter=made.call(1, made.field(0), made.i64(4)),
    )
    data = made.plan(read, ["s"], ["gt", "lt"])
    assert rows(data) == [("y",), (None,)]
    query = read_plan(data, made.schemas)
    assert (query.filter, query.columns) == ('"a" > 1 AND "a" < 4', ("a", "s"))
    narrow = with_columns(data, ["s", "a"])
    held = pa.schema([("s", pa.string()), ("a", pa.int64())])
    assert read_plan(narrow, {"t": held}).filter == '"a" > 1 AND "a" < 4'


def test_an_order_is_kept_through_projections_and_filters(made, rows):
    sorted_ = sort(made.read(), made.field(0), "DESC_NULLS_FIRST")
    doubled = made.project(made.call(0, made.field(0), made.field(0), gives="i64"), below=sorted_)
    some = {"filter": {"input": doubled, "condition": made.call(1, made.field(0), made.i64(2))}}
    assert rows(made.plan(some, ["z"], ["add", "gt"])) == [(8,), (6,), (4,)]
    cut = {"filter": {"input": fetch(sorted_, count=3), "condition": made.call(1, made.field(0), made.i64(2))}}
    assert [row[0] for row in rows(made.plan(cut, made.schema.names, ["add", "gt"]))] == [4, 3]


def test_a_filter_above_a_cut_comes_after_it(made, rows):
    first = fetch(sort(made.read(), made.field(0)), count=2)
    some = {"filter": {"input": first, "condition": made.call(0, made.field(0), made.i64(1))}}
    assert [row[0] for row in rows(made.plan(some, made.schema.names, ["gt"]))] == [2]
    again = fetch(fetch(sort(made.read(), made.field(0)), count=3, offset=1), count=5, offset=1)
    assert [row[0] for row in rows(made.plan(again, made.schema.names))] == [3, 4]
    resorted = sort(first, made.field(0), "DESC_NULLS_LAST")
    assert [row[0] for row in rows(made.plan(resorted, made.schema.names))] == [2, 1]


def measure(anchor, *values, gives="i64", **more):
    arguments = [{"value": value} for value in values]
    function = {"functionReference": anchor, "arguments": arguments, "outputType": {gives: {}}}
    return {"measure": function | {key: more.pop(key) for key in ("invocation", "phase") if key in more}, **more}


def test_aggregates_of_all_rows_of_groups_of_some_and_of_distinct_ones(made, rows):
    measures = [
        measure(0),
        measure(0, made.field(3)),
        measure(0, made.field(3), invocation="AGGREGATION_INVOCATION_DISTINCT"),
        measure(1, made.field(0), filter=made.field(4)),
        measure(0, made.i64(1), invocation="AGGREGATION_INVOCATION_DISTINCT"),
    ]
    relation = {"aggregate": {"input": made.read(), "groupings": [{}], "measures": measures}}
    assert rows(made.plan(relation, list("vwxyz"), ["count", "sum"])) == [(4, 3, 2, 5, 1)]
    keyed = {"aggregate": {"input": made.read(), "groupings": [{"expressionReferences": [0]}], "measures": measures[:1],
                           "groupingExpressions": [made.field(3)]}}  # fmt: skip
    assert sorted(rows(made.plan(keyed, ["s", "n"], ["count", "sum"])), key=repr) == [
        ("x", 2),
        ("y", 1),
        (None, 1),
    ]


def test_groups_by_a_constant_are_one_group_and_none_without_rows(made, rows):
    grouping = [{"groupingExpressions": [i32(7)]}]
    relation = {"aggregate": {"input": made.read(), "groupings": grouping, "measures": [measure(0)]}}
    assert rows(made.plan(relation, ["k", "n"], ["count"])) == [(7, 4)]
    none = {"filter": {"input": made.read(), "condition": {"literal": {"boolean": False}}}}
    relation["aggregate"]["input"] = none
    assert rows(made.plan(relation, ["k", "n"], ["count"])) == []


def test_counting_the_one_row_of_an_aggregate_counts_one(made, rows):
    inner = {"aggregate": {"input": made.read(), "groupings": [{}], "measures": [measure(0)]}}
    outer = {"aggregate": {"input": inner, "groupings": [{}], "measures": [measure(0)]}}
    assert rows(made.plan(outer, ["n"], ["count"])) == [(1,)]
    limited = {"aggregate": {"input": fetch(made.read(), count=3), "groupings": [{}], "measures": [measure(0)]}}
    assert rows(made.plan(limited, ["n"], ["count"])) == [(3,)]
    assert columns_of(made.plan(limited, ["n"], ["count"]), made.schema) == ("a",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phase": "AGGREGATION_PHASE_INITIAL_TO_INTERMEDIATE"}, "parts of aggregates"),
        ({"gives": "string"}, "takes it for string"),
    ],
)
def test_what_is_no_whole_aggregate_is_refused(change, said, made):
    relation = {
        "aggregate": {"input": made.read(), "groupings": [{}], "measures": [measure(0, made.field(0), **change)]}
    }
    with pytest.raises(UnsupportedExpression, match=said):
        read_plan(made.plan(relation, ["n"], ["sum"]), made.schemas)


def test_a_consistent_partition_window_adds_its_functions_to_the_columns(made, rows):
    function = {
        "functionReference": 0, "arguments": [{"value": made.field(0)}], "outputType": {"i64": {}},
        "boundsType": "BOUNDS_TYPE_ROWS", "lowerBound": {"preceding": {"offset": 1}}, "upperBound": {"currentRow": {}},
    }  # fmt: skip
    numbered = {"functionReference": 1, "outputType": {"i32": {}}}
    window = {
        "window": {
            "input": made.read(), "windowFunctions": [function, numbered], "partitionExpressions": [made.field(3)],
            "sorts": [{"expr": made.field(0), "direction": "SORT_DIRECTION_DESC_NULLS_LAST"}],
            "common": {"emit": {"outputMapping": [0, 5, 6]}},
        }
    }  # fmt: skip
    found = rows(made.plan(window, ["a", "z", "r"], ["sum", "row_number"]))
    assert sorted(found) == [(1, 5, 2), (2, 2, 1), (3, 3, 1), (4, 4, 1)]


@pytest.mark.parametrize(
    "kind", ["join", "cross", "set", "extensionLeaf", "write", "hashJoin", "expand", "exchange"]
)
def test_a_relation_that_is_not_taken_is_named(kind, made):
    plain = "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind)
    with pytest.raises(UnsupportedExpression, match=f"'{plain}' is not taken: possible are read, filter"):
        read_plan(made.plan({kind: {}}, ["z"]), made.schemas)


def test_a_table_that_is_not_here_is_named(made):
    data = made.plan(made.read(namedTable={"names": ["far", "away"]}), made.schema.names)
    with pytest.raises(UnsupportedExpression, match=r"'far\.away'"):
        read_plan(data, made.schemas)
    assert read_plan(data, {"far.away": made.schema}).table == "far.away"


def test_names_are_those_of_the_root_even_if_two_are_equal_or_odd(made):
    query = read_plan(made.plan(made.read(), ["a", "a", 'q"uote', "sel ect", "ü"]), made.schemas)
    assert query.names == ("a", "a", 'q"uote', "sel ect", "ü")
    assert duckdb.sql(f"with t(a, b, x, s, o) as (values (1, 2, 3.0, 's', true)) {query.sql}").fetchall()
    for wrong in (["a"], ["a"] * 6, ["", "b", "c", "d", "e"], ["a\0", "b", "c", "d", "e"]):
        with pytest.raises(InvalidData, match="name"):
            read_plan(made.plan(made.read(), wrong), made.schemas)


@pytest.mark.parametrize("pattern", ["a%", "_b"])
def test_a_pattern_without_a_backslash_means_one_thing(pattern, made, rows):
    liked = made.call(0, made.field(3), {"literal": {"string": pattern}})
    assert one(made, rows, liked, ["like"]) == [False, False, None, False]
    for other in ({"literal": {"string": "a\\%"}}, made.field(3)):
        with pytest.raises(UnsupportedExpression, match="backslash"):
            one(made, rows, made.call(0, made.field(3), other), ["like"])


def test_texts_are_no_way_out_of_the_statement(made, rows):
    text = "it's\"; DROP TABLE t; -- \\' \n ü 🙂 %s $1 ?"
    assert one(made, rows, {"literal": {"string": text}}) == [text] * 4


@pytest.mark.parametrize("columns", [["a", "a"], ["nothing"], ["a", "A"]])
def test_a_plan_is_narrowed_to_its_own_columns_each_once(columns, made):
    with pytest.raises(InvalidData, match="narrowed"):
        with_columns(made.plan(made.read(), made.schema.names), columns)


def test_narrowing_keeps_what_it_does_not_know(made):
    data = made.plan(made.read(), made.schema.names) + b"\x42\x05\x08\x07\x12\x01u"
    assert b"\x42\x05\x08\x07\x12\x01u" in with_columns(data, ["a"])


WITHOUT = """
import sys
from decimal import Decimal

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "substrait":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Bare())
from ballista_py.errors import MissingExtra
from ballista_py.sql.substrait.reading import read_plan
import ballista_py.sql.substrait.narrowing, ballista_py.sql.substrait.writing
assert not [name for name in sys.modules if name.startswith("google.protobuf")]
try:
    read_plan(b"", {})
except MissingExtra as error:
    print(error)
"""


def test_messages_are_loaded_at_the_first_use_and_their_absence_says_what_to_install():
    said = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert said.stdout == "substrait is not installed. Run: pip install 'ballista_py[node]'\n"


def test_a_decimal_loses_no_digits_on_the_way_to_what_the_plan_says(made, rows):
    def decimal(value, precision, scale):
        data = base64.b64encode(value.to_bytes(16, "little", signed=True)).decode()
        return {"literal": {"decimal": {"value": data, "precision": precision, "scale": scale}}}

    values = (decimal(-125, 4, 2), decimal(3, 3, 1))
    for scale, kind in ((2, UnsupportedExpression), (3, None), (4, None)):
        product = made.call(0, *values, gives="decimal")
        product["scalarFunction"]["outputType"] = {"decimal": {"precision": 12, "scale": scale}}
        if kind is None:
            assert one(made, rows, product, ["multiply"]) == [Decimal("-0.375")] * 4
        else:
            with pytest.raises(kind, match="takes it for"):
                one(made, rows, product, ["multiply"])


def test_nulls_come_where_the_plan_says(made, rows):
    for direction, wanted in (
        ("ASC_NULLS_FIRST", [None, 10, 30, 40]),
        ("ASC_NULLS_LAST", [10, 30, 40, None]),
        ("DESC_NULLS_FIRST", [None, 40, 30, 10]),
        ("DESC_NULLS_LAST", [40, 30, 10, None]),
    ):
        relation = made.project(made.field(1), below=sort(made.read(), made.field(1), direction))
        assert [row[0] for row in rows(made.plan(relation, ["b"]))] == wanted


def test_groups_are_of_the_rows_that_a_filter_leaves(made, rows):
    some = {"filter": {"input": made.read(), "condition": made.call(0, made.field(0), made.i64(2))}}
    relation = {"aggregate": {"input": some, "groupings": [{}], "measures": [measure(1)]}}
    assert rows(made.plan(relation, ["n"], ["gt", "count"])) == [(2,)]


def test_a_column_of_a_type_of_somebodys_own_may_be_given_and_no_more(made, rows):
    base = {"names": ["a", "s"], "struct": {"types": [{"userDefined": {"typeReference": 3}}, {"string": {}}]}}
    read = made.read(baseSchema=base)
    assert rows(made.plan(read, ["p", "q"])) == [(1, "x"), (2, "y"), (3, None), (4, "x")]
    asked = {"filter": {"input": read, "condition": made.call(0, made.field(0), made.i64(1))}}
    with pytest.raises(UnsupportedExpression, match="somebody's own"):
        read_plan(made.plan(asked, ["p", "q"]), made.schemas)
