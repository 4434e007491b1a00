"""`ballista-py sql --file`: the statements of a file, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.cli.connecting import json_bytes, print_rows, some, visible, write_out

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
    with client:
        if not _run(script, client, dialect, engine, as_json):
            raise ConfigError("there is no statement in the file")


def run_piped(script: str, client: Any) -> None:
    """What comes into the shell from a file or a pipe: statements, and lines that are commands of the shell.

    The first error ends it. Raises as `run_script`, and `ConfigError` for a command that there is not.
    """
    if not any(line.startswith(".") for line in script.splitlines()):
        run_script(script, client, None, None, as_json=False)
        return
    from ballista_py.node.cli.shell import Shell  # what a terminal needs comes with it

    with client:
        shell = Shell(client)
        for is_command, text in _parts(script):
            if not is_command:
                _run(text, client, None, None, as_json=False)
            elif not shell.command(text.strip()):
                return


def _parts(script: str) -> Iterator[tuple[bool, str]]:
    """Commands of the shell, and what stands between them, with empty lines before it so that its lines count right."""
    begun, first = "", 0
    for number, line in enumerate(script.splitlines(keepends=True)):
        if line.startswith(".") and _has_ended(begun):
            yield False, "\n" * first + begun
            yield True, line
            begun, first = "", number + 1
        else:
            begun += line
    yield False, "\n" * first + begun


def _has_ended(text: str) -> bool:
    """Whether a line behind it is none of a statement's."""
    from ballista_py.sql.parse.scripts import is_whole, statements_of

    try:
        return is_whole(text) or not statements_of(text)
    except BallistaError:  # amid quotes
        return False


def _run(script: str, client: Any, dialect: str | None, engine: str | None, as_json: bool) -> int:
    """How many statements of the script were run, all of them."""
    from ballista_py.node.json_values import json_rows
    from ballista_py.sql.parse.scripts import statements_of

    statements = statements_of(script)
    for number, statement in enumerate(statements, start=1):
        try:
            table = client.query(statement.text, dialect=dialect, engine=engine).table
        except BallistaError as error:
            place = f"statement {number} of {len(statements)}, line {statement.line}"
            raise type(error)(f"{place}: {error.message}", **error.details) from None
        if as_json:
            _print_line({"statement": number, "columns": table.column_names, "rows": json_rows(table)})
            continue
        print(f"-- {number}: {visible(' '.join(statement.text.split())[:SHOWN_CHARS])}")
        print_rows(table)
    return len(statements)


def _print_line(value: Any) -> None:
    write_out(json_bytes(value, indent=False) + b"\n")
    sys.stdout.buffer.flush()
