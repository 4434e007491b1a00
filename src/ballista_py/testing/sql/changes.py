"""Random statements that change the rows of two tables: INSERT, UPDATE, DELETE, MERGE and TRUNCATE, keys included.

Both tables have the columns of `CHANGED`, and `id` for a primary key where statements are `keyed`. Every statement
means one thing only: no row of a MERGE matches twice, no row that comes has the key of another one that comes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ballista_py.testing.sql.chooser import Chooser

CHANGED = pa.schema(
    {
        "id": pa.int64(),
        "region": pa.string(),
        "x": pa.float64(),
        "d": pa.date32(),
        "m": pa.decimal128(9, 2),
        "s": pa.string(),
    }
)
_NUMBERS = tuple(str(number) for number in range(-3, 13))
_LITERALS: Mapping[str, tuple[str, ...]] = {
    "id": _NUMBERS,
    "region": ("'eu'", "'us'", "'as ia'", "''", "'é/%'", "'NULL'"),
    "x": ("1.5", "-0.0", "0.0", "'nan'::double", "'inf'::double", "2e10", "-7"),
    "d": ("date '1969-12-31'", "date '2024-02-29'", "date '0001-01-01'"),
    "m": ("1.10", "-99.99", "0", "12345.67"),
    "s": ("'a'", "'b%'", "'zz'", "''", "'Ünï'", "'a''b'"),
}
_VALUES: Mapping[str, tuple[str, ...]] = {
    "id": ("id + 1", "-id", "coalesce(id, 5)", "id % 3"),
    "region": ("upper(region)", "s", "concat(region, 'x')"),
    "x": ("x * 2", "id::double", "m::double"),
    "d": ("d + 1", "null"),
    "m": ("(m / 2)::decimal(9, 2)", "id::decimal(9, 2)"),
    "s": ("region", "s || 'q'", "left(s, 1)"),
}
_NOT_MATCHED = (
    "when not matched then insert (id, region, s) values (src.id, src.region, src.s)",
    "when not matched then insert by name",
    "when not matched and src.id > 6 then error when not matched then insert by name",
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from")
_PATTERNS = ("'a%'", "'b!%'", "'%z'", "'_'", "'%'", "'A%'", "''")
_MATCHED = ("s = src.s", "region = src.region", "s = src.s, x = src.x", "region = src.region, m = 3.25")
_NAMES = tuple(CHANGED.names)
_RETURNED = ("*", "id, s", "id as k, upper(region) as r, x * 2 as y", "coalesce(id, 0) + 1 as id")


def change_statement(chance: Chooser, tables: tuple[str, str] = ("t", "u"), *, keyed: bool = False) -> str:
    """One statement that changes one of the tables, and may read the other; some of them return rows.

    >>> from ballista_py.runtime import seeded_chance
    >>> change_statement(seeded_chance(3)) == change_statement(seeded_chance(3))
    True
    """
    table, other = tables if chance.random() < 0.5 else tables[::-1]
    statement = _keyed(chance, table, other) if keyed else _plain(chance, table, other)
    if chance.random() < 0.25 and not statement.startswith("truncate") and "--" not in statement:
        statement += f" returning {chance.choice(_RETURNED)}"
    return statement


def _keyed(chance: Chooser, table: str, other: str) -> str:
    """What meets rows by their key; or a change that leaves keys alone."""
    kind = chance.random()
    if kind < 0.25:
        where = predicate(chance)
        new = ", ".join(
            f"{name} = {_value(chance, name)}" for name in chance.sample(_NAMES[1:], k=_up_to(chance, 3))
        )
        return chance.choice((f"update {table} set {new} where {where}", f"delete from {table} where {where}"))
    if kind < 0.35:
        return _merge(chance, table, other)
    ids = chance.sample(_NUMBERS, k=_up_to(chance, 6))
    rest = list(_NAMES[1:]) if chance.random() < 0.6 else chance.sample(_NAMES[1:], k=_up_to(chance, 4))
    names = ", ".join(("id", *rest))
    values = ", ".join(f"({', '.join((one, *(_literal(chance, name) for name in rest)))})" for one in ids)
    unique = f"select id, {', '.join(f'any_value({n} order by {n}) as {n}' for n in rest)} from {other}"
    unique += f" where id is not null and {predicate(chance)} group by id"
    rows = chance.choice((f"({names}) values {values}", f"({names}) {unique}", f"by name {unique}"))
    if chance.random() < 0.4:
        return f"insert {chance.choice(('or replace', 'or ignore'))} into {table} {rows}"
    target = chance.choice(("", "(id) "))
    if chance.random() < 0.3:
        return f"insert into {table} {rows} on conflict {target}do nothing"
    sets = ", ".join(f"{n} = {chance.choice((f'excluded.{n}', _literal(chance, n)))}" for n in rest)
    where = f" where {table}.{rest[0]} is distinct from excluded.{rest[0]}" if chance.random() < 0.3 else ""
    return f"insert into {table} {rows} on conflict (id) do update set {sets}{where}"


def _plain(chance: Chooser, table: str, other: str) -> str:
    kind = chance.random()
    if kind < 0.02:
        return f"insert into {table} default values"
    if kind < 0.28:
        return _insert(chance, table)
    if kind < 0.36:
        return _insert_of_query(chance, table, chance.choice((table, other)))
    if kind < 0.40:
        return _pairwise(chance, table, other)
    if kind < 0.62:
        new = ", ".join(f"{name} = {_value(chance, name)}" for name in chance.sample(_NAMES, k=_up_to(chance, 3)))
        return f"update {table} set {new} where {predicate(chance)}"
    matching = f"id in (select id from {other} where {predicate(chance)})"
    if kind < 0.66:
        return f"update {table} set s = 'sub' where {matching}"
    if kind < 0.80:
        return f"delete from {table} where {predicate(chance)}"
    if kind < 0.83:
        return f"delete from {table} where {matching}"
    return _merge(chance, table, other) if kind < 0.985 else f"truncate {table}"


def predicate(chance: Chooser, depth: int = 0) -> str:
    """A condition over the columns, with three-valued logic in it."""
    kind = chance.random()
    if depth < 2 and kind < 0.30:
        words = (predicate(chance, depth + 1), chance.choice(("and", "or")), predicate(chance, depth + 1))
        return f"({' '.join(words)})"
    if depth < 2 and kind < 0.38:
        return f"not ({predicate(chance, depth + 1)})"
    name, kind = chance.choice(_NAMES), chance.random()
    negated = chance.choice(("", "not "))
    if kind < 0.45:
        return f"{name} {chance.choice(_COMPARISONS)} {_literal(chance, name)}"
    if kind < 0.60:
        return f"{name} is {negated}null"
    if kind < 0.75:
        return f"{name} {negated}in ({', '.join(_literal(chance, name) for _ in range(3))})"
    if kind < 0.85:
        return f"{name} {negated}between {_literal(chance, name)} and {_literal(chance, name)}"
    return f"s {negated}{chance.choice(('like', 'ilike'))} {chance.choice(_PATTERNS)}"


def _insert(chance: Chooser, table: str) -> str:
    names = list(_NAMES) if chance.random() < 0.7 else chance.sample(_NAMES, k=_up_to(chance, 5))
    rows = (f"({', '.join(_literal(chance, name) for name in names)})" for _ in range(_up_to(chance, 6)))
    return f"insert into {table} ({', '.join(names)}) values {', '.join(rows)}"


def _insert_of_query(chance: Chooser, table: str, source: str) -> str:
    """In each of the places in which a query, its WITH and the names of columns may stand."""
    rows = f"select * from {source} where {predicate(chance)} order by all limit 20"
    few = f"select s, id from {source} where {predicate(chance)} order by all limit 5"
    return chance.choice(
        (
            f"insert into {table} {rows}",
            f"insert into {table} ({rows})",
            f"insert into {table}\nwith picked as ({rows}) from picked",
            f"with picked as ({rows}) insert into {table} select * from picked -- all of them",
            f"insert into {table} by name {few}",
            f"insert into {table} (s, id) {few}",
        )
    )


def _pairwise(chance: Chooser, table: str, other: str) -> str:
    """Forms that name the table otherwise, set columns together, or join it without MERGE."""
    joined = f"(select id, max(s) as s from {other} where id is not null group by id)"
    return chance.choice(
        (
            f"update {table} as changed set (s, m) = ('pair', 1.5) where {predicate(chance)}",
            f"update {table} set (s, region) = (concat(region, s), s), x = 1 where {predicate(chance)}",
            f"update {table} as changed set s = changed.s || 'q' where changed.id > 3 and {predicate(chance)}",
            f"update {table} set s = src.s from {joined} as src where {table}.id = src.id",
            f"delete from {table} as gone where gone.s ^@ 'a' and {predicate(chance)}",
            f"delete from {table} using {joined} as src where {table}.id = src.id and src.id % 2 = 0",
            f"with src as {joined} update {table} set region = 'eu' from src where {table}.id = src.id and src.s = 'a'",
        )
    )


def _merge(chance: Chooser, table: str, other: str) -> str:
    source = (
        f"select id, min(s) as s, min(region) as region, max(x) as x from {other} where id is not null group by id"
    )
    parts = [f"merge into {table} as tgt using ({source}) as src on tgt.id = src.id"]
    if chance.random() < 0.4:
        parts.append("when matched and src.id % 2 = 0 then delete")
    parts.append(f"when matched then update set {chance.choice(_MATCHED)}")
    if chance.random() < 0.7:
        parts.append(chance.choice(_NOT_MATCHED))
    if chance.random() < 0.3:
        change = chance.choice(("delete", "update set s = 'gone'"))
        parts.append(f"when not matched by source and tgt.id > 8 then {change}")
    return " ".join(parts)


def _literal(chance: Chooser, name: str) -> str:
    return "null" if chance.random() < 0.15 else chance.choice(_LITERALS[name])


def _value(chance: Chooser, name: str) -> str:
    return _literal(chance, name) if chance.random() < 0.6 else chance.choice(_VALUES[name])


def _up_to(chance: Chooser, most: int) -> int:
    return chance.randrange(1, most + 1)
