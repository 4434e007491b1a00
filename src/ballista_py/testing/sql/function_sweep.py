"""Every function that a statement may call, over partitions and on a single node; and whether the parser keeps it.

`python -m ballista_py.testing.sql.function_sweep` asks for every overload in the engine's catalog, with arguments of
its types, in statements that compute it per row, per group and over the key of the group, and prints where a cluster
answers otherwise than a single node, in value or type. `kept_by_parser` tells whether a call that goes through the
parser and back is still the same call to the engine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import BallistaError
from ballista_py.runtime import seeded_chance
from ballista_py.sql.bind.engine_functions import aggregates, allowed_calls
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, SqlglotError, parsed_one
from ballista_py.testing.sql.single_node import InProcessCluster

_SERIALIZE = "select json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"
_CATALOG = """
    select distinct lower(function_name) as name, parameter_types, coalesce(varargs, '') as more
    from duckdb_functions() where function_type in ('scalar', 'aggregate', 'macro')
    and regexp_full_match(function_name, '[A-Za-z_][A-Za-z0-9_]*') order by all
"""
_ALIASES = """
    select distinct lower(function_name), lower(alias_of) from duckdb_functions() where alias_of is not null
"""
_PLACES = frozenset((
    "query_location", "query_location_length", "alias", "is_operator", "qualified_name", "schema", "catalog"
))  # fmt: skip
_UNLIKE = ("x", "y", "z", "w")
_ARGUMENTS: tuple[tuple[str, ...], ...] = (
    (), ("x",), ("x", "y"), _UNLIKE[:3], _UNLIKE, ("'a'",), ("x", "'a'"), ("'a'", "x"), ("'year'", "x", "y"),
    ("x", "'a'", "'b'"), ("x", "'a'", "'b'", "'g'"), ("x", "'a'", "1", "'i'"), ("x", "1"), ("x", "2", "3"),
    ("'year'", "x"), ("1", "x"), ("x + 1", "y * 2"), ("interval '1' day", "x"), ("x", "interval '1' day"),
    ("[1, 2]", "x"), ("x", "lambda a: a"), ("x", "lambda a, b: a", "y"), ("null",), ("x", "null"), ("x", "true"),
)  # fmt: skip
_CONTEXTS = ("{}", "1 + {}", "{} = 1", "not {}", "-{}", "{}::text", "{} in (1, 2)", "{} is null", "x || {}")
# What gives another value at each run, or depends on the order of rows.
VOLATILE = frozenset((
    "random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "now", "today", "current_date", "get_current_time",
    "get_current_timestamp", "transaction_timestamp", "current_localtime", "current_localtimestamp", "ago", "age",
    "pg_conf_load_time", "pg_postmaster_start_time", "reservoir_quantile", "vector_type", "error", "assert_true",
    "unnest", "generate_subscripts", "regexp_split_to_table",
))  # fmt: skip
ORDERED = frozenset((
    "first", "last", "any_value", "arbitrary", "list", "array_agg", "string_agg", "group_concat", "listagg", "mode",
    "arg_max", "arg_min", "argmax", "argmin", "max_by", "min_by", "arg_max_null", "arg_min_null", "arg_max_nulls_last",
    "arg_min_nulls_last", "approx_quantile", "approx_top_k", "json_group_array", "json_group_object", "lttb",
    "json_group_structure", "approx_count_distinct",
))  # fmt: skip
# The bins are those of the first row, so only constants have one answer.
FIRST_ROW_DECIDES = frozenset(("histogram", "histogram_exact"))


@frozen
class Swept:
    """One statement that a single node can run. `wrong` says how the cluster's answer differs, or is None."""

    function: str
    sql: str
    wrong: str | None


def kept_by_parser(name: str, counts: frozenset[int]) -> tuple[str, str] | None:
    """A call of so many arguments that the parser makes another of, and what it makes; None if it keeps them all."""
    connection, names = duckdb.connect(), _aliases()

    def tree(sql: str) -> Any:
        row = connection.execute(_SERIALIZE, [sql]).fetchall()[0][0]
        found = json.loads(row)
        return None if found["error"] else _same(found["statements"][0]["node"]["select_list"], names)

    for arguments in _ARGUMENTS:
        if len(arguments) not in counts:
            continue
        for context in _CONTEXTS if arguments in _ARGUMENTS[:4] else _CONTEXTS[:1]:
            sql = "select " + context.format(f"{name}({', '.join(arguments)})")
            meant = tree(sql)
            try:
                written = None if meant is None else parsed_one(sql).sql(ENGINE_DIALECT)
            except (SqlglotError, ValueError):
                continue  # without a tree it runs as it stands
            if written is not None and tree(written) != meant:
                return sql, written
    return None


def counts_of_arguments() -> Mapping[str, frozenset[int]]:
    """How many arguments each function of the catalog takes, up to four."""
    found: dict[str, set[int]] = {}
    for name, types, more in duckdb.connect().execute(_CATALOG).fetchall():
        found.setdefault(name, set()).update(range(len(types), 5) if more else [len(types)])
    return {name: frozenset(counts) for name, counts in found.items()}


def _aliases() -> dict[str, str]:
    return dict(duckdb.connect().execute(_ALIASES).fetchall())


def _same(element: Any, aliases: Mapping[str, str]) -> Any:
    """A piece of a statement without what does not change its meaning."""
    if isinstance(element, list):
        return [_same(item, aliases) for item in element]
    if not isinstance(element, dict):
        return element
    kept = {key: _same(value, aliases) for key, value in element.items() if key not in _PLACES}
    if "function_name" in kept:
        name = str(kept["function_name"]).lower()
        kept["function_name"] = aliases.get(name, name)
    if "type_name" in kept:
        kept["type_name"] = str(kept["type_name"]).lower()
    return kept


def statements(share: float = 1.0, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(function, statement) for every overload that may be called; of all of them a share by chance."""
    chance = seeded_chance(seed)
    for name, types, more in duckdb.connect().execute(_CATALOG).fetchall():
        if name not in allowed_calls() or name in VOLATILE or "collate" in name or chance.random() > share:
            continue
        lengths = {len(types), max(1, len(types)), 2} if more else {len(types)}
        for length in sorted(lengths):
            kinds = [types[n] if n < len(types) else more for n in range(length)]
            yield from _of(name, kinds)


def _of(name: str, kinds: list[str | None]) -> Iterator[tuple[str, str]]:
    columns = ", ".join(_column(kind, place) for place, kind in enumerate(kinds))
    constants = ", ".join([_column(kind, 0) if not place else _constant(kind) for place, kind in enumerate(kinds)])
    keys = ", ".join([_key(kind) if not place else _constant(kind) for place, kind in enumerate(kinds)])
    if name in aggregates():
        for arguments in dict.fromkeys((keys, ", ".join(map(_key, kinds)), ", ".join(map(_constant, kinds)))):
            yield name, f"select g, {name}({arguments}) as v from t group by g"
            yield name, f"select k, count(*) as n from t group by k having {name}({arguments}) is not null"
        if name not in ORDERED:
            for arguments in tuple(dict.fromkeys((columns, constants)))[
                len(kinds) > 1 and name in FIRST_ROW_DECIDES :
            ]:
                yield name, f"select g, {name}({arguments}) as v from t group by g"
                yield name, f"select {name}({arguments}) as v from t"
        return
    for arguments in dict.fromkeys((columns, constants)):
        call = f"{name}({arguments})"
        yield name, f"select id, {call} as v, cast({call} as text) as w from t"
        yield name, f"select count(*) as n, count({call}) as v from t where {call} is not null"
    yield name, f"select k, {name}({keys}) as v, count(*) as n from t group by k"


_COLUMNS: dict[str, tuple[str, ...]] = {
    "VARCHAR": ("s", "p", "s"), "BOOLEAN": ("b",), "DATE": ("d",), "TIMESTAMP": ("ts",),
    "TIMESTAMP WITH TIME ZONE": ("tz",), "TIME": ("tm",), "DOUBLE": ("f",), "FLOAT": ("f::float",), "BLOB": ("x",),
    "DECIMAL": ("m",), "INTERVAL": ("to_days(i)",), "JSON": ("j::json",), "BIT": ("i::bit",), "UUID": ("u::uuid",),
    "LAMBDA": ("lambda q: q",), "NULL": ("i",), "ANY[]": ("l",), "VARCHAR[]": ("[s, p]",), "ANY": ("i", "s", "i"),
    "MAP(ANY, ANY)": ("map {1: i}",), "MAP(K, V)": ("map {1: i}",), "STRUCT": ("{'a': i}",), "T": ("i",),
}  # fmt: skip
_CONSTANTS: dict[str, str] = {
    "VARCHAR": "'a'", "BOOLEAN": "true", "DATE": "date '2024-02-03'", "TIMESTAMP": "timestamp '2024-02-03 04:05:06'",
    "TIMESTAMP WITH TIME ZONE": "timestamptz '2024-02-03 04:05:06+00'", "TIME": "time '04:05:06'", "DOUBLE": "0.5",
    "FLOAT": "0.5::float", "BLOB": "'a'::blob", "DECIMAL": "0.5::decimal(4, 2)", "INTERVAL": "interval '1' day",
    "JSON": "'{}'::json", "BIT": "'101'::bit", "LAMBDA": "lambda q: q", "ANY[]": "[1, 2]", "VARCHAR[]": "['a', 'b']",
    "UUID": "'00000000-0000-0000-0000-000000000001'::uuid", "MAP(ANY, ANY)": "map {1: 2}", "STRUCT": "{'a': 1}",
}  # fmt: skip


def _column(kind: str | None, place: int) -> str:
    known = _COLUMNS.get(kind or "ANY")
    if known is not None:
        return known[min(place, len(known) - 1)]
    if kind is not None and kind.endswith("[]"):
        return f"l::{kind}" if "ANY" not in kind and kind[:-2] != "T" else "l"
    if kind is not None and kind.startswith("DECIMAL"):
        return "m"
    return f"(i % 20)::{kind}"


def _constant(kind: str | None) -> str:
    known = _CONSTANTS.get(kind or "ANY")
    if known is not None:
        return known
    return f"2::{kind}" if kind is not None and kind not in ("ANY", "T", "NULL") and "[" not in kind else "2"


def _key(kind: str | None) -> str:
    if kind in (None, "ANY", "T", "NULL"):
        return "g"
    if kind in (
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP WITH TIME ZONE",
        "TIME",
        "BLOB",
        "BIT",
        "UUID",
        "INTERVAL",
        "BOOLEAN",
    ):
        return f"case when g > 0 then {_constant(kind)} end"
    return f"g::{kind}" if "[" not in str(kind) and str(kind) not in ("LAMBDA", "STRUCT") else _constant(kind)


def table(rows: int = 60) -> pa.Table:
    """Rows of many types, each with nulls but the id and the keys."""
    numbers = range(rows)

    def with_nulls(values: list[Any], step: int) -> list[Any]:
        return [None if n % step == step - 1 else value for n, value in enumerate(values)]

    return pa.table({
        "id": pa.array(numbers, pa.int64()),
        "k": pa.array([n % 7 for n in numbers], pa.int64()),
        "g": pa.array([n % 3 + 1 for n in numbers], pa.int32()),
        "i": pa.array(with_nulls([n - 20 for n in numbers], 11), pa.int32()),
        "f": pa.array(with_nulls([n / 64 for n in numbers], 9), pa.float64()),
        "m": pa.array(with_nulls([Decimal(n) / 4 for n in numbers], 8), pa.decimal128(10, 2)),
        "s": pa.array(with_nulls([f"Ab{n}c" for n in numbers], 7), pa.string()),
        "p": pa.array(with_nulls(["b" * (n % 3) for n in numbers], 13), pa.string()),
        "j": pa.array([f'{{"a": [{n}, "x"]}}' for n in numbers], pa.string()),
        "u": pa.array([f"00000000-0000-4000-8000-{n:012}" for n in numbers], pa.string()),
        "b": pa.array(with_nulls([n % 2 == 0 for n in numbers], 5), pa.bool_()),
        "d": pa.array(with_nulls([date(2024, 1 + n % 12, 1 + n % 28) for n in numbers], 6), pa.date32()),
        "ts": pa.array(
            with_nulls([datetime(2024, 1 + n % 12, 3, n % 24, n, 5, n) for n in numbers], 6), pa.timestamp("us")
        ),
        "tz": pa.array(
            with_nulls([datetime(2024, 1 + n % 12, 3, n % 24, n, tzinfo=UTC) for n in numbers], 10),
            pa.timestamp("us", "UTC"),
        ),
        "tm": pa.array(with_nulls([time(n % 24, n, 5) for n in numbers], 6), pa.time64("us")),
        "x": pa.array(with_nulls([bytes([n, 65]) for n in numbers], 7), pa.binary()),
        "l": pa.array(with_nulls([[n, None, 3][: n % 4] for n in numbers], 6), pa.list_(pa.int32())),
    })  # fmt: skip


def sweep(share: float = 1.0, seed: int = 0) -> Iterator[Swept]:
    """Ask for the statements of a share; what a single node refuses is left out."""
    with InProcessCluster(executors=3, max_bytes=64 << 20) as cluster:
        cluster.add("t", table(), "bucket(5, k)")
        for name, sql in statements(share, seed):
            try:
                cluster.single(sql)
            except BallistaError:
                continue
            try:
                cluster.check(sql)
            except (AssertionError, BallistaError) as error:
                yield Swept(name, sql, str(error))
            else:
                yield Swept(name, sql, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asked, wrong, functions = 0, 0, set()
    for one in sweep(options.share, options.seed):
        asked += 1
        functions.add(one.function)
        if one.wrong is not None:
            wrong += 1
            print(f"{one.sql}\n    {' '.join(one.wrong.split())[:300]}", flush=True)
    print(f"{asked:,} statements of {len(functions):,} functions, {wrong:,} answered otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
