"""`ballista-py sql --file`: the statements of a file, one after the other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.cli.connecting import print_rows, some, visible

MAX_SCRIPT_BYTES = 1 << 20  # as of one statement
SHOWN_CHARS = 60


def script_of(file: Path) -> str:
    """What the file holds; `-` is standard input. Raises `ConfigError` for one that cannot be read, or is too long."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_SCRIPT_BYTES + 1)
        if len(data) > MAX_SCRIPT_BYTES:
            raise ConfigError(
                f"--file {file}: more than {MAX_SCRIPT_BYTES >> 20} MiB; cut it, or ingest what is rows"
            )
        return data.decode()
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"--file {file}: byte {error.start} is not UTF-8") from None


def one_statement_of(file: Path) -> str:
    """The statement in a file. Raises `ConfigError` for another number of them, and as `script_of`."""
    from ballista_py.sql.parse.scripts import statements_of

    found = statements_of(script_of(file))
    if len(found) != 1:
        raise ConfigError(f"--file {file}: it holds {some(len(found), 'statement')}, and a job is one")
    return found[0].text


def run_script(script: str, client: Any, dialect: str | None, engine: str | None, as_json: bool) -> None:
    """Run the statements and print what each gives; the first error ends it, and names its statement.

    Raises `ConfigError` for a script without a statement, before anything runs, and the error of the statement.
    """
    from ballista_py.sql.parse.scripts import statements_of

    with client:
        statements = statements_of(script)
        if not statements:
            raise ConfigError("there is no statement in the file")
        for number, statement in enumerate(statements, start=1):
            try:
                table = client.query(statement.text, dialect=dialect, engine=engine).table
            except BallistaError as error:
                place = f"statement {number} of {len(statements)}, line {statement.line}"
                raise type(error)(f"{place}: {error.message}", **error.details) from None
            if as_json:
                _print_line({"statement": number, "columns": table.column_names, "rows": table.to_pylist()})
                continue
            print(f"-- {number}: {visible(' '.join(statement.text.split())[:SHOWN_CHARS])}")
            print_rows(table)


def _print_line(value: Any) -> None:
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS) + b"\n")
    sys.stdout.buffer.flush()
