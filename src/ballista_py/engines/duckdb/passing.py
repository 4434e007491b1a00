"""Which rows of its only table a statement looks at, where that can be told without running it.

Whether somebody has looked at every function and type of the DuckDB that is installed: others are not started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson

from ballista_py.engines.apart.steady import is_plain_condition
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import ConfigError
from ballista_py.sql.bind.engine_functions import engine_functions


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


_MAX_NAMED = 5
_CATALOG = """
    select lower(function_name), function_type from duckdb_functions() where internal
    union select lower(type_name), 'type' from duckdb_types() where database_name = 'system'
"""


@lru_cache(maxsize=1)
def require_reviewed() -> None:
    """Raise `ConfigError` if the installed DuckDB has functions or types that are not on the reviewed list."""
    known = {(one.name, one.kind) for one in engine_functions()}
    with duckdb.connect(":memory:") as connection:
        rows: list[tuple[str, Any]] = connection.execute(_CATALOG).fetchall()
    require_known(sorted(name for name, kind in rows if (name, kind) not in known), duckdb.__version__)


def require_known(names: Sequence[str], version: str) -> None:
    """Raise `ConfigError` if there are `names` that nobody has reviewed, in that version of DuckDB.

    >>> require_known([], "2.0.0")
    """
    if names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        raise ConfigError(
            f"DuckDB {version} has functions that are not reviewed here: {', '.join(names[:_MAX_NAMED])}{more}. "
            "Install the DuckDB that this release asks for, or a newer release of ballista_py"
        )
