"""Which rows of its only table a statement looks at, where that can be told without running it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from ballista_py.engines.apart.steady import is_plain_condition
from ballista_py.engines.duckdb.library import duckdb


def passing(
    connection: duckdb.DuckDBPyConnection, parse: Callable[[str], list[Any]], sql: str, wanted: str
) -> str | None:
    """A statement that gives the column `wanted` of just those rows of its only source that `sql` looks at.

    None where `sql` has several sources, or says it by more than comparisons with constants.
    """
    node = parse(sql)[0].get("node", {})
    source, where = node.get("from_table", {}), node.get("where_clause")
    if node.get("type") != "SELECT_NODE" or source.get("type") != "BASE_TABLE":
        return None
    if node.get("cte_map", {}).get("map") or "sample" in node or "sample" in source:
        return None
    if where is not None and not is_plain_condition(where):
        return None
    (made,) = parse(f'select "{wanted}" from t')
    made["node"]["from_table"] = source
    if where is not None:
        made["node"]["where_clause"] = where
    tree = orjson.dumps({"error": False, "statements": [made]}).decode()
    with connection.cursor() as cursor, suppress(duckdb.Error):
        row = cursor.execute("select json_deserialize_sql(?::json)", [tree]).fetchone()
        return str(row[0]) if row else None
    return None
