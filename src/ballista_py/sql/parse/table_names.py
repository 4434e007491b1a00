"""How a table may be named: plainly, or with the schema and the catalog that every table here is in.

`main.t` and `ballista.main.t` mean `t`; what reads a statement further knows plain names alone. The names are told by
the words around them, and blanks take the place of what stands before a plain name, so that nothing else moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import tokenized

CATALOG, SCHEMA, INFORMATION = "ballista", "main", "information_schema"
SEEN = "runtime"  # the schema of the tables that say what the cluster does
TOLD = (INFORMATION, SEEN)  # schemas whose tables a scheduler makes up when they are asked for
DESCRIBED = " "  # behind the name of a table: no table has such a one
_OURS = ((SCHEMA,), (CATALOG,), (CATALOG, SCHEMA))
_MAY_QUALIFY = re.compile(rf'\b(?:{SCHEMA}|{CATALOG})"?\s*\.', re.IGNORECASE)
_BEFORE_TABLES = frozenset(("FROM", "JOIN", "INTO", "TABLE", "EXISTS", "USING", "PIVOT", "PIVOT_WIDER"))
# Words that stand before a table where a statement begins, and elsewhere say an order or name a column.
_BEGINNING = frozenset(("UPDATE", "TRUNCATE", "SUMMARIZE", "DESCRIBE", "DESC", "SHOW"))
_BEFORE_STATEMENTS = frozenset(("EXPLAIN", "ANALYZE"))
# A word that can be a column stands before a table only behind these: `create or replace view v`.
_BEFORE_VIEW = frozenset(("CREATE", "REPLACE", "TEMP", "TEMPORARY", "MATERIALIZED", "RECURSIVE", "DROP", "ALTER"))
_FROM_INSIDE = frozenset(("extract", "trim", "substring", "substr", "overlay", "position"))  # extract(day from d)
_CALL = "a call with FROM in it"
_LISTS = frozenset(("FROM", "USING"))
_CLAUSES = frozenset((
    "SELECT", "FROM", "WHERE", "GROUP BY", "GROUP", "ORDER BY", "ORDER", "HAVING", "SET", "ON", "VALUES", "USING",
    "RETURNING", "LIMIT", "QUALIFY", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "WHEN",
))  # fmt: skip
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


@frozen
class NamedTable:
    """A table that a text names: its words, in lower case, and the tokens `first` to `last` that are its name."""

    words: tuple[str, ...]
    first: int
    last: int


def plain_table(tokens: Sequence[Token]) -> str:
    """The name of the table that the tokens name: `t`, `main.t` or `ballista.main.t`. Raises `SqlError`."""
    parts = list(tokens[::2])
    dotted = all(token.token_type == TokenType.DOT for token in tokens[1::2])
    if not tokens or len(tokens) % 2 == 0 or not dotted or not all(map(_is_name, parts)):
        shown = "".join(token.text for token in tokens)
        raise SqlError(f"'{shown}' is no table: name one, as t, {SCHEMA}.t or {CATALOG}.{SCHEMA}.t")
    return table_of([token.text for token in parts])


def table_of(words: Sequence[str]) -> str:
    """The table that words with dots between them name. Raises `SqlError` for one of another schema.

    >>> table_of(["Ballista", "main", "T"]), table_of(["t"])
    ('t', 't')
    """
    names = [word.lower() for word in words]
    if tuple(names[:-1]) not in ((), *_OURS):
        shown = ".".join(words)
        raise SqlError(f"'{shown}' is no table here: all tables are in the schema {SCHEMA} of {CATALOG}")
    return names[-1]


def unqualified(sql: str, dialect: str | None = None) -> str:
    """The text with blanks in place of the schema and the catalog of the tables that it names.

    A text in which `main` may be something else, or where a name that WITH gives would take the table's place, is
    left as it is. Raises nothing: whoever reads the text says what is wrong with it.

    >>> unqualified('select main.t.a from "ballista".main.t')
    'select      t.a from                 t'
    """
    if not _MAY_QUALIFY.search(sql):
        return sql
    try:
        tokens = tokenized(sql, dialect)
    except (SqlError, ValueError):
        return sql
    found = [table for table in named_tables(tokens) if table.words[:-1] in _OURS]
    names = {table.words[-1] for table in found}
    if not found or _given_names(tokens) & names or _is_used_otherwise(tokens):
        return sql
    starts = {table.first: 2 * (len(table.words) - 1) for table in found}
    for place in range(len(tokens)):
        if place not in starts and (place == 0 or tokens[place - 1].token_type != TokenType.DOT):
            size = _size_of_prefix(_dotted(tokens, place), names)
            if size:
                starts[place] = 2 * size
    for place, size in starts.items():
        start, end = tokens[place].start, tokens[place + size].start
        sql = sql[:start] + "".join(c if c == "\n" else " " for c in sql[start:end]) + sql[end:]
    return sql


def _size_of_prefix(words: tuple[str, ...], names: set[str]) -> int:
    """How many words stand before the table in the name of a column of one of these; 0 for other names."""
    for prefix in _OURS:
        size = len(prefix)
        if words[:size] == prefix and len(words) > size + 1 and words[size] in names:
            return size
    return 0


def named_tables(tokens: Sequence[Token]) -> Iterator[NamedTable]:
    """The tables that a text names where only a table can stand."""
    clauses = [""]
    place = 0
    while place < len(tokens):
        token, word = tokens[place], tokens[place].text.upper()
        is_word = token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        if _stands_for_table(tokens, place, clauses[-1]) and (words := _dotted(tokens, place)):
            last = place + 2 * (len(words) - 1)
            called = last + 1 < len(tokens) and tokens[last + 1].token_type == TokenType.L_PAREN
            into = tokens[place - 1].text.upper() in ("INTO", "TABLE", "VIEW", "EXISTS")
            if (not called or into) and not (is_word and word in ("SELECT", "IF", "LATERAL", "VALUES", "ONLY")):
                yield NamedTable(words, place, last)
                place = last + 1
                continue
        if token.token_type in _OPENING:
            called = place > 0 and tokens[place - 1].text.lower() in _FROM_INSIDE
            clauses.append(_CALL if called else clauses[-1] if clauses[-1] in _LISTS else "")
        elif token.token_type in _CLOSING and len(clauses) > 1:
            clauses.pop()
        elif is_word and word in _CLAUSES and clauses[-1] != _CALL:
            clauses[-1] = word
        place += 1


def _stands_for_table(tokens: Sequence[Token], place: int, clause: str) -> bool:
    """Whether the name of a table stands at a place in a clause."""
    before = tokens[place - 1] if place else None
    if before is None or before.token_type in (TokenType.IDENTIFIER, TokenType.STRING) or clause == _CALL:
        return False
    if before.token_type == TokenType.COMMA:
        return clause in (*_LISTS, "ON")
    word, previous = before.text.upper().split(" ")[-1], tokens[place - 2].text.upper() if place > 1 else ""
    if word == "TO":
        return previous == "RENAME"  # ALTER TABLE … RENAME TO
    if word in _BEGINNING:
        return _begins(tokens, place - 1, word)
    if word == "VIEW":
        return previous in _BEFORE_VIEW or (previous == "ON" and place == 3)  # COMMENT ON VIEW
    return word in _BEFORE_TABLES and not (word == "FROM" and previous == "DISTINCT")  # IS DISTINCT FROM


def _begins(tokens: Sequence[Token], place: int, word: str) -> bool:
    """Whether a statement begins at a token: `order by a desc limit 1` does not describe a table."""
    before = tokens[place - 1] if place else None
    if before is None or before.token_type in _OPENING or before.token_type == TokenType.SEMICOLON:
        return True
    if before.token_type == TokenType.R_PAREN:  # with a as (…) update t
        return word == "UPDATE" and tokens[0].text.upper() == "WITH"
    return before.text.upper() in _BEFORE_STATEMENTS


def _dotted(tokens: Sequence[Token], place: int) -> tuple[str, ...]:
    """The words of a name that begins at a token; none if there is no name."""
    words = list[str]()
    while place < len(tokens) and _is_name(tokens[place]):
        words.append(tokens[place].text.lower())
        if place + 2 > len(tokens) - 1 or tokens[place + 1].token_type != TokenType.DOT:
            break
        place += 2
    return tuple(words)


def _given_names(tokens: Sequence[Token]) -> set[str]:
    """What WITH may give a name to."""
    if not any(token.text.upper().split(" ")[0] == "WITH" for token in tokens):
        return set()
    return {
        token.text.lower()
        for token, after in pairwise(tokens)
        if _is_name(token) and (after.text.upper() in ("AS", "USING") or after.token_type == TokenType.L_PAREN)
    }


def _is_used_otherwise(tokens: Sequence[Token]) -> bool:
    """Whether the name of the schema stands where it is none: as an alias, a column or a table."""
    return any(
        _is_name(token) and token.text.lower() in (SCHEMA, CATALOG) and after.token_type != TokenType.DOT
        for token, after in pairwise((*tokens, tokens[0]))
    )


def reads_catalog(tokens: Sequence[Token]) -> bool:
    """Whether a query reads what a scheduler says, tables of one of the schemas `TOLD` or `(DESCRIBE t)`."""
    return any(_is_told(table) or _is_described(tokens, table) for table in named_tables(tokens))


def may_read_catalog(sql: str) -> bool:
    """Whether there is a word in the text by which a query could read what the catalog says."""
    lower = sql.lower()
    return any(word in lower for word in (*TOLD, "describe"))


def _is_told(table: NamedTable) -> bool:
    return any(schema in table.words[:-1] for schema in TOLD)


def _is_described(tokens: Sequence[Token], table: NamedTable) -> bool:
    """Whether it is the columns of a table that stand there, `(DESCRIBE t)`, in the place of one."""
    place = table.first
    around = tokens[place - 2 : place] if place > 1 else ()
    return (
        len(around) == 2
        and around[0].token_type == TokenType.L_PAREN
        and around[1].text.upper() == "DESCRIBE"
        and table.last + 1 < len(tokens)
        and tokens[table.last + 1].token_type == TokenType.R_PAREN
    )


def catalog_query(sql: str) -> str | None:
    """The query over tables of the schemas `TOLD`, by their own names; None for a text that reads none.

    What DESCRIBE says of a table is a relation of its name and a blank. Raises `SqlError` for one that reads tables of
    the cluster, too.

    >>> catalog_query("select * from information_schema.columns c")
    'select * from "columns"                  c'
    >>> catalog_query("select * from (describe t) d")
    'select * from (from "t " ) d'
    """
    if not may_read_catalog(sql):
        return None
    try:
        tokens = tokenized(sql)
    except SqlError:
        return None
    tables, given = list(named_tables(tokens)), _given_names(tokens)
    described = [table for table in tables if _is_described(tokens, table)]
    found = [table for table in tables if _is_told(table)]
    if not found and not described:
        return None
    for table in tables:
        schema = table.words[-2] if table in found else ""
        if table in found and table.words[:-1] not in ((schema,), (CATALOG, schema)):
            meant = next(one for one in TOLD if one in table.words)
            raise SqlError(f"'{'.'.join(table.words)}' is no table: name it as {meant}.{table.words[-1]}")
        if any(one.words[-1] == table.words[-1] and one.words[-2:] != table.words[-2:] for one in found if schema):
            raise SqlError(
                f"'{table.words[-1]}' of two schemas cannot be read together: read them one after the other"
            )
        if table not in found and table not in described and table.words[-1] not in given:
            what = found[0].words[-2] if found else "DESCRIBE of a table"
            raise SqlError(
                f"{what} cannot be read together with table '{table.words[-1]}': read them one after the other"
            )
    for table in (*found, *described):
        is_own = table in found
        start, end = tokens[table.first - (not is_own)].start, tokens[table.last].end + 1
        name = f'"{table.words[-1]}"' if is_own else f'from "{table_of(table.words)}{DESCRIBED}"'
        sql = sql[:start] + name.ljust(end - start) + sql[end:]
    return sql


def told_tables(sql: str) -> tuple[str, ...]:
    """The tables of the schemas `TOLD` that a text reads, with their schema.

    >>> told_tables("select * from ballista.runtime.nodes join Runtime.jobs using (node_id)")
    ('runtime.nodes', 'runtime.jobs')
    """
    found = (table for table in named_tables(tokenized(sql)) if _is_told(table))
    return tuple(dict.fromkeys(".".join(table.words[-2:]) for table in found))


def described_in(query: str) -> list[str]:
    """The tables of which a `catalog_query` wants what DESCRIBE says.

    >>> described_in('select * from (from "t " ) d')
    ['t']
    """
    names = (table.words[-1] for table in named_tables(tokenized(query)))
    return [name.removesuffix(DESCRIBED) for name in dict.fromkeys(names) if name.endswith(DESCRIBED)]


def _is_name(token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER or (
        token.token_type != TokenType.STRING and token.text.isidentifier()
    )
