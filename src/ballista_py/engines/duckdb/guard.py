"""What user SQL may reach: a single SELECT over the relations of the query, and nothing else of the process.

DuckDB's own parser reads the statement (another parser could be made to see another statement than the one that
runs), and its syntax tree is checked against lists of what is allowed: the pieces of a statement (`duckdb_nodes`), the
functions and types (`engine_functions`). A construct of a newer release is refused until somebody has looked at it,
and a release with other functions is refused at start. This is the first of two walls: behind it the database itself
has no access to files and network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
from attrs import field, frozen

from ballista_py.engines.apart.steady import Steadiness
from ballista_py.engines.duckdb.errors import error_at, one_line
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.nodes import unknown_piece
from ballista_py.engines.duckdb.passing import passing, require_reviewed
from ballista_py.engines.duckdb.written_out import (
    MAX_BOUND_COLUMNS,
    MAX_CHAINED,
    NO_COLUMNS,
    Columns,
    chained,
    repeats,
    require_few_repeated,
    require_few_written_out,
    written_out,
)
from ballista_py.errors import SqlError
from ballista_py.remembered import Remembered
from ballista_py.sql.bind.engine_functions import (
    aggregates,
    allowed_calls,
    allowed_relations,
    allowed_types,
)
from ballista_py.sql.own_words import meant
from ballista_py.sql.parse.quotes import require_settled
from ballista_py.sql.parse.shape import shape_of
from ballista_py.work import runs_apart

# Their argument names an aggregate, or says how JSON becomes a value: only constants are let through.
_NAMING = frozenset(("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"))
_SHAPING = frozenset(("from_json", "from_json_strict", "json_transform", "json_transform_strict"))
_READERS = ("read_", "parquet_scan", "glob", "sniff_csv", "csv_scan")
_FILES = (".csv", ".tsv", ".parquet", ".json", ".ndjson", ".jsonl", ".gz", ".zst", ".xlsx", ".db", ".duckdb")
_UNNEST = "unnest"  # a relation by the catalog, and a piece of the select list
MAX_SHAPE_DEPTH = 100
MAX_LEVELS = 1_000  # DuckDB's parser ends the process at some tens of thousands
_TOO_DEEP = "The statement is nested too deeply, or has too many operators in a row"
_REMEMBERED_STATEMENTS = 512
_MAX_REMEMBERED_CHARACTERS = 1 << 16
_MAX_REMEMBERED_BYTES = 16 << 20
_LEAST_BYTES = 2_048
_MAX_STEADY_CHARACTERS = 1 << 18
_SERIALIZE = "select json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"


@frozen(kw_only=True)
class GuardedSelect:
    """A SELECT that passed: the relations that it surely scans one time (`once`), and the others that it reads.

    One that is `steady` may run in this process; one that `gathers` keeps rows meanwhile. See `engines.steady`.
    """

    once: frozenset[str]
    many: frozenset[str]
    steady: bool = False
    sources: int = 0
    names: frozenset[str] | None = None
    copies: int = 0
    growth: int = 1
    gathers: bool = True
    written: Columns = NO_COLUMNS

    def is_apart(self, schemas: Iterable[pa.Schema]) -> bool:
        """Whether it is bound and run where it can be ended, over tables of these schemas.

        So is all that is done for a statement of which nobody could say what it does (`engines.apart.trials`).
        """
        if runs_apart():
            return True
        widest = max(map(len, schemas), default=1)
        return not self.steady or self.written.of(widest) > MAX_BOUND_COLUMNS

    def columns_of(self, schema: pa.Schema) -> list[str]:
        """The columns of a relation with this schema that are surely enough; at least one, which counts its rows."""
        if self.names is None:
            return list(schema.names)
        wanted = [name for name in schema.names if name.lower() in self.names]
        narrow = (field.name for field in schema if pa.types.is_primitive(field.type))
        return wanted or [next(narrow, schema.names[0])]

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
        require_reviewed()
        self._connection = connection
        self._remembered: Remembered[_Mentions] = Remembered(_REMEMBERED_STATEMENTS, _MAX_REMEMBERED_BYTES)

    def check(self, sql: str, relations: Collection[str]) -> GuardedSelect:
        """What `sql` reads, if it is one SELECT over `relations` alone.

        Raises `SqlError`, with the position where there is one, for everything else.
        """
        found = self._inspected(sql)
        known = {name.lower(): name for name in relations}
        if not found.offsets.keys() <= known.keys() | found.ctes.keys():
            for name, offset in self._inspect(sql).offsets.items():  # one of the same shape has it elsewhere
                if name not in known and name not in found.ctes:
                    instead = _instead_of_file(name) or meant(name, known)
                    raise error_at(sql, offset, f"Table '{name}' does not exist{instead}")
        read = {name for name in found.offsets if name in known}
        once = {name for name in read if found.scanned_once(name)}
        return GuardedSelect(
            once=frozenset(known[name] for name in once),
            many=frozenset(known[name] for name in read - once),
            steady=found.steady,
            sources=found.sources,
            names=found.names,
            copies=found.copies,
            growth=found.growth,
            gathers=found.gathers,
            written=found.written,
        )

    def passing(self, sql: str, wanted: str) -> str | None:
        """See `passing.passing`; the statement was checked before."""
        return passing(self._connection, self._parse, sql, wanted)

    def _inspected(self, sql: str) -> _Mentions:
        if len(sql) > _MAX_REMEMBERED_CHARACTERS:
            return self._inspect(sql)
        text = _Text.of(sql)
        found = self._remembered.get(text)
        if found is None:
            found = self._inspect(sql)
            self._remembered.put(text, found, _LEAST_BYTES + 8 * len(sql))
        return found

    def _inspect(self, sql: str) -> _Mentions:
        statements = self._parse(sql)
        if len(statements) != 1:
            several = f"the text holds {len(statements)} statements: send them one by one"
            raise SqlError(several if statements else "the statement is empty")
        mentions = _Mentions()
        steadiness = Steadiness()
        pending: list[_Place] = [(statements[0], None, False)]
        repeating = 0
        while pending:
            element, home, repeatable = pending.pop()
            if isinstance(element, list):
                pending.extend((item, home, repeatable) for item in element)
            elif isinstance(element, dict):
                _check(sql, element)
                steadiness.visit(element, home)
                repeating += repeats(element)
                pending.extend(mentions.visit(element, home, repeatable))
        if repeating > 1:
            require_few_repeated(statements[0])
        written = written_out(statements[0])
        require_few_written_out(written)
        mentions.written = written.columns
        mentions.sources = steadiness.sources
        mentions.names = steadiness.names
        mentions.copies, mentions.growth = steadiness.copies, steadiness.growth
        mentions.gathers = steadiness.gathers
        short = len(sql) <= _MAX_STEADY_CHARACTERS
        as_written = written.expressions <= max(MAX_CHAINED, len(sql))
        mentions.steady = steadiness.verdict and short and as_written and chained(statements[0]) <= MAX_CHAINED
        return mentions

    def _parse(self, sql: str) -> list[Any]:
        require_readable(sql)
        with self._connection.cursor() as cursor:
            try:
                row = cursor.execute(_SERIALIZE, [sql]).fetchone()
            except (duckdb.Error, UnicodeError):
                raise SqlError("The statement cannot be read") from None
        try:
            tree: dict[str, Any] = orjson.loads(row[0]) if row else {"error": True}
        except orjson.JSONDecodeError:  # it reads 1,024 levels, two or three of which are one of the statement
            raise SqlError(_TOO_DEEP) from None
        if not tree["error"]:
            return list(tree["statements"])
        if "Max expression depth" in str(tree.get("error_message")):
            raise SqlError(_TOO_DEEP)
        message = one_line(str(tree.get("error_message", "The statement cannot be read")))
        if "can be serialized" in message:
            raise SqlError(_NO_PIVOT if "pivot" in sql.lower() else _NO_QUERY)
        raise error_at(
            sql, int(tree["position"]) if tree.get("position") else None, message[:1].upper() + message[1:]
        )


_NO_QUERY = "the text is not one query: send statements one by one"
_NO_PIVOT = (
    "the text is not one query: a PIVOT without IN of this form cannot be run here, say which values become columns, "
    "as in ON c IN ('a', 'b'), or put the joined tables into brackets, as in PIVOT (FROM a JOIN b …) ON …"
)
_PLAINLY = "a table is named with a schema that there is not here: all are in main of ballista, name it plainly"
# What the parser calls a piece, in the words of people.
_PIECES = {
    "schema name of base table": _PLAINLY,
    "catalog name of base table": _PLAINLY,
    "at clause of base table": "AT behind a table cannot be used here: tables have no earlier versions",
    "show ref": "SHOW inside a query cannot be run here: send it alone",
    "value parameter": "a parameter has no value: give parameters=[…], bind one by ADBC, or write it",
    "schema of type": "a type is named with a schema: take one of DuckDB's own types",
    "value default": "DEFAULT can stand only among the values of an INSERT",
}
_CHANGE_INSIDE = " query node"


def _in_words(piece: str) -> str:
    """What is wrong with a statement that has a piece which cannot be used."""
    if piece in _PIECES:
        return _PIECES[piece]
    if piece.endswith(_CHANGE_INSIDE):
        verb = piece.removesuffix(_CHANGE_INSIDE).upper()
        return f"{verb} inside a query cannot be run here: send it as a statement of its own"
    return f"a piece of the statement cannot be used here: {piece}"


_Place = tuple[Any, str | None, bool]  # an element, the CTE it is in, whether the binder may repeat it


class _Mentions:
    """Every table name of one statement: where it is first, how often, in which CTE."""

    def __init__(self) -> None:
        self.steady = False
        self.sources = 0
        self.names: frozenset[str] | None = None
        self.copies, self.growth = 0, 1
        self.gathers = True
        self.written = NO_COLUMNS
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
            if key == "function" and element.get("type") == "TABLE_FUNCTION":  # its name is judged as a relation's
                yield [part for name, part in value.items() if name != "function_name"], home, repeatable
                continue
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
    unknown = unknown_piece(element)
    if unknown is not None:
        raise SqlError(_in_words(unknown))
    kind, offset = element.get("type"), element.get("query_location")
    if "function_name" in element:
        _check_call(sql, element)
    elif kind == "TYPE":
        name = str(element["type_name"]).lower()
        if name not in allowed_types():
            raise error_at(sql, offset, f"Type '{name}' cannot be used here")
    elif kind == "TABLE_FUNCTION":
        name = str(element["function"].get("function_name", "")).lower()
        unknown = unknown_piece(element["function"])
        if name not in allowed_relations() or unknown is not None:
            said = f"Table function '{unknown or name}' cannot be used here{_instead_of_file(name)}"
            raise error_at(sql, offset, said)
    elif kind == "SHOW_REF" and "query" not in element:
        raise SqlError(_in_words("show ref"))
    elif kind == "BASE_TABLE" and len(element["qualified_name"]["path"]) != 1:
        name = ".".join(element["qualified_name"]["path"])
        raise error_at(sql, offset, f"Table '{name}' does not exist: tables have plain names here")


def _instead_of_file(name: str) -> str:
    """What to do about a relation that is a file, or that reads one: no node looks at files of clients."""
    reads = name.startswith(_READERS) or name.endswith(_FILES) or "/" in name
    return ": a file is read by its client, with COPY table FROM 'file' or Client.ingest" if reads else ""


def _check_call(sql: str, element: dict[str, Any]) -> None:
    name, offset = str(element["function_name"]).lower(), element.get("query_location")
    if name not in allowed_calls() and name != _UNNEST:
        raise error_at(sql, offset, f"Function '{name}' cannot be used here")
    if name in _NAMING:
        named = _constant(element, 1)
        if named is None or named.lower() not in aggregates() & allowed_calls():
            raise error_at(
                sql, offset, f"Function '{name}' needs the name of an aggregate, written as a text, here"
            )
    if name in _SHAPING:
        shape = _constant(element, 1)
        if shape is None or _depth(shape) > MAX_SHAPE_DEPTH:
            raise error_at(
                sql,
                offset,
                f"Function '{name}' needs a structure written as a text, nested at most {MAX_SHAPE_DEPTH} deep, here",
            )


def _constant(call: dict[str, Any], place: int) -> str | None:
    """The text that stands at a place of the arguments; None for anything but a plain one."""
    arguments = call.get("arguments", ())
    literal = arguments[place].get("expression", {}).get("literal", {}) if len(arguments) > place else {}
    return str(literal.get("text", "")) if literal.get("kind") == "STRING" else None


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest


def require_readable(sql: str) -> None:
    """Raise `SqlError` for a text that DuckDB's parser is not given.

    That is one with more than `MAX_LEVELS` open brackets, as DuckDB's own tokens tell them, and one of which it might
    take what is in quotes for what is not (`require_settled`).
    """
    require_settled(sql)
    if sum(map(sql.count, "([{")) <= MAX_LEVELS:
        return
    text, depth = sql.encode(), 0
    for offset, kind in duckdb.tokenize(sql):
        if kind == duckdb.token_type.operator:
            depth += (text[offset] in b"([{") - (text[offset] in b")]}")
        if depth > MAX_LEVELS:
            raise SqlError(_TOO_DEEP)
