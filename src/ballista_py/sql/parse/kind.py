"""What kind of statement a text is, told by its words; and the text in the engine's dialect.

One classifier for every way into a cluster: `Client.sql`, the command line, Flight SQL and the scheduler all ask
`statement_kind`. It parses nothing and loads no planner. What cannot be run is refused by `refusal`, in one wording
everywhere: the statement by its name, and what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.sql.dialects.names import known_dialect
from ballista_py.sql.parse.parsing import ENGINE, ENGINE_DIALECT, as_settled, measure, parsed_tokens, tokenized
from ballista_py.sql.parse.query_clauses import require_carried
from ballista_py.sql.parse.quotes import first_place
from ballista_py.sql.parse.table_names import INFORMATION, SEEN, may_read_catalog, reads_catalog, unqualified
from ballista_py.sql.parse.used_clauses import require_used

if TYPE_CHECKING:
    from ballista_py.sql.dialects.translation import Tables

StatementKind: TypeAlias = Literal["query", "change", "explain", "describe", "refused"]
# Calls of which the parser makes other ones (`function_sweep.kept_by_parser`), not always of the same value.
REWRITTEN = frozenset((
    "apply", "array_has_all", "date_add", "decode", "jaro_winkler_similarity", "json_extract", "json_extract_path",
    "json_extract_path_text", "json_extract_string", "json_keys", "list_has_any", "log10", "log2", "reduce",
))  # fmt: skip
_PLAIN = frozenset((TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR, TokenType.NUMBER, TokenType.PARAMETER))
_OPERATORS = frozenset((
    "(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "::", "+", "-", "*", "/", "//", "%", "^", "**", "||", "=",
    "==", "<>", "!=", "<", "<=", ">", ">=", "&", "|", "<<", ">>",
))  # fmt: skip
# Words of which none can be a name where it stands before an expression.
_BEFORE_VALUES = frozenset((
    "SELECT", "DISTINCT", "ALL", "WHERE", "AND", "OR", "NOT", "ON", "BY", "HAVING", "QUALIFY", "CASE", "WHEN", "THEN",
    "ELSE", "IN", "LIKE", "ILIKE", "BETWEEN", "LIMIT", "OFFSET", "RETURNING", "ANY", "FROM", "AS", "USING", "DEFAULT",
))  # fmt: skip
_TYPES = ENGINE.parser_class.TYPE_TOKENS
_UNIT_FIRST = frozenset(
    ("date_trunc", "datetrunc", "date_part", "datepart", "date_diff", "datediff", "date_sub", "datesub")
)
# What the parser's own objects are in a sentence.
_OBJECTS_IN_WORDS = (
    (re.compile(r"<Token\b.*>", re.DOTALL), "another word"),
    (re.compile(r"<class '[^']*'>"), "an expression"),
    (re.compile(r"<[\w.]+ object at 0x\w+>"), "an expression"),
)
_BEFORE_QUERIES = re.compile(
    r"(?:EXPLAIN(?:\s+ANALYZE)?|(?:DESCRIBE|DESC)(?=\s+(?:SELECT|WITH)\b))\s", re.IGNORECASE
)
_WORDS = re.compile(r"(?:[A-Za-z_]\w*(?:\s+|\Z)){1,6}|[A-Za-z_]\w*")
_CHANGES = frozenset(("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"))
_READS = frozenset(
    ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "SHOW", "SUMMARIZE", "EXPLAIN", "PIVOT", "(")
)
_DESCRIBES = frozenset(("DESCRIBE", "DESC", "SHOW"))
_OBJECTS = frozenset((
    "TABLE", "VIEW", "INDEX", "SCHEMA", "DATABASE", "SEQUENCE", "TYPE", "MACRO", "FUNCTION", "SECRET", "TRIGGER",
    "USER", "ROLE", "PROCEDURE", "EXTENSION",
))  # fmt: skip
_NO_TRANSACTIONS = (
    "there are no transactions, each statement is one; with atomic=True it appears everywhere at once"
)
_NO_SETTINGS = "nodes are configured when they start"
_SESSION = (
    "options and prepared texts are kept by clients, Client.sql of this SDK or the session of Flight SQL (ADBC)"
)
_ONE_SCHEMA = "there is one schema, and tables have plain names"
_NO_OTHERS = "no other database can be reached, send its rows with Client.ingest"
_UPKEEP = "executors look after files and statistics by themselves"
_WRITE_OUT = "write its expression out where it is needed"
_INSTEAD: Mapping[str, str] = {
    "BEGIN": _NO_TRANSACTIONS,
    "START": _NO_TRANSACTIONS,
    "COMMIT": _NO_TRANSACTIONS,
    "END": _NO_TRANSACTIONS,
    "ROLLBACK": _NO_TRANSACTIONS,
    "ABORT": _NO_TRANSACTIONS,
    "SAVEPOINT": _NO_TRANSACTIONS,
    "RELEASE": _NO_TRANSACTIONS,
    "SET": _SESSION,
    "RESET": _SESSION,
    "PRAGMA": _NO_SETTINGS,
    "USE": _ONE_SCHEMA,
    "ATTACH": _NO_OTHERS,
    "DETACH": _NO_OTHERS,
    "IMPORT": _NO_OTHERS,
    "EXPORT": "read the tables with queries",
    "CALL": "there are no procedures, use a query",
    "LOAD": "nodes load no extensions",
    "INSTALL": "nodes load no extensions",
    "FORCE": "nodes load no extensions, and look after files by themselves",
    "ALTER": "only tables can be altered",
    "COMMENT": "COMMENT ON TABLE t IS 'text' (a materialized view is one), or ON COLUMN t.a, or ON VIEW v",
    "PREPARE": _SESSION,
    "EXECUTE": _SESSION,
    "DEALLOCATE": _SESSION,
    "VACUUM": _UPKEEP,
    "ANALYZE": _UPKEEP,
    "CHECKPOINT": _UPKEEP,
    "REPLACE": "use MERGE INTO",
    "GRANT": "who may do what is configured at the nodes",
    "REVOKE": "who may do what is configured at the nodes",
    "LOCK": _NO_TRANSACTIONS,
    "KILL": "cancel a statement where it was sent",
    "REFRESH": "REFRESH MATERIALIZED VIEW v, or Client.refresh for a table with a source",
    "COPY": "its file is the client's, send it with Client.sql or ballista-py sql",
    "ALTER VIEW": "CREATE OR REPLACE VIEW makes it anew, ALTER TABLE v SET (…) says when a materialized one is",
    "CREATE INDEX": "there are no indexes, PARTITIONED BY says how rows are found",
    "CREATE SCHEMA": _ONE_SCHEMA,
    "CREATE DATABASE": _ONE_SCHEMA,
    "CREATE SEQUENCE": "number the rows in the client, or with row_number() in a query",
    "CREATE TYPE": "declare columns with DuckDB's own types, and what they may hold with CHECK",
    "CREATE MACRO": _WRITE_OUT,
    "CREATE FUNCTION": _WRITE_OUT,
    "CREATE": "only tables and views can be created",
    "DROP": "only tables and views can be dropped",
}


_KINDS_OF_VIEWS = frozenset(
    ("OR", "REPLACE", "TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "RECURSIVE", "MATERIALIZED", "SECURE")
)


def defines_view(words: Sequence[str]) -> bool:
    """Whether a statement that begins with these words makes a view, ends one or says something about one.

    >>> defines_view(["CREATE", "OR", "REPLACE", "VIEW"]), defines_view(["CREATE", "TABLE", "VIEW"])
    (True, False)
    """
    first, rest = (words[0], words[1:]) if words else ("", ())
    if first == "COMMENT":
        return [*rest[:2]] == ["ON", "VIEW"]
    if first == "CREATE":
        return next((word for word in rest if word not in _KINDS_OF_VIEWS), "") == "VIEW"
    return first in ("DROP", "REFRESH") and ([*rest[:1]] == ["VIEW"] or [*rest[:2]] == ["MATERIALIZED", "VIEW"])


def is_of_view(sql: str, dialect: str | None = None) -> bool:
    """Whether the text makes a view, ends one or says something about one."""
    return defines_view(_first_words(sql, dialect))


def statement_kind(sql: str, dialect: str | None = None) -> StatementKind:
    """What the text is meant to do, by its first words; also if it is wrong after them.

    A `query` gives rows; a `change` changes tables and gives their number; `explain` and `describe` (with SHOW) say
    something about them; what is `refused` is told by `refusal`. A text that begins with no word of a statement counts
    as a query, so that the parser of the engine says what is wrong with it. Raises `SqlError` for an unknown dialect.

    >>> statement_kind("insert into t values (1)"), statement_kind("with a as (select 1) select * from a")
    ('change', 'query')
    >>> statement_kind("-- twice\\nCREATE TABLE t (a INT)"), statement_kind("create unique index i on t (a)")
    ('change', 'refused')
    """
    words = _first_words(sql, dialect)
    first = words[0] if words else ""
    if first in _READS - _DESCRIBES - {"EXPLAIN"} and _reads_catalog(sql, dialect):
        return "describe"
    if first == "WITH":
        return "change" if _verb_after_with(sql, dialect) in _CHANGES else "query"
    if first == "EXPLAIN":
        return "explain"
    if first in _DESCRIBES:
        return "describe"
    if first in _CHANGES or (words[:2] == ["COMMENT", "ON"] and words[2:3] != ["MATERIALIZED"]):
        return "change"
    if defines_view(words):
        return "change"
    if first in ("CREATE", "DROP", "ALTER"):
        return "change" if _object_of(words) == "TABLE" else "refused"
    if first == "COPY":
        return "change" if _is_copy_from(sql, dialect) else "refused"
    return "refused" if first in _INSTEAD else "query"


def changes_rows(sql: str) -> bool:
    """Whether the text, in the engine's dialect, surely is a statement about rows, and defines no table.

    What begins with anything that is not known counts as a definition.

    >>> changes_rows("/* a */ insert into t values (1)"), changes_rows("with a as (select 1) insert into t from a")
    (True, True)
    >>> changes_rows("-- insert\\ncreate table t (a int)"), changes_rows("(create table t (a int))")
    (False, False)
    """
    words = _first_words(sql, None)
    first = words[0] if words else ""
    return (_verb_after_with(sql, None) if first == "WITH" else first) in _CHANGES


def _reads_catalog(sql: str, dialect: str | None) -> bool:
    return may_read_catalog(sql) and reads_catalog(_tokens(sql, dialect))


def only_reads(sql: str, dialect: str | None = None) -> bool:
    """Whether the statement surely changes nothing, so that it may be sent twice; False where that is not known.

    >>> only_reads("select 1"), only_reads("with x as (delete from t returning *) select * from x")
    (True, False)
    """
    try:
        words = _first_words(sql, dialect)
        return bool(words) and words[0] in _READS and not _mentions_change(sql, dialect)
    except SqlError:
        return False


def _mentions_change(sql: str, dialect: str | None) -> bool:
    tokens = _tokens(sql, dialect)
    names = (TokenType.STRING, TokenType.IDENTIFIER)
    return not tokens or any(t.text.upper() in _CHANGES and t.token_type not in names for t in tokens)


def refusal(sql: str, dialect: str | None = None) -> SqlError:
    """The error for a statement that gives no rows where rows are wanted, or that cannot be run at all.

    >>> str(refusal("begin transaction"))[:53]
    'BEGIN cannot be run here: there are no transactions, '
    """
    words = _first_words(sql, dialect)
    kind = statement_kind(sql, dialect)
    name = words[0] if words else "this"
    if name == "WITH" and kind == "change":
        name = _verb_after_with(sql, dialect)
    if name in ("CREATE", "DROP", "ALTER") and (object_ := _object_of(words)):
        name = f"{name} {object_}"
    if kind == "describe" and name not in _DESCRIBES:
        return SqlError(
            f"a query of {INFORMATION} or {SEEN}, or of (DESCRIBE a table), cannot be a part of another statement: "
            "send it alone"
        )
    if kind in ("explain", "describe"):
        return SqlError(f"{name} cannot be run here: it stands before a query, or names a table")
    if kind == "change":
        return SqlError(
            f"{name} changes a table and is no query: send it with Client.sql, or as an update of Flight SQL"
        )
    instead = _INSTEAD.get(name) or _INSTEAD.get(name.partition(" ")[0], "send a query or a change of a table")
    return SqlError(f"{name} cannot be run here: {instead}")


def engine_sql(sql: str, dialect: str | None = None, tables: Tables | None = None) -> str:
    """What a client sent, measured, in the engine's dialect. Text that is in it already comes back as it is.

    Of another dialect everything has the same value in the text that comes back, or is refused. `tables` are those of
    the cluster: what depends on the type of a column is refused without them. Raises `SqlError` for text that is too
    large or nested too deeply, or does not parse (with `line` and `column`), for a dialect that is not read, and for
    a clause of a change that is not used; `UnsupportedExpression` for what is not known to mean the same.

    >>> engine_sql("select `a`, 7 / 2 as b from t", dialect="spark")
    'SELECT "a", CAST(7 AS DOUBLE) / CAST(2 AS DOUBLE) AS b FROM t'
    """
    try:
        name = ENGINE_DIALECT if dialect is None else known_dialect(dialect)
        measure(sql, name)
        if name == ENGINE_DIALECT:
            sql = as_settled(sql)
        prefix = _BEFORE_QUERIES.match(sql, first_place(sql))
        place = prefix.end() if prefix else 0
        sql = sql[:place] + unqualified(sql[place:], name)
        if name == ENGINE_DIALECT or statement_kind(sql, name) == "refused":
            return sql
        text = _in_the_engines(blank(sql[:place]) + sql[place:], name, tables)
        return as_settled(sql[:place] + text if place else text)
    except ParseError as error:
        raise positioned(error) from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    except (SqlglotError, ValueError) as error:
        raise SqlError(f"the statement cannot be read as {dialect} SQL: {one_line(str(error))}") from None


def _in_the_engines(sql: str, dialect: str, tables: Tables | None) -> str:
    """The text of another dialect translated. What is refused is shown as it was written."""
    try:
        return _translated(sql, dialect, tables)
    except UnsupportedExpression as error:
        from ballista_py.sql.dialects.own_pieces import in_own_words

        raise in_own_words(error, sql, dialect) from None


def _translated(sql: str, dialect: str, tables: Tables | None) -> str:
    # Loaded here: most statements are in the engine's dialect and need none of it.
    from ballista_py.sql.dialects.spark_tables import taken_out
    from ballista_py.sql.dialects.translation import translate
    from ballista_py.sql.dialects.words import marked
    from ballista_py.sql.parse.creates import plain_like
    from ballista_py.sql.parse.inserts import partition_taken_out, table_query
    from ballista_py.sql.parse.view_statements import require_plain_view

    trees = [tree for tree in parsed_tokens(marked(tokenized(sql, dialect), sql, dialect), sql, dialect) if tree]
    made = []
    for tree in trees:
        table_query(tree)
        require_plain_view(tree, dialect)
        partition = partition_taken_out(tree)
        like = plain_like(tree)
        kept = taken_out(tree, dialect) if like is None else None
        require_used(tree, dialect)
        require_carried(tree)
        _require_other_tables(tree)
        if isinstance(tree, exp.Command) and statement_kind(sql, dialect) == "change":
            raise SqlError(f"{tree.name.upper()} of that form cannot be run here")
        if like is not None:
            made.append(like)
            continue
        translated = translate(tree, dialect, tables, partition)
        text = translated.sql(ENGINE_DIALECT, unsupported_level=ErrorLevel.RAISE, comments=False)
        made.append(text if kept is None else kept.written(translated))
    return "; ".join(made)


def _require_other_tables(tree: exp.Expr) -> None:
    """Refuse UPDATE … FROM and DELETE … USING of the table itself: it is the same one there, and a second one here."""
    if not isinstance(tree, exp.Update | exp.Delete) or not isinstance(tree.this, exp.Table):
        return
    using, source = tree.args.get("using") or (), tree.args.get("from_")
    own = tree.this.alias_or_name.lower()
    for item in (*using, *((source,) if source is not None else ())):
        if any(own in (table.alias_or_name.lower(), table.name.lower()) for table in item.find_all(exp.Table)):
            raise SqlError(
                f"{tree.key.upper()} that names '{own}' again cannot be run here: name its other tables alone behind "
                "FROM (USING in a DELETE), and say with WHERE how they belong to it"
            )


def tokens_of(sql: str) -> tuple[str, list[Token]]:
    """The text of one statement in the engine's dialect without what follows it, and its tokens.

    Raises `SqlError` for text that is too long, has no statement or cannot be cut into words.
    """
    tokens = tokenized(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlError("the statement is empty")
    return sql[: tokens[-1].end + 1], tokens


def blank(text: str) -> str:
    """As many blanks as the text has characters, on as many lines."""
    return "".join(c if c == "\n" else " " for c in text)


_DOES_NOT_PARSE = "the statement does not parse"


def positioned(error: ParseError) -> SqlError:
    """The error of the tree, with line and column."""
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "syntax error").rstrip(".")
    near = str(first.get("highlight") or "")
    line, end = int(first.get("line") or 1), int(first.get("col") or 1)
    column = max(1, end - len(near) + 1)
    return SqlError(
        f"{_DOES_NOT_PARSE}: {one_line(description)} near '{one_line(near)}' (line {line}, column {column})",
        line=line,
        column=column,
    )


def read_by_the_engine_alone(error: SqlError) -> SqlError:
    """The error of a statement that does not parse here, though the engine reads it: nothing in it is wrong."""
    if not error.message.startswith(_DOES_NOT_PARSE):
        return error
    said = error.message.removeprefix(_DOES_NOT_PARSE)
    return SqlError(f"this form of the statement cannot be run here, say it in other words{said}", **error.details)


def one_line(text: str) -> str:
    """A parser's text on one line, without objects of the parser, cut to a readable length."""
    for form, words in _OBJECTS_IN_WORDS:
        text = form.sub(words, text)
    return " ".join(text.replace("\x1b[4m", "").replace("\x1b[0m", "").split())[:300]


def verb_place(tokens: Sequence[Token]) -> int:
    """Which token is the first word of the statement that WITH stands before; 0 without WITH."""
    if not tokens or tokens[0].text.upper() != "WITH":
        return 0
    depth = 0
    for place, token in enumerate(tokens):
        follows = place > 0 and depth == 0 and tokens[place - 1].token_type == TokenType.R_PAREN
        if follows and token.text.upper() not in (",", "AS", "USING"):
            return place
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
    return 0


def misread(tokens: Sequence[Token]) -> str | None:
    """What the parser is not known to read as the engine does, in words; None if there is nothing of that kind.

    Of the operators that it accepts, `~` becomes another match and `^@` gets another precedence; rare ones are not
    tried. It leaves out a `+` before a value, by which a missing list is an empty one.
    It makes other calls of some (`REWRITTEN`), a date of a text in a difference of times, takes a column for the name
    of a unit, and `date '2020-01-01'::text` for a text that becomes a date.
    """
    for place, token in enumerate(tokens):
        text = token.text
        if text and token.token_type not in _PLAIN and not text[0].isalnum() and text not in _OPERATORS:
            return f"the operator {text}"
        if text == "+" and _is_sign(tokens, place):
            return "+ before a value"
        if _kind_at(tokens, place + 1) == TokenType.L_PAREN:
            called = text.lower()
            if called in REWRITTEN:
                return f"{text}, of which the parser makes something else"
            if called in _UNIT_FIRST and _second_text(tokens, place + 2):
                return f"{text} of a text"
            if called in _UNIT_FIRST and _kinds(tokens, place + 2, 1) == [None]:
                return f"{text} with a unit that is no constant"
        if token.token_type in _TYPES and _kinds(tokens, place + 1, 2) == [TokenType.STRING, TokenType.DCOLON]:
            return f"a cast of a constant of type {text}"
    return None


def _is_sign(tokens: Sequence[Token], place: int) -> bool:
    """Whether an operator begins a value that is no number: nothing that it could be computed with stands before it."""
    if _kind_at(tokens, place + 1) == TokenType.NUMBER:
        return False
    before = tokens[place - 1] if place else None
    if before is None or before.token_type in _PLAIN:
        return before is None
    return before.text.upper().split()[-1] in _BEFORE_VALUES or before.text in _OPERATORS - {")", "]", "}"}


def _kind_at(tokens: Sequence[Token], place: int) -> TokenType | None:
    return tokens[place].token_type if place < len(tokens) else None


def _second_text(tokens: Sequence[Token], start: int) -> bool:
    """Whether an argument of a call, but for the first, is a plain text."""
    depth = 1
    for place in range(start, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if depth == 0:
            return False
        if depth == 1 and kind == TokenType.STRING and tokens[place - 1].token_type == TokenType.COMMA:
            return True
    return False


def _kinds(tokens: Sequence[Token], start: int, count: int) -> list[TokenType | None]:
    """Of which kinds some tokens are: parentheses, texts and casts, or else None."""
    told = (TokenType.L_PAREN, TokenType.STRING, TokenType.DCOLON)
    return [token.token_type if token.token_type in told else None for token in tokens[start : start + count]]


def _first_words(sql: str, dialect: str | None) -> list[str]:
    found = _WORDS.match(sql, first_place(sql))
    if found is not None:
        return found[0].upper().split()
    return [token.text.upper() for token in _tokens(sql[:1_000], dialect)[:6]]


def _object_of(words: Sequence[str]) -> str:
    return next((word for word in words[1:] if word in _OBJECTS), "")


def _verb_after_with(sql: str, dialect: str | None) -> str:
    tokens = _tokens(sql, dialect)
    place = verb_place(tokens)
    return tokens[place].text.upper() if place else ""


def _is_copy_from(sql: str, dialect: str | None) -> bool:
    depth = 0
    for token in _tokens(sql, dialect)[1:]:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.text.upper() in ("FROM", "TO"):
            return token.text.upper() == "FROM"
    return False


def _tokens(sql: str, dialect: str | None) -> list[Token]:
    """The tokens as far as they can be told; none for text that cannot be cut into words."""
    try:
        return tokenized(sql, dialect)
    except ValueError as error:
        raise SqlError(f"the statement cannot be read as {dialect} SQL: {one_line(str(error))}") from None
    except SqlError:
        return []
