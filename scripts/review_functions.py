"""Show what the installed DuckDB has that nobody has reviewed: `python scripts/review_functions.py [--write]`.

Every function and type of its catalog is compared with `src/ballista_py/sql/bind/engine_functions.tsv`. What is new,
gone, or computed from something else than before is printed, with the engine's own words on it, and the exit status
is 1. `--write` brings the list up to date: what is new is refused as "not reviewed", until a person writes another
verdict. What a macro expands to must be allowed, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import duckdb

from ballista_py.sql.bind.engine_functions import LIST, EngineFunction, engine_functions

HEADER = "name\tkind\tover\tverdict\treason\n"
NOT_REVIEWED = "not reviewed"
OVER = {
    "scalar": "row",
    "aggregate": "rows",
    "window": "window",
    "table": "relation",
    "table_macro": "relation",
    "pragma": "session",
}
SERIALIZE = "select json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"
CATALOG = """
    select lower(function_name), function_type, list(distinct macro_definition), coalesce(any_value(description), '')
    from duckdb_functions() where function_name is not null group by all
"""
TYPES = "select distinct lower(type_name) from duckdb_types() where database_name = 'system'"


def calls_in(tree: Any) -> Iterator[str]:
    """The functions that a statement, as DuckDB writes it down, calls, and the tables that it reads."""
    if isinstance(tree, list):
        for item in tree:
            yield from calls_in(item)
    elif isinstance(tree, dict):
        if "class" in tree and tree.get("function_name"):
            yield str(tree["function_name"]).lower()
        if tree.get("type") == "BASE_TABLE":
            yield "table " + str(tree["table_name"])
        for value in tree.values():
            yield from calls_in(value)


def expansion(definition: str, connection: duckdb.DuckDBPyConnection) -> set[str]:
    """What a macro calls."""
    for text in (f"select {definition}", definition):
        tree = json.loads(connection.cursor().execute(SERIALIZE, [text]).fetchall()[0][0])
        if not tree["error"]:
            return set(calls_in(tree["statements"]))
    raise ValueError(f"the engine cannot read its own macro: {definition}")


def installed() -> tuple[dict[tuple[str, str], EngineFunction], dict[str, set[str]], dict[tuple[str, str], str]]:
    """The functions and types of the installed DuckDB, what each macro calls, and the engine's words on them."""
    connection = duckdb.connect()
    rows = connection.cursor().execute(CATALOG).fetchall()
    types = [name for (name,) in connection.cursor().execute(TYPES).fetchall()]
    expansions: dict[str, set[str]] = {}
    for name, kind, definitions, _ in rows:
        if kind == "macro":
            calls = (expansion(one, connection) for one in definitions if one)
            expansions[name] = set().union(*calls) - {name}
    many = {name for name, kind, _, _ in rows if kind == "aggregate"}
    while more := {name for name, calls in expansions.items() if name not in many and calls & many}:
        many |= more
    records = {}
    for name, kind, _, _ in rows:
        over = OVER.get(kind) or ("rows" if name in many else "row")
        records[name, kind] = EngineFunction(name=name, kind=kind, over=over, allowed=False, reason=NOT_REVIEWED)
    for name in types:
        records[name, "type"] = EngineFunction(
            name=name, kind="type", over="-", allowed=False, reason=NOT_REVIEWED
        )
    return records, expansions, {(name, kind): words for name, kind, _, words in rows}


def compared() -> tuple[list[str], list[EngineFunction]]:
    """What differs from the list, in words, and the list as it would be written."""
    records, expansions, words = installed()
    known = {(one.name, one.kind): one for one in engine_functions()}
    said = [f"new: {kind} {name}: {words.get((name, kind), '')}" for name, kind in records.keys() - known.keys()]
    said += [f"gone: {kind} {name}" for name, kind in known.keys() - records.keys()]
    for key, one in known.items():
        fresh = records.get(key)
        if fresh is None:
            continue
        if fresh.over != one.over:
            said.append(f"changed: {one.kind} {one.name} is computed from {fresh.over}, the list says {one.over}")
        records[key] = attrs.evolve(one, over=fresh.over)
    refused = {
        one.name for one in records.values() if not one.allowed and one.kind not in ("pragma", "table_macro")
    }
    for name, calls in expansions.items():
        bad = sorted(call for call in calls if call in refused or call.startswith("table "))
        if records[name, "macro"].allowed and bad:
            said.append(f"macro {name} is allowed and expands to what is not: {', '.join(bad)}")
    return sorted(said), [records[key] for key in sorted(records)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="bring the list up to date")
    said, records = compared()
    if parser.parse_args().write:
        lines = (
            "\t".join((one.name, one.kind, one.over, "allowed" if one.allowed else "refused", one.reason))
            for one in records
        )
        path = Path(__file__).parent.parent / "src" / "ballista_py" / "sql" / "bind" / LIST
        path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    print("\n".join(said) or f"DuckDB {duckdb.__version__} has nothing that is not on the list")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
