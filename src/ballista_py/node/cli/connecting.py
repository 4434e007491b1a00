"""What the commands that ask a cluster have in common: how they reach it, and how they show what it says."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ballista_py.errors import ConfigError, TransportError
from ballista_py.node.cli.choices import choice

if TYPE_CHECKING:
    from rich.table import Table

Engine = Annotated[
    str | None,
    typer.Option(
        help="spark: run it there; auto: if its merge would be too large; default: the cluster",
        parser=choice("spark", "auto"),
        metavar="[spark|auto]",
    ),
]
Dialect = Annotated[
    str | None, typer.Option(help="the dialect of the statement; default: DuckDB's", metavar="NAME")
]
Statement = Annotated[
    str, typer.Argument(help="the statement; '-' reads it from standard input", metavar="STATEMENT")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
DEFAULT_CONNECT = "127.0.0.1:50051"
MAX_SHOWN_ROWS = 100
FILE_WIDTH = 200
_CONNECTION = {
    "connect": (
        Annotated[str, typer.Option(help="any scheduler", envvar="BALLISTA_CONNECT", metavar="HOST:PORT")],
        DEFAULT_CONNECT,
    ),
    "token": (
        Annotated[str | None, typer.Option(help="says who you are", envvar="BALLISTA_TOKEN", metavar="TOKEN")],
        None,
    ),
    "tls_ca": (
        Annotated[
            str | None,
            typer.Option(help="PEM: speak TLS and trust this authority", envvar="BALLISTA_TLS_CA", metavar="FILE"),
        ],
        None,
    ),
}


def asks_cluster_after(check: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `asks_cluster`, of a command whose words are looked at by `check` before the cluster is asked."""
    return lambda run: asks_cluster(run, check)


def asks_cluster(run: Callable[..., None], check: Callable[..., None] | None = None) -> Callable[..., None]:
    """The command that runs `run`, whose first argument is a client of the cluster that --connect names.

    The options by which it is reached are the same for all such commands, and stand before their other ones.
    """
    hints = get_type_hints(run, include_extras=True)
    own = list(signature(run).parameters.values())[1:]

    def command(connect: str, token: str | None, tls_ca: str | None, **given: Any) -> None:
        if check is not None:
            check(**given)
        with client_of(connect, token, tls_ca) as client:
            run(client, **given)

    words = [one for one in own if one.default is Parameter.empty]
    options = [one for one in own if one.default is not Parameter.empty]
    reached = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in _CONNECTION.items()
    ]
    shown = [
        *(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in words),
        *reached,
        *(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in options),
    ]
    command.__signature__ = signature(run).replace(parameters=shown)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {one.name: one.annotation for one in shown}
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    return command


def one_of_both(query: str | None, file: Path | None, **_options: Any) -> None:
    """Raise `BadParameter` unless there is a statement or a file of them, and not both."""
    if (query is None) == (file is None):
        raise typer.BadParameter("give one statement, or a file with --file")


def client_of(connect: str, token: str | None, tls_ca: str | None) -> Any:
    """A client of the cluster that has a scheduler there."""
    from ballista_py.transport.client.client import connect as connect_client
    from ballista_py.transport.security.credentials import Tls

    try:
        return connect_client(connect, token=token, tls=None if tls_ca is None else Tls(ca_file=tls_ca))
    except TransportError as error:
        if type(error) is not TransportError:
            raise
        way_out = "another one is named by --connect HOST:PORT or BALLISTA_CONNECT"
        raise TransportError(f"{error.message}: {way_out}", **error.details) from None


def text_of(query: str) -> str:
    """The statement, which `-` reads from standard input. Raises `ConfigError` for an empty one."""
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise ConfigError("the statement is empty")
    return text


def print_json(value: Any) -> None:
    """Print a value for programs."""
    write_out(json_bytes(value) + b"\n")


def write_out(data: bytes) -> None:
    """Write all of it to standard output, which takes only a part at once where Python is told not to buffer."""
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def json_bytes(value: Any, *, indent: bool = True) -> bytes:
    r"""JSON for programs; a name of a file that is not UTF-8 is written as Python has it.

    >>> json_bytes({"file": "\udcff"}, indent=False)
    b'{"file": "\\udcff"}'
    """
    import orjson

    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, default=str, option=options)
    except orjson.JSONEncodeError:
        return json.dumps(value, default=str, indent=2 if indent else None).encode()


def print_rows(table: Any) -> None:
    """Print the first rows of a table for people."""
    from rich.console import Console

    shown, count = rows_shown(table, MAX_SHOWN_ROWS)
    Console().print(shown)
    print(count)


def print_table(
    names: Iterable[str], rows: Iterable[Iterable[str]], *, wide: bool = False, whole: bool = False
) -> None:
    """Print texts in columns for people; without a name in `names`, without a head.

    `wide` is for a file, too; with `whole` nothing is cut of the first column, whatever that leaves to the others.
    """
    from rich.console import Console
    from rich.table import Column, Table

    heads = [Column(name, overflow="fold") for name in names]  # what is too wide goes on below: nothing is cut
    table = Table(*heads, show_header=bool(heads))
    lines = [tuple(row) for row in rows]
    if whole:
        table.columns[0].no_wrap = True
        table.columns[0].min_width = max((len(line[0]) for line in lines), default=0)
    for row in lines:
        table.add_row(*map(escaped, row))
    console = Console(width=FILE_WIDTH) if wide and not sys.stdout.isatty() else Console()
    console.print(table)


def rows_shown(table: Any, most: int) -> tuple[Table, str]:
    """The first `most` rows of a table as people see them, and a line that says how many there are."""
    from rich.table import Table

    from ballista_py.node.json_values import shown_rows

    shown = Table(*(escaped(name) for name in table.column_names))
    for row in shown_rows(table.slice(0, most)):
        shown.add_row(*map(escaped, row))
    hidden = table.num_rows - most
    more = f" ({hidden} more not shown)" if hidden > 0 else ""
    return shown, f"{some(table.num_rows, 'row')}{more}"


def some(count: int, word: str) -> str:
    """
    >>> some(1, "row"), some(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def escaped(text: str) -> str:
    """The text as rich shows it, with nothing in it that a terminal would obey."""
    from rich.markup import escape

    return escape(visible(text))


def visible(text: str) -> str:
    """The text with what a terminal would obey, and signs that nobody sees, written out; it may be anybody's.

    >>> print(visible("a\\x1b[31m b\\u202e\\n"), end="")
    a\\x1b[31m b\\u202e
    """
    return "".join(sign if sign.isprintable() or _is_blank(sign) else _written_out(sign) for sign in text)


def _is_blank(sign: str) -> bool:
    return sign in "\n\t" or unicodedata.category(sign) == "Zs"


def _written_out(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode()
