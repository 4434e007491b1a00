"""Statements that try to get out: `python -m ballista_py.testing.sql.guard_fuzz --statements 100000`.

Each is a harmless statement with one thing in it that no client may use (a function, a relation, a type, a clause), at
a random place and depth, written in a random way. The guard must refuse every one of them, and let the same statement
pass with a harmless thing in that place. Prints what got through, with its seed, and ends with status 1 then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from attrs import frozen

from ballista_py.engines.duckdb.guard import Guard
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import SqlError
from ballista_py.runtime import seeded_chance
from ballista_py.sql.bind.engine_functions import allowed_calls, allowed_relations, engine_functions

RELATIONS = ("t", "u")
_HARMLESS_CALL, _HARMLESS_RELATION, _HARMLESS_TYPE = "abs(a)", "t", "int"
_ARGUMENTS = ("", "a", "'/etc/passwd'", "a, b", "'x', 1", "'select 1'", "[1], 'sum'", "x := 1", "*")
_FILES = ("'/etc/passwd'", '"/etc/passwd"', "'s3://bucket/x.parquet'", "'http://127.0.0.1:9/x.csv'", '"*.csv"')
_CATALOGS = (
    "duckdb_settings", "duckdb_tables", "information_schema.tables", "pg_catalog.pg_class", "sqlite_master", "hidden",
    "main.t", "memory.main.t", "temp.t", "held.t1", "system.main.duckdb_secrets", "t at (version => 1)",
)  # fmt: skip
_TYPES = ("geometry", "type", "variant", "nosuch", "aggregate_state", "main.foo", "t")
_PLACES: tuple[str, ...] = (
    "select {} from t", "select a from t where {} is null", "select a from t group by {}",
    "select a from t order by {}", "select max(a) from t having {} is null", "select a from t qualify {} is null",
    "select sum(a) over (partition by {}) from t", "select sum(a) over (order by a rows between {} preceding and 1 "
    "following) from t", "select sum(a) filter (where {} is null) from t", "select list(a order by {}) from t",
    "select case when {} is null then 1 end from t", "select case 1 when 1 then {} end from t",
    "select [x for x in [1] if {} is null] from t", "select list_transform([1], lambda x: {}) from t",
    "select {{'a': {}}} from t", "select [{}] from t", "select map {{1: {}}} from t", "select ({}, 1) from t",
    "select cast({} as text) from t", "select try({}) from t", "select a in (1, {}) from t",
    "select a between {} and 2 from t", "select not ({} is null) from t", "select a = any (select {}) from t",
    "select * from t join u on {} is null", "select * from t left join lateral (select {}) on true",
    "select * from (values ({})) as v", "select * from range(coalesce({}, 1))", "select * from unnest([{}])",
    "with c as (select {}) select * from c", "with recursive r as (select 1 union all select {} from r) from r",
    "select a from t union all select {}", "select (select {} from u) from t",
    "select exists(select 1 where {} is null)", "select * replace ({} as a) from t",
    "select a from t limit (select {})", "from t select distinct on ({}) a", "select x: {} from t",
    "select coalesce(a, {}) from t", "pivot t on a in (1) using sum({})", "summarize select {}",
    "select a from t group by grouping sets ((a), ({}))", "select {} + 1 from t", "select 'a' || {} from t",
    "from t select columns(lambda c: {} is null)", "select a.abs() + {} from t",
)  # fmt: skip
_SOURCES = (
    "select * from {}", "select * from t, {}", "select * from t join {} on true", "select (select 1 from {})",
    "with c as (select * from {}) select * from c", "select 1 union all select 1 from {}",
    "select exists(from {})", "from (from {})", "summarize from {}", "pivot {} on a in (1) using sum(b)",
    "select * from t where a in (select 1 from {})", "from t left join lateral (select * from {}) on true",
)  # fmt: skip
_CASTS = ("cast(a as {})", "a::{}", "try_cast(a as {})", "a::{}[]", "a::struct(x {})", "a::map(int, {})")


@frozen
class Attempt:
    """One statement, and the same with something harmless in place of what must not pass."""

    seed: int
    hostile: str
    harmless: str


def attempts(first_seed: int, count: int) -> Iterator[Attempt]:
    """The statements of `count` seeds."""
    calls = sorted({one.name for one in engine_functions() if one.kind != "type"} - allowed_calls() - {"unnest"})
    relations = sorted({one.name for one in engine_functions() if one.kind != "type"} - allowed_relations())
    for seed in range(first_seed, first_seed + count):
        yield _attempt(seed, calls, relations)


def _attempt(seed: int, calls: list[str], relations: list[str]) -> Attempt:
    chance = seeded_chance(seed)

    def one_of(values: tuple[str, ...] | list[str]) -> str:
        return values[chance.randrange(len(values))]

    way = chance.randrange(4)
    if way == 0:
        hostile, harmless, outer = _call(one_of(calls), one_of), _HARMLESS_CALL, one_of(_PLACES)
    elif way == 1:
        function = f"{_name(one_of(relations), one_of)}({one_of(_ARGUMENTS[:6])})"
        hostile, harmless, outer = function, _HARMLESS_RELATION, one_of(_SOURCES)
    elif way == 2:
        relation = one_of((*_FILES, *_CATALOGS))
        hostile, harmless, outer = relation, _HARMLESS_RELATION, one_of(_SOURCES)
    else:
        cast = one_of(_CASTS)
        hostile, harmless = cast.format(one_of(_TYPES)), cast.format(_HARMLESS_TYPE)
        outer = one_of(_PLACES)
    for _ in range(chance.randrange(3)):
        inner = one_of(("(select {} from t)", "abs({})", "case when true then {} end", "coalesce({}, null)"))
        if way in (0, 3):
            hostile, harmless = inner.format(hostile), inner.format(harmless)
    return Attempt(seed, outer.format(hostile), outer.format(harmless))


def _call(name: str, one_of: Callable[[tuple[str, ...]], str]) -> str:
    argument = one_of(_ARGUMENTS)
    written = _name(name, one_of)
    if one_of(("plain", "plain", "dot")) == "dot":
        return f"(a).{written}({argument})"
    return f"{written}({argument})"


def _name(name: str, one_of: Callable[[tuple[str, ...]], str]) -> str:
    way = one_of(("quoted", "upper", "system", "blank"))
    quoted = '"' + name.replace('"', '""') + '"'
    if way == "upper":
        return '"' + name.upper().replace('"', '""') + '"'
    if way == "system":
        return f"system.main.{quoted}"
    return f"{quoted} /* ( */ " if way == "blank" else quoted


def passes(guard: Guard, sql: str) -> bool:
    """Whether the guard lets a statement over `RELATIONS` pass."""
    try:
        guard.check(sql, RELATIONS)
    except SqlError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    guard, escaped, harmless = Guard(duckdb.connect(":memory:")), 0, 0
    for attempt in attempts(options.first_seed, options.statements):
        harmless += passes(guard, attempt.harmless)
        if passes(guard, attempt.hostile):
            escaped += 1
            print(f"seed {attempt.seed} got through: {attempt.hostile}")
    print(
        f"{options.statements:,} statements, {escaped:,} got through; {harmless:,} of their harmless twins passed"
    )
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
