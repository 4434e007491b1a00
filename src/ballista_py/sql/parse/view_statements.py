"""CREATE VIEW, DROP VIEW and COMMENT ON VIEW as what is to be done; pure.

The words are read one by one, as those of ALTER TABLE are: what stands before the query and is not read here is refused
by its name. The query keeps its own text.
"""

from __future__ import annotations

from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import blank, one_line, statement_kind
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table
from ballista_py.sql.parse.table_references import table_references

_KINDS = {
    "TEMP": "every view is there for all",
    "TEMPORARY": "every view is there for all",
    "LOCAL": "every view is there for all",
    "GLOBAL": "every view is there for all",
    "RECURSIVE": "say WITH RECURSIVE in its query",
    "MATERIALIZED": "CREATE MATERIALIZED VIEW v PARTITIONED BY (bucket(16, id)) AS SELECT …",
    "SECURE": "who may do what is configured at the nodes",
}
_KEEPS_ROWS = (
    "a view has no rows of its own: CREATE MATERIALIZED VIEW … PARTITIONED BY … AS keeps those of its query"
)
_BEFORE_QUERY = {
    "PARTITIONED": _KEEPS_ROWS,
    "PARTITION": _KEEPS_ROWS,
    "WITH": "a view has no options, no schedule and no retention: give them to the tables that it reads",
    "USING": "a view has no format: say AS and its query",
    "OPTIONS": "a view has no options: say AS and its query",
    "TBLPROPERTIES": "a view has no properties: say AS and its query",
    "COMMENT": "send COMMENT ON VIEW after it",
}


@frozen(kw_only=True)
class CreateView:
    """A view of `query`, which stands where it stands in the text; its columns are named so, or as the query does.

    If it `replaces`, the view of that name has this query from then on. `reads` are the tables and views in it.
    """

    view: str
    query: str
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    if_not_exists: bool = False
    replaces: bool = False


@frozen(kw_only=True)
class DropViews:
    """The end of one or several views."""

    views: tuple[str, ...]
    if_exists: bool = False


@frozen(kw_only=True)
class CommentView:
    """Words about a view; none for None."""

    view: str
    text: str | None


ViewStatement = CreateView | DropViews | CommentView


def read_view_statement(text: StatementText) -> ViewStatement:
    """The statement, of which `kind.is_of_view` is true. Raises `SqlError` for what is not done here."""
    first = text.tokens[0].text.upper()
    if first == "CREATE":
        return _created(text)
    return _dropped(text) if first == "DROP" else _commented(text)


def require_plain_view(tree: exp.Expr, dialect: str) -> None:
    """Refuse what other dialects say of a view besides its columns and its query: nothing would come of it."""
    if not isinstance(tree, exp.Create) or str(tree.args.get("kind")).upper() != "VIEW":
        return
    properties = tree.args.get("properties")
    for item in properties.expressions if properties is not None else ():
        said = "TEMPORARY" if isinstance(item, exp.TemporaryProperty) else one_line(item.sql(dialect))
        raise SqlError(f"CREATE VIEW with {said} cannot be run here: say its name, its columns, AS and its query")


def _created(text: StatementText) -> CreateView:
    replaces = _says(text, 1, "OR", "REPLACE")
    place = 3 if replaces else 1
    while not text.says(place, "VIEW"):
        word = text.tokens[place].text.upper()
        raise SqlError(f"CREATE {word} VIEW cannot be run here: {_KINDS.get(word, 'CREATE VIEW v AS SELECT …')}")
    place += 1
    if_not_exists = _says(text, place, "IF", "NOT", "EXISTS")
    place += 3 if if_not_exists else 0
    if if_not_exists and replaces:
        raise SqlError("CREATE VIEW takes OR REPLACE or IF NOT EXISTS, not both")
    name, place = _name(text, place)
    columns: tuple[str, ...] = ()
    if text.opens(place):
        columns, place = _columns(text, place)
    if place >= len(text.tokens) or not text.says(place, "AS"):
        found = text.tokens[place].text.upper().split()[0] if place < len(text.tokens) else "the end"
        instead = _BEFORE_QUERY.get(found, "CREATE VIEW v [(names)] AS SELECT …")
        raise SqlError(f"CREATE VIEW with {found[:80]} before AS cannot be run here: {instead}")
    if place + 1 >= len(text.tokens):
        raise SqlError("CREATE VIEW needs a query behind AS")
    start = text.tokens[place + 1].start
    end = text.tokens[-1].end + 1
    query = blank(text.plain[:start]) + text.plain[start:end]
    if statement_kind(query) != "query":
        raise SqlError(
            f"view '{name}' is to be of a query of tables and views: what changes something, or is told by the "
            "cluster (information_schema, runtime, SHOW, DESCRIBE), cannot be one"
        )
    reads = dict.fromkeys(found.name for found in table_references(text.tokens[place + 1 :]))
    return CreateView(
        view=name,
        query=query,
        columns=columns,
        reads=tuple(reads),
        if_not_exists=if_not_exists,
        replaces=replaces,
    )


def _columns(text: StatementText, place: int) -> tuple[tuple[str, ...], int]:
    end = text.group_end(place)
    names = []
    for start, stop in text.pieces(place, end):
        token = text.tokens[start + 1]
        if stop != start + 2 or token.token_type == TokenType.STRING:
            raise SqlError(
                f"'{text.between(start, stop)[:80]}' is no name of a column: a view takes its types from its query"
            )
        names.append(token.text)
    return tuple(names), end + 1


def _dropped(text: StatementText) -> DropViews:
    if_exists = _says(text, 2, "IF", "EXISTS")
    place = 4 if if_exists else 2
    names = []
    while True:
        name, place = _name(text, place)
        names.append(name)
        if place >= len(text.tokens) or text.tokens[place].token_type != TokenType.COMMA:
            break
        place += 1
    if place < len(text.tokens) and not (place + 1 == len(text.tokens) and text.says(place, "RESTRICT")):
        word = text.tokens[place].text.upper()
        raise SqlError(f"DROP VIEW with {word[:80]} cannot be run here: name each view that is to go")
    return DropViews(views=tuple(dict.fromkeys(names)), if_exists=if_exists)


def _commented(text: StatementText) -> CommentView:
    name, place = _name(text, 3)
    rest = text.tokens[place:]
    if len(rest) != 2 or not text.says(place, "IS"):
        raise SqlError("COMMENT ON VIEW v IS 'text', or IS NULL")
    is_null = rest[1].token_type != TokenType.STRING
    if is_null and not text.says(place + 1, "NULL"):
        raise SqlError("COMMENT ON VIEW v IS 'text', or IS NULL")
    return CommentView(view=name, text=None if is_null else rest[1].text)


def _name(text: StatementText, place: int) -> tuple[str, int]:
    """The name that begins at a token, and which token follows it."""
    end = place + 1
    while end + 1 < len(text.tokens) and text.tokens[end].token_type == TokenType.DOT:
        end += 2
    if place >= len(text.tokens):
        raise SqlError("the statement ends before the name of a view")
    return plain_table(text.tokens[place:end]), end


def _says(text: StatementText, place: int, *words: str) -> bool:
    inside = place + len(words) <= len(text.tokens)
    return inside and all(text.says(place + number, word) for number, word in enumerate(words))
