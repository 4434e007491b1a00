"""DuckDB's errors as errors of the tree: one line, with line and column where they are known, no internals."""

from __future__ import annotations

import re
from collections.abc import Callable

from ballista_py.engines.apart.frames import FAILED
from ballista_py.engines.duckdb.broken_database import DAMAGED, INVALIDATED
from ballista_py.errors import BallistaError, MergeTooLarge, NotOwner, SqlError, TransportError, named
from ballista_py.one_line import ends_of
from ballista_py.sql.own_words import NO_ROW_ID

MAX_MESSAGE_CHARACTERS = 400
LONG_CHARACTERS = 100_000
_LOCATION = re.compile(r"\n\s*LINE (\d+): (.*)\n(\s*)\^+\s*$", re.DOTALL)
_KIND = re.compile(r"^(?:\w+ ){1,4}(?:Error|Exception): |^INTERRUPT Error: ")
_INTERNAL_NAMES = re.compile(r'(?:"\w+"|\b\w+)\.(?:main|held)\.')
_TOO_LARGE = (
    "The query needs more memory and spill space than this node has: filter more, raise max_merge_bytes, "
    'memory_limit or max_spill_bytes, or run it with engine="spark"'
)
BEGINS_ANEW = "The engine of this node begins anew after a failure: plan the query again"
_NO_ROOM = "The node has no disk space left for this: ask for less at once, or give it room below its data_dir"
_SUGGESTIONS = re.compile(r"\nDid you mean|\n\tCandidate functions|\s*Candidate tables:")
_CARET = re.compile(r"\n[^\n]*\n[ \t]*\^+[ \t]*(?=\n|\Z)")
# Sentences of DuckDB about its settings and pages, which end the message.
_ADVICE = re.compile(
    r"(?<=[.!?])\s+(?:Use|Set|Please|Enable|You can|To \w+|For more)\b"
    r"(?=.*(?:\bSET \w+ ?=|\bSET \w+ TO\b|\bPRAGMA \w|https?://duckdb\.org)).*|\n\*.*",
    re.DOTALL,
)
# What DuckDB calls the types that it keeps values in; nobody declares a column so.
_PHYSICAL = {
    "BOOL": "BOOLEAN",
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INTEGER",
    "INT64": "BIGINT",
    "INT128": "HUGEINT",
    "UINT8": "UTINYINT",
    "UINT16": "USMALLINT",
    "UINT32": "UINTEGER",
    "UINT64": "UBIGINT",
    "UINT128": "UHUGEINT",
}
_PHYSICAL_NAME = re.compile(rf"""'(?:[^']|'')*'|"[^"]*"|\b(?:{"|".join(_PHYSICAL)})\b""")
_ROW_ID = re.compile(r'column (?:named )?"rowid"', re.IGNORECASE)
_PYTHON_DETAIL = re.compile(r"\. Detail: Python exception:.*", re.DOTALL)
EXPLAIN = "explain\n"  # asked for with an error that came without its position
# In a stream of results pyarrow turns every error of DuckDB into an OSError: the text alone says what it was.
# No statement reaches files, so an IO error is one of the spill folder or of the engine's own database.
_BY_KIND: list[tuple[re.Pattern[str], Callable[[], BallistaError]]] = [
    (re.compile("INTERRUPT Error"), lambda: TransportError("The query was cancelled")),
    (
        re.compile(rf"(?:FATAL|IO|TransactionContext) Error.*{INVALIDATED}", re.DOTALL),
        lambda: NotOwner(BEGINS_ANEW),
    ),
    (re.compile(DAMAGED), lambda: NotOwner(BEGINS_ANEW)),
    (re.compile("Connection Error: Connection (?:has )?already (?:been )?closed"), lambda: NotOwner(BEGINS_ANEW)),
    (
        re.compile("IO Error.*(?:No space left on device|Disk quota exceeded|File too large)", re.DOTALL),
        lambda: MergeTooLarge(_NO_ROOM),
    ),
    (re.compile("Out of Memory Error|IO Error"), lambda: MergeTooLarge(_TOO_LARGE)),
    # Where the system refused it memory, DuckDB takes that for a fault of its own.
    (
        re.compile(r"INTERNAL Error: (?:Memory allocation failure|std::bad_alloc)"),
        lambda: MergeTooLarge(_TOO_LARGE),
    ),
    (
        re.compile("Permission Error"),
        lambda: SqlError("The statement asks for something that is not allowed here"),
    ),
    (re.compile("INTERNAL Error|FATAL Error"), lambda: BallistaError(FAILED)),
]


def one_line(text: str) -> str:
    """The text on one line, cut to a readable length."""
    line = " ".join(text.split())
    if len(line) > MAX_MESSAGE_CHARACTERS:
        line = line[: MAX_MESSAGE_CHARACTERS - 1] + "…"
    return line


def error_at(sql: str, offset: int | None, message: str) -> SqlError:
    """The error with the line and column (from 1, in characters) that lie `offset` bytes into `sql`."""
    if offset is None:
        return SqlError(message)
    before = sql.encode()[:offset].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return SqlError(f"{message} (line {line}, column {column})", line=line, column=column)


def translate(
    error: BaseException, sql: str, explain_error: Callable[[], str] | None = None, *, prefix: str = ""
) -> BallistaError:
    """The error of the tree for what DuckDB raised while it bound or ran `sql`.

    `explain_error`, if given, returns DuckDB's error for `EXPLAIN + sql`: that text names the position of errors
    of which the short one does not. `prefix` stood before `sql`.
    """
    known = named(error)
    if isinstance(known, BallistaError):
        return known
    text = ends_of(str(error))
    for pattern, made in _BY_KIND:
        if pattern.match(text):
            found = made()
            return _long(sql) if isinstance(found, MergeTooLarge) and len(sql) >= LONG_CHARACTERS else found
    offset = _offset(prefix + sql, text)
    if offset is not None and prefix:
        offset = offset - len(prefix.encode()) if offset >= len(prefix.encode()) else None
    if offset is None and explain_error is not None:
        longer = _offset(EXPLAIN + sql, ends_of(explain_error()))
        offset = None if longer is None else longer - len(EXPLAIN)
    message = _PYTHON_DETAIL.sub("", _KIND.sub("", _LOCATION.sub("", text)))
    if _ROW_ID.search(message):
        message = NO_ROW_ID
    message = one_line(_with_sql_types(_INTERNAL_NAMES.sub("", _plain(message))))
    return error_at(sql, offset, message)


def _long(sql: str) -> MergeTooLarge:
    """The error for a text that is so long that most of the memory may be its own: kilobytes for each element."""
    return MergeTooLarge(
        f"a statement of {len(sql):,} characters needs more memory than this node has, most of it for its words and "
        "numbers: put the values of a long list into a table and join it, send fewer at once, or raise max_merge_bytes "
        "or memory_limit"
    )


def _with_sql_types(message: str) -> str:
    """The message with types as SQL calls them, but for what it quotes.

    >>> _with_sql_types("Could not convert string 'to INT64' to INT32")
    "Could not convert string 'to INT64' to INTEGER"
    """
    return _PHYSICAL_NAME.sub(lambda found: _PHYSICAL.get(found[0], found[0]), message)


def _plain(message: str) -> str:
    """What happened alone: no suggestions drawn from the catalog, settings that nobody may set, or drawn carets.

    >>> _plain('Could not parse "x"\\nx\\n^\\nError: Expected a number')
    'Could not parse "x"\\nError: Expected a number'
    >>> _plain("More than one row. Use \\"SET a=false\\" to revert to a random row.")
    'More than one row.'
    """
    return _ADVICE.sub("", _CARET.sub("", _SUGGESTIONS.split(message)[0])).strip()


def _offset(sql: str, error_text: str) -> int | None:
    """Bytes into `sql` of the caret. DuckDB shows an excerpt of the line, between dots when it is long."""
    location = _LOCATION.search(error_text)
    lines = sql.split("\n")
    if location is None or int(location[1]) > len(lines):
        return None
    above, line = lines[: int(location[1]) - 1], lines[int(location[1]) - 1]
    excerpt, caret = location[2], len(location[3]) - len(f"LINE {location[1]}: ")
    if excerpt.startswith("..."):
        excerpt, caret = excerpt[3:], caret - 3
    start = line.find(excerpt.removesuffix("..."))
    if start < 0 or not 0 <= caret <= len(line) - start:
        return None
    return len("\n".join([*above, line[: start + caret]]).encode())
