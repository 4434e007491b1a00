"""The pieces of a statement, as DuckDB's parser writes them down, that a client may use, and what each may hold.

A piece, a kind of it, or a field of it that is not here is refused by name: a release that learns another clause
changes nothing until somebody has looked at it.
"""

from __future__ import annotations

from typing import Any

_AT = frozenset(("type", "query_location", "query_location_length", "alias"))


def _fields(*names: str) -> frozenset[str]:
    return _AT | frozenset(names)


# Expressions, by their class: their kinds, and their fields.
EXPRESSIONS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "BETWEEN": (frozenset(("COMPARE_BETWEEN", "COMPARE_NOT_BETWEEN")), _fields("class", "input", "lower", "upper")),
    "CASE": (frozenset(("CASE_EXPR",)), _fields("class", "case_checks", "else_expr")),
    "CAST": (frozenset(("OPERATOR_CAST",)), _fields("class", "child", "try_cast", "type_expr")),
    "COLLATE": (frozenset(("COLLATE",)), _fields("class", "child", "collation")),
    "COLUMN_REF": (frozenset(("COLUMN_REF",)), _fields("class", "column_names")),
    "COMPARISON": (
        frozenset((
            "COMPARE_DISTINCT_FROM", "COMPARE_EQUAL", "COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO",
            "COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_NOTEQUAL", "COMPARE_NOT_DISTINCT_FROM",
        )),
        _fields("class", "left", "right"),
    ),
    "CONJUNCTION": (frozenset(("CONJUNCTION_AND", "CONJUNCTION_OR")), _fields("class", "children")),
    "CONSTANT": (frozenset(("VALUE_CONSTANT",)), _fields("class", "literal", "value")),
    "FUNCTION": (
        frozenset(("FUNCTION",)),
        _fields(
            "class", "arguments", "catalog", "distinct", "filter", "function_name", "is_operator", "order_bys",
            "qualified_name", "schema",
        ),
    ),
    "LAMBDA": (frozenset(("LAMBDA",)), _fields("class", "expr", "lhs", "syntax_type")),
    "OPERATOR": (
        frozenset((
            "ARRAY_CONSTRUCTOR", "ARRAY_EXTRACT", "ARRAY_SLICE", "COMPARE_IN", "COMPARE_NOT_IN", "GROUPING_FUNCTION",
            "OPERATOR_COALESCE", "OPERATOR_IS_NOT_NULL", "OPERATOR_IS_NULL", "OPERATOR_NOT", "OPERATOR_TRY",
            "OPERATOR_UNPACK", "STRUCT_EXTRACT",
        )),
        _fields("class", "children"),
    ),
    "POSITIONAL_REFERENCE": (frozenset(("POSITIONAL_REFERENCE",)), _fields("class", "index")),
    "STAR": (
        frozenset(("STAR",)),
        _fields(
            "class", "columns", "exclude_list", "expr", "qualified_exclude_list", "relation_name", "rename_list",
            "replace_list",
        ),
    ),
    "SUBQUERY": (
        frozenset(("SUBQUERY",)),
        _fields("class", "child", "comparison_type", "subquery", "subquery_type"),
    ),
    "TYPE": (frozenset(("TYPE",)), _fields("class", "children", "qualified_name", "type_name")),
    "WINDOW": (
        frozenset((
            "WINDOW_AGGREGATE", "WINDOW_CUME_DIST", "WINDOW_FILL", "WINDOW_FIRST_VALUE", "WINDOW_LAG",
            "WINDOW_LAST_VALUE", "WINDOW_LEAD", "WINDOW_NTH_VALUE", "WINDOW_NTILE", "WINDOW_PERCENT_RANK",
            "WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_ROW_NUMBER",
        )),
        _fields(
            "class", "arg_orders", "arguments", "catalog", "default_expr", "distinct", "end", "end_expr",
            "exclude_clause", "filter_expr", "function_name", "has_ignore_nulls", "ignore_nulls", "offset_expr",
            "orders", "partitions", "qualified_name", "schema", "start", "start_expr",
        ),
    ),
}  # fmt: skip

# Queries, what they read from, and what changes their rows, by their type: their fields.
QUERIES: dict[str, frozenset[str]] = {
    "SELECT_NODE": _fields(
        "aggregate_handling", "cte_map", "from_table", "group_expressions", "group_sets", "having", "modifiers",
        "qualify", "sample", "select_list", "where_clause",
    ),
    "SET_OPERATION_NODE": _fields("children", "cte_map", "modifiers", "setop_all", "setop_type"),
    "RECURSIVE_CTE_NODE": _fields(
        "aliases", "cte_map", "cte_name", "key_targets", "left", "modifiers", "right", "union_all"
    ),
    "BASE_TABLE": _fields("column_name_alias", "qualified_name", "sample", "table_name"),
    "SUBQUERY": _fields("column_name_alias", "sample", "subquery"),
    "JOIN": _fields("condition", "is_implicit", "join_type", "left", "ref_type", "right", "sample", "using_columns"),
    "TABLE_FUNCTION": _fields("column_name_alias", "function", "sample", "with_ordinality"),
    "EXPRESSION_LIST": _fields("column_name_alias", "expected_names", "sample", "values"),
    "EMPTY": _fields(),
    "PIVOT": _fields(
        "aggregates", "column_name_alias", "groups", "include_nulls", "pivots", "sample", "source", "unpivot_names"
    ),
    "SHOW_REF": _fields("qualified_name", "query", "show_type", "table_name"),
    "ORDER_MODIFIER": _fields("orders"),
    "LIMIT_MODIFIER": _fields("limit", "limit_type", "offset"),
    "DISTINCT_MODIFIER": _fields("distinct_on_targets"),
    "ORDER_DEFAULT": _fields("expression", "null_order"),
    "ASCENDING": _fields("expression", "null_order"),
    "DESCENDING": _fields("expression", "null_order"),
}  # fmt: skip

# What has neither a class nor a type: an argument, an entry of a list, a literal.
PLAIN = frozenset((
    "aliases", "case_checks", "column", "entries", "expression", "id", "is_null", "is_percentage", "key",
    "key_targets", "kind", "map", "materialized", "method", "name", "named_param_map", "node", "path",
    "pivot_expressions", "query_node", "repeatable", "sample_size", "seed", "star_expr", "table", "text", "then_expr",
    "type", "unpivot_names", "value", "when_expr", "subquery",
))  # fmt: skip


def unknown_piece(element: dict[str, Any]) -> str | None:
    """What of a piece of a statement is not on the lists, in words; None for a piece that is.

    >>> unknown_piece({"class": "LAMBDA", "type": "LAMBDA", "expr": {}}) is None
    True
    >>> unknown_piece({"type": "BASE_TABLE", "table_name": "t", "at_clause": {}})
    'at clause of base table'
    """
    kind = element.get("type")
    if "class" in element:
        known = EXPRESSIONS.get(str(element["class"]))
        if known is None or kind not in known[0]:
            return _words(str(kind))
        fields = known[1]
    elif isinstance(kind, str):
        if kind not in QUERIES:
            return _words(kind)
        fields = QUERIES[kind]
    else:
        fields = PLAIN
    if element.keys() <= fields:
        return None
    field = min(element.keys() - fields)
    return f"{_words(field)} of {_words(kind)}" if isinstance(kind, str) else _words(field)


def _words(name: str) -> str:
    return name.lower().replace("_", " ")
