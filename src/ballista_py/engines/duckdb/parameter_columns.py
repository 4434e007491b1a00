"""What DuckDB calls the columns that a query computes from its parameters."""

from __future__ import annotations

from typing import Any

import orjson

from ballista_py.engines.duckdb.library import duckdb

_SERIALIZE = "select json_serialize_sql(?)"
_WRITE = "select json_deserialize_sql(?)"
_SELECT = "SELECT "
MAX_NAMED = 64  # columns of one query: each is written out by itself
MAX_CHARACTERS = 1 << 16  # of a query: its tree is some fifty times as large
_MAX_SETS = 200  # of UNION and the like, in each other
# What is more than one column, named by others.
_SEVERAL = frozenset(("STAR", "unnest"))
# Of the block that an item stands in nothing changes what it is called.
_ALONE: dict[str, Any] = {
    "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0},
    "where_clause": None,
    "group_expressions": [],
    "group_sets": [],
    "having": None,
    "qualify": None,
    "modifiers": [],
    "sample": None,
    "cte_map": {"map": []},
    "aggregate_handling": "STANDARD_HANDLING",
}


def parameter_columns(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[str | None, ...]:
    """For each item of the list that names the columns of a query: its name, if it has a parameter and no other name.

    Nothing is bound or run. An empty tuple stands for a text that is no query, has no such list, is very long or has
    a list of very many such items: their columns are named after what is bound.

    >>> parameter_columns(duckdb.connect(), "select a, ? + 1, ? as c from t")
    (None, '($1 + 1)', None)
    """
    if len(sql) > MAX_CHARACTERS:
        return ()
    found = _json(connection, _SERIALIZE, sql)
    statements: list[Any] = found.get("statements") or []
    if len(statements) != 1:
        return ()
    statement = statements[0]
    block = _naming_block(statement["node"])
    if block is None:
        return ()
    named = [_needs_name(item) for item in block["select_list"]]
    if sum(named) > MAX_NAMED:
        return ()
    items = zip(block["select_list"], named, strict=True)
    return tuple(_name(connection, statement, block, item) if needed else None for item, needed in items)


def _naming_block(node: dict[str, Any]) -> dict[str, Any] | None:
    for _ in range(_MAX_SETS):
        if node["type"] != "SET_OPERATION_NODE":
            return node if node["type"] == "SELECT_NODE" else None
        inner = node.get("left") or next(iter(node.get("children") or ()), None)
        if inner is None:
            return None
        node = inner
    return None


def _name(
    connection: duckdb.DuckDBPyConnection, statement: dict[str, Any], block: dict[str, Any], item: dict[str, Any]
) -> str | None:
    alone = {**statement, "node": {**block, **_ALONE, "select_list": [item]}}
    row = _row(connection, _WRITE, orjson.dumps({"error": False, "statements": [alone]}).decode())
    written = row if isinstance(row, str) else ""
    return written.removeprefix(_SELECT) if written.startswith(_SELECT) else None


def _needs_name(item: dict[str, Any]) -> bool:
    kinds = _kinds(item)
    return not item.get("alias") and "PARAMETER" in kinds and kinds.isdisjoint(_SEVERAL)


def _kinds(item: Any) -> set[Any]:
    """The kinds of all pieces of an item, and the functions that it calls."""
    kinds, left = set(), [item]
    while left:
        piece = left.pop()
        if isinstance(piece, dict):
            kinds |= {piece.get("class"), piece.get("function_name")}
            left += piece.values()
        elif isinstance(piece, list):
            left += piece
    return kinds


def _json(connection: duckdb.DuckDBPyConnection, query: str, text: str) -> dict[str, Any]:
    row = _row(connection, query, text)
    try:
        found: dict[str, Any] = orjson.loads(row) if isinstance(row, str) else {}
    except orjson.JSONDecodeError:  # a constant that JSON has no word for, or too deep
        return {}
    return found


def _row(connection: duckdb.DuckDBPyConnection, query: str, text: str) -> object:
    with connection.cursor() as cursor:
        try:
            row = cursor.execute(query, [text]).fetchone()
        except duckdb.Error:  # what DuckDB cannot write down has the name that it would have without parameters
            return None
    return None if row is None else row[0]


__all__ = ["MAX_CHARACTERS", "MAX_NAMED", "parameter_columns"]
