"""Calls that nobody would write: `python -m ballista_py.testing.sql.odd_calls --calls 100000`.

Every function that a statement may use is called with columns of types that it may never have seen: structs, unions,
bits, infinities. The engine may refuse and may fail; it must not end its process, which would be a node. Each call runs
in a process of its own making; the one that ended it is printed, and then the status is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.runtime import seeded_chance
from ballista_py.sql.bind.engine_functions import EngineFunction, engine_functions

HANGS_S = 5  # for which nothing is over: that is no crash, statements have a time limit
_MODULE = "ballista_py.testing.sql.odd_calls"
_ROWS = 3
_COLUMNS = {
    "int": "null, -2147483648, 7", "utinyint": "0, 255, null", "bigint": "9223372036854775807, null, -1",
    "hugeint": "170141183460469231731687303715884105727, null, 0", "decimal(38, 10)": "null, 1.5, -99999999999.1",
    "decimal(4, 1)": "1.5, -999.9, null", "float": "'nan', 'inf', null", "double": "'-inf', 0, 1e308",
    "varchar": "'', null, 'é👩‍👧x'", "blob": "'\\xff\\x00'::blob, null, ''::blob", "bit": "'0101', null, '1'",
    "boolean": "true, null, false", "date": "'infinity', '-infinity', null", "time": "'24:00:00', null, '00:00:01'",
    "timestamp": "'infinity', null, '2020-02-29 01:02:03.456789'", "timestamptz": "'-infinity', now(), null",
    "timestamp_ns": "'2020-02-29 01:02:03.456789123', null, '1970-01-01'",
    "timetz": "'01:02:03+15:59', null, '00:00:00-15'",
    "interval": "interval 1 month, interval (-99999) year, null", "uuid": "uuid(), null, uuid()",
    "int[]": "[], null, [1, null]", "varchar[]": "['a'], null, [null]", "int[2]": "[1, null], null, [3, 4]",
    "int[][]": "[[]], null, [[1], null]",
    "struct(x int, y varchar)": "{'x': 1, 'y': 'a'}, null, {'x': null, 'y': null}",
    "struct(x int, y varchar)[]": "[{'x': 1, 'y': 'a'}], null, []", "map(varchar, int)": "map {'a': 1}, null, map {}",
    "union(n int, s varchar)": "1, 'a', null", "json": "'{\"a\": [1]}', null, '1'",
    "enum('p', 'q')": "'p', null, 'q'",
}  # fmt: skip
_CONSTANTS = (
    "null", "0", "-1", "9223372036854775807", "'%'", "'YEAR'", "'$.a'", "[1, 2]", "{'x': 1}", "'1 day'::interval", "''",
    "0.5",
    "[0.1, 0.9]", "lambda x: x", "lambda x, y: x", "map {1: 2}", "1e308", "'sum'", "'UTC'",
)  # fmt: skip
_PLACES = (
    "select {} from odd",
    "select 1 from odd where ({}) is not null",
    "select count(*) from odd group by {}",
)
_OVER_ROWS = (
    "select {} from odd", "select {} filter (where c0 is not null) from odd", "select {} over () from odd",
    "select {} over (order by c0 rows between 1 preceding and 9223372036854775807 following) from odd",
    "select {} over (partition by c6 order by c1 range between unbounded preceding and current row exclude ties) "
    "from odd",
)  # fmt: skip


def calls(names: Sequence[EngineFunction], seed: int, count: int) -> Iterator[str]:
    """So many calls of these functions, the same ones for a seed; most have as many arguments as a form of theirs."""
    chance, forms = seeded_chance(seed), _forms()
    for _ in range(count):
        function = chance.choice(names)
        form = chance.choice(forms.get(function.name.lower(), [()]))
        if chance.random() < 0.1:
            form = ("ANY",) * chance.randrange(5)
        given = [_argument(chance, kind) for kind in form]
        name = function.name.replace('"', '""')
        over_rows = function.kind in ("aggregate", "window")
        distinct = "distinct " if over_rows and given and chance.random() < 0.2 else ""
        order = f" order by {given[0]}" if over_rows and given and chance.random() < 0.2 else ""
        places = _OVER_ROWS if over_rows else _PLACES
        yield chance.choice(places).format(f'"{name}"({distinct}{", ".join(given)}{order})')


@lru_cache(maxsize=1)
def _forms() -> Mapping[str, Sequence[Sequence[str]]]:
    """The types of arguments that each function of the engine takes, by its name in small letters."""
    found: dict[str, list[Sequence[str]]] = {}
    with duckdb.connect() as connection:
        asked = connection.execute(
            "select lower(function_name), parameter_types from duckdb_functions() where internal order by all"
        )
        for name, types in asked.fetchall():
            found.setdefault(name, []).append(tuple(kind or "ANY" for kind in types))
    return found


def allowed() -> list[EngineFunction]:
    """The functions that an expression may call."""
    kinds = ("scalar", "aggregate", "window", "macro")
    return [one for one in engine_functions() if one.allowed and one.kind in kinds]


def crashing(statements: Sequence[str]) -> str | None:
    """The first of the statements that ends the process of an engine, if one does; one that hangs is left out."""
    left = list(statements)
    with tempfile.TemporaryDirectory() as folder:
        asked, over = Path(folder, "asked"), Path(folder, "over")
        while left:
            asked.write_text("\n".join(left), "utf-8")
            over.write_bytes(b"")
            child = subprocess.Popen([sys.executable, "-m", _MODULE, "--run", folder], stderr=subprocess.DEVNULL)
            hung = _hangs(child, over)
            done = over.stat().st_size
            if done == len(left):
                return None
            if not hung:
                return left[done]
            left = left[done + 1 :]
    return None


def _hangs(child: subprocess.Popen[bytes], over: Path) -> bool:
    """Wait for the end of the process; whether it had to be ended, because nothing was over for `HANGS_S`."""
    done, waited = -1, 0
    while waited < HANGS_S:
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)
            return False
        waited = waited + 1 if over.stat().st_size == done else 0
        done = over.stat().st_size
    child.kill()
    child.wait()
    return True


def _run(folder: str) -> None:
    """Run the statements that are asked for, and write a letter for each that is over."""
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": "512MB"}
    columns = [f"c{place} {kind}" for place, kind in enumerate(_COLUMNS)]
    rows = [", ".join(_values(text)[row] for text in _COLUMNS.values()) for row in range(_ROWS)]
    connection = None
    with Path(folder, "over").open("wb", buffering=0) as over:
        for statement in Path(folder, "asked").read_text("utf-8").split("\n"):
            if connection is None:
                connection = duckdb.connect(config=config)
                connection.execute(f"create table odd ({', '.join(columns)})")
                for row in rows:
                    connection.execute(f"insert into odd values ({row})")
            try:
                connection.execute(statement).fetchmany(10)
            except (duckdb.FatalException, duckdb.InternalException):  # the database is used no more
                connection.close()
                connection = None
            except (duckdb.Error, ValueError, OverflowError, NotImplementedError):
                pass
            over.write(b".")


def _values(text: str) -> list[str]:
    """The values of a column, which are apart by commas outside of brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


def _argument(chance: Any, kind: str) -> str:
    """A column of that type, as a rule, or whatever there is."""
    fitting = [f"c{place}" for place, name in enumerate(_COLUMNS) if _is_like(name, kind)]
    if fitting and chance.random() < 0.7:
        return str(chance.choice(fitting))
    place = chance.randrange(len(_COLUMNS) + len(_CONSTANTS))
    return f"c{place}" if place < len(_COLUMNS) else _CONSTANTS[place - len(_COLUMNS)]


def _is_like(column: str, kind: str) -> bool:
    """Whether a column has about the type that an argument is to have.

    >>> _is_like("int[]", "T[]"), _is_like("int", "INTEGER"), _is_like("varchar", "BIGINT")
    (True, True, False)
    """
    column, kind = column.upper(), kind.upper()
    if kind.endswith("]") or column.endswith("]"):
        return kind.endswith("]") and column.endswith("]")
    return kind[:3] == column[:3] or (kind[:1] == "T" and len(kind) <= 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the calls; 1 when one ended its process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        _run(options.run)
        return 0
    found = crashing(list(calls(allowed(), options.seed, options.calls)))
    print(f"{options.calls} calls, seed {options.seed}: " + ("no process was ended" if found is None else found))
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
