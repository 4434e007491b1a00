"""What user SQL may reach: a single SELECT over the relations of the query, and nothing else of the process.

DuckDB's own parser reads the statement (another parser could be made to see another statement than the one that
runs), and its syntax tree is checked against lists of what is allowed, so that a construct of a newer release is
refused until somebody has looked at it. This is the first of two walls: behind it the database itself has no
access to files and network.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from attrs import field, frozen

from ballista_py.engines.duckdb_errors import error_at, one_line
from ballista_py.engines.duckdb_library import duckdb
from ballista_py.errors import SqlError
from ballista_py.planning.statement_shape import shape_of

_QUERY_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_SOURCES = {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF"}
_MODIFIERS = {"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"}
_ORDERS = {"ORDER_DEFAULT", "ASCENDING", "DESCENDING"}
_ALLOWED_KINDS = _QUERY_NODES | _SOURCES | _MODIFIERS | _ORDERS
_TABLE_FUNCTIONS = {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
_REFUSED_FUNCTIONS = {
    "current_setting",
    "currval",
    "getenv",
    "getvariable",
    "json_serialize_plan",
    "nextval",
    "pg_sleep",
    "set_config",
    "write_log",
}
_REMEMBERED_STATEMENTS = 512
_MAX_REMEMBERED_CHARACTERS = 1 << 16
_SERIALIZE = "select json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"


@frozen(kw_only=True)
class Statement:
    """A SELECT that passed: the relations that it surely scans one time (`once`), and the others that it reads."""

    once: frozenset[str]
    many: frozenset[str]

    @property
    def relations(self) -> frozenset[str]:
        return self.once | self.many


@frozen
class _Text:
    """A statement that is equal to others of its shape: what they may reach does not depend on what they compare with.

    A constant on the right of a comparison is never the name of anything, and the parser sees the same tree whatever
    its value is.
    """

    key: str
    has_shape: bool
    sql: str = field(eq=False)

    @classmethod
    def of(cls, sql: str) -> _Text:
        shape = shape_of(sql)
        return cls(sql if shape is None else shape.key, shape is not None, sql)


class Guard:
    """Checks statements; what passed is remembered, so that a repeated one, or one that differs only in the constants
    it compares with, costs nothing. Safe to share.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._remembered = lru_cache(maxsize=_REMEMBERED_STATEMENTS)(lambda text: self._inspect(text.sql))

    def check(self, sql: str, relations: Collection[str]) -> Statement:
        """What `sql` reads, if it is one SELECT over `relations` alone.

        Raises `SqlError`, with the position where there is one, for everything else.
        """
        found = self._remembered(_Text.of(sql)) if len(sql) <= _MAX_REMEMBERED_CHARACTERS else self._inspect(sql)
        known = {name.lower(): name for name in relations}
        if not found.offsets.keys() <= known.keys() | found.ctes.keys():
            for name, offset in self._inspect(sql).offsets.items():  # one of the same shape has it elsewhere
                if name not in known and name not in found.ctes:
                    raise error_at(sql, offset, f"Table '{name}' does not exist")
        read = {name for name in found.offsets if name in known}
        once = {name for name in read if found.scanned_once(name)}
        return Statement(
            once=frozenset(known[name] for name in once), many=frozenset(known[name] for name in read - once)
        )

    def _inspect(self, sql: str) -> _Mentions:
        statements = self._parse(sql)
        if len(statements) != 1:
            raise SqlError(f"{len(statements)} statements were given: one SELECT at a time can be run")
        mentions = _Mentions()
        pending: list[_Place] = [(statements[0], None, False)]
        while pending:
            element, home, repeatable = pending.pop()
            if isinstance(element, list):
                pending.extend((item, home, repeatable) for item in element)
            elif isinstance(element, dict):
                _check(sql, element)
                pending.extend(mentions.visit(element, home, repeatable))
        return mentions

    def _parse(self, sql: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            try:
                row = cursor.execute(_SERIALIZE, [sql]).fetchone()
            except (duckdb.Error, UnicodeError):
                raise SqlError("The statement cannot be read") from None
        tree: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
        if not tree["error"]:
            return list(tree["statements"])
        message = one_line(str(tree.get("error_message", "The statement cannot be read")))
        if "can be serialized" in message:
            raise SqlError("Only one SELECT can be run here (a PIVOT needs its IN list)")
        raise error_at(
            sql, int(tree["position"]) if tree.get("position") else None, message[:1].upper() + message[1:]
        )


_Place = tuple[Any, str | None, bool]  # an element, the CTE it is in, whether the binder may repeat it


class _Mentions:
    """Every table name of one statement: where it is first, how often, in which CTE."""

    def __init__(self) -> None:
        self.offsets: dict[str, int | None] = {}  # bytes from the start of the text
        self.ctes: dict[str, bool] = {}  # name -> recursive
        self._counts: Counter[str] = Counter()
        self._homes: dict[str, str | None] = {}

    def visit(self, element: dict[str, Any], home: str | None, repeatable: bool) -> Iterator[_Place]:
        """Note the element; yields the places below it."""
        if element.get("type") == "BASE_TABLE" and "class" not in element:
            name = str(element["table_name"]).lower()
            self.offsets.setdefault(name, element.get("query_location"))
            self._counts[name] += 2 if repeatable else 1
            self._homes[name] = home
        # The binder copies expressions (aliases, COLUMNS, ORDER BY ALL), and their subqueries with them.
        repeatable = repeatable or "class" in element or element.get("type") in ("PIVOT", "SHOW_REF")
        for key, value in element.items():
            if key != "cte_map":
                yield value, home, repeatable
                continue
            for entry in value.get("map", ()):
                name = str(entry["key"]).lower()
                recursive = entry["value"].get("query_node", {}).get("type") == "RECURSIVE_CTE_NODE"
                self._counts[name] += name in self.ctes  # one name in two scopes: do not tell them apart
                self.ctes[name] = self.ctes.get(name, False) or recursive
                yield entry["value"], name, repeatable

    def scanned_once(self, name: str) -> bool:
        """Whether one run surely scans the relation at most once. A CTE is scanned as often as it is mentioned."""
        seen: set[str] = set()
        place: str | None = name
        while place is not None:
            is_cte = place in self.ctes
            if self._counts[place] > 1 or place in seen or (is_cte and (place == name or self.ctes[place])):
                return False
            seen.add(place)
            place = self._homes.get(place)
        return True


def _check(sql: str, element: dict[str, Any]) -> None:
    kind, offset = element.get("type"), element.get("query_location")
    if "class" in element:
        name = str(element.get("function_name", "")).lower()
        if name in _REFUSED_FUNCTIONS:
            raise error_at(sql, offset, f"Function '{name}' cannot be used here")
    elif not isinstance(kind, str):
        return  # a type, a literal, a list of names
    elif kind not in _ALLOWED_KINDS or (kind == "SHOW_REF" and "query" not in element):
        raise SqlError(f"Only plain SELECT statements can be run here (met {kind.lower().replace('_', ' ')})")
    elif kind == "TABLE_FUNCTION":
        name = str(element["function"].get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise error_at(sql, offset, f"Table function '{name}' cannot be used here")
    elif kind == "BASE_TABLE" and len(element["qualified_name"]["path"]) != 1:
        name = ".".join(element["qualified_name"]["path"])
        raise error_at(sql, offset, f"Table '{name}' does not exist: tables have plain names here")
