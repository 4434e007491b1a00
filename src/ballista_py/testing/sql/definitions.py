"""Random statements that make, replace, alter and rename tables, and that change their rows; for any columns.

Each is made for the tables as they are then (`Shape`), so that a sequence of thousands goes on. Most mean something;
some name what is not there, or leave out what is wanted, and must be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from ballista_py.testing.sql.chooser import Chooser

NAMES = ("t", "u", "v", "größe 1")
MAX_TABLES = 5
_COLUMNS = ("a", "b", "c", "d", "A 2", "größe", "select")
_LITERALS: Mapping[str, tuple[str, ...]] = {
    "SMALLINT": ("1", "-7", "300"),
    "INTEGER": ("1", "2", "-3", "70000"),
    "BIGINT": ("1", "5", "-9000000000"),
    "DOUBLE": ("1.5", "-0.0", "'inf'", "2e10"),
    "FLOAT": ("1.5", "-2", "0.25"),
    "VARCHAR": ("'a'", "''", "'Ünï'", "'it''s'"),
    "DATE": ("date '2024-02-29'", "date '1969-12-31'", "'2020-01-01'"),
    "TIMESTAMP": ("timestamp '2024-02-29 12:00:00.5'", "'1969-12-31 23:59:59'"),
    "BOOLEAN": ("true", "false"),
    "DECIMAL(9,2)": ("1.10", "-99.99", "0"),
    "DECIMAL(20,3)": ("1.105", "-12345678901.5"),
    "INTEGER[]": ("[1, null]", "[]"),
    "STRUCT(x INTEGER, y VARCHAR)": ("{'x': 1, 'y': 'a'}", "{'x': null, 'y': ''}"),
}
_KEYS = ("SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "DATE")  # what tables are split by, and have for primary keys
_WIDER: Mapping[str, tuple[str, ...]] = {
    "SMALLINT": ("integer", "bigint", "decimal(20, 3)"),
    "INTEGER": ("bigint", "double", "decimal(20, 3)", "smallint", "varchar"),
    "FLOAT": ("double",),
    "DECIMAL(9,2)": ("decimal(20, 3)", "decimal(9, 1)"),
}


@frozen
class Shape:
    """A table as it is: columns with their types, those it is split by, those of its key, those NOT NULL."""

    name: str
    columns: tuple[tuple[str, str], ...]
    split_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def definition_statement(chance: Chooser, tables: Sequence[Shape]) -> str:
    """One statement in the engine's own dialect.

    >>> from ballista_py.runtime import seeded_chance
    >>> definition_statement(seeded_chance(3), []).startswith("create table")
    True
    """
    if len(tables) < 2:
        return _create(chance, _free(chance, tables), "")
    shape, other = chance.sample(list(tables), k=2)
    if len(tables) > MAX_TABLES:
        return f"drop table {quoted(shape.name)}"
    kind = chance.random()
    if kind < 0.42:
        return _rows(chance, shape, other)
    if kind < 0.70:
        return f"alter table {quoted(shape.name)} {_alteration(chance, shape, tables)}"
    if kind < 0.78:
        return _overwrite(chance, shape, other)
    if kind < 0.80:
        return f"truncate {quoted(shape.name)}"
    if kind < 0.84:
        return f"drop table {chance.choice(('', 'if exists '))}{quoted(chance.choice((shape.name, 'missing')))}"
    return _made(chance, shape, other, tables)


def literal(chance: Chooser, kind: str) -> str:
    """A value of the type, or NULL."""
    return "null" if chance.random() < 0.12 or kind not in _LITERALS else chance.choice(_LITERALS[kind])


def quoted(name: str) -> str:
    """The name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _made(chance: Chooser, shape: Shape, other: Shape, tables: Sequence[Shape]) -> str:
    """CREATE TABLE in its forms: with columns, of a query, like another one; anew, in the place of one, or if none."""
    verb, name = chance.choice((
        ("create table", _free(chance, tables)),
        ("create or replace table", chance.choice((shape.name, _free(chance, tables)))),
        ("create table if not exists", chance.choice((shape.name, _free(chance, tables)))),
        ("create table", chance.choice((shape.name, _free(chance, tables)))),
    ))  # fmt: skip
    form = chance.random()
    if form < 0.35:
        return _create(chance, name, verb)
    target = f"{verb} {quoted(name)}"
    source = other if other.name != name else shape
    if form < 0.50:
        return f"{target} like {quoted(source.name)}"
    if form < 0.62:
        copied = chance.choice(
            ("", " including defaults", " including all", " including defaults excluding indexes")
        )
        more = chance.choice(("", ', "more" integer default 3'))
        return f"{target} (like {quoted(source.name)}{copied}{more})"
    query, names = _query(chance, source)
    split = f" partitioned by ({_split(chance, quoted(names[0]))})" if chance.random() < 0.6 else ""
    return f"{target}{split} as {query}"


def _query(chance: Chooser, source: Shape) -> tuple[str, list[str]]:
    """Rows of a table with other names, computed columns and conditions; and the names that the new table has."""
    names = [name for name, _ in source.columns]
    name = chance.choice([name for name, kind in source.columns if kind in _KEYS] or names)
    names = [name, *(other for other in names if other != name)]
    rows = f"from {quoted(source.name)} where {_condition(chance, source)}"
    return chance.choice((
        (f"select * {rows}", names),
        (f"select *, 1 + 1 as two {rows}", names),
        (f"select {quoted(name)}, count(*) as n {rows} group by all", [name]),
        (f"select {', '.join(map(quoted, names))} {rows}", names),
        (f"with w as (select * {rows}) select * from w", names),
        (f"select distinct {quoted(name)} as \"A 2\" {rows}", ["A 2"]),
    ))  # fmt: skip


def _create(chance: Chooser, name: str, verb: str) -> str:
    names = chance.sample(_COLUMNS, k=chance.randrange(2, 6))
    kinds = [chance.choice(_KEYS), *(chance.choice(tuple(_LITERALS)) for _ in names[1:])]
    items = []
    for place, (column, kind) in enumerate(zip(names, kinds, strict=True)):
        more = f" default {chance.choice(_LITERALS[kind])}" if chance.random() < 0.3 else ""
        items.append(f"{quoted(column)} {kind}{' not null' if place == 1 and chance.random() < 0.2 else ''}{more}")
    split = f" partitioned by ({_split(chance, quoted(names[0]))})" if chance.random() < 0.75 else ""
    if chance.random() < 0.35:
        items.append(f"primary key ({quoted(names[0])})")
    return f"{verb or 'create table'} {quoted(name)} ({', '.join(items)}){split}"


def _split(chance: Chooser, column: str) -> str:
    return chance.choice((column, f"bucket(3, {column})"))


def _alteration(chance: Chooser, shape: Shape, tables: Sequence[Shape]) -> str:
    name, kind = chance.choice(shape.columns)
    column, new = quoted(name), quoted(chance.choice(_COLUMNS))
    form = chance.random()
    if form < 0.25:
        added = chance.choice(tuple(_LITERALS))
        default = f" default {chance.choice(_LITERALS[added])}" if chance.random() < 0.6 else ""
        return f"add column {chance.choice(('', 'if not exists '))}{new} {added}{default}"
    if form < 0.40:
        return f"drop column {chance.choice((column, column, f'if exists {new}'))}"
    if form < 0.53:
        return f"rename column {column} to {new}"
    if form < 0.65:
        value = chance.choice(_LITERALS.get(kind, ("'a'",)))
        return f"alter column {column} {chance.choice((f'set default {value}', 'drop default'))}"
    if form < 0.77:
        return f"alter column {column} {chance.choice(('set not null', 'drop not null'))}"
    if form < 0.90:
        wider = chance.choice(_WIDER.get(kind, (kind.lower(),)))
        return f"alter column {column} {chance.choice(('type', 'set data type'))} {wider}"
    return f"rename to {quoted(chance.choice((*NAMES, _free(chance, tables))))}"


def _rows(chance: Chooser, shape: Shape, other: Shape) -> str:
    form, table = chance.random(), quoted(shape.name)
    columns = list(shape.columns)
    if form < 0.05:
        statement = f"insert into {table} default values"
    elif form < 0.50:
        some = (
            columns if chance.random() < 0.5 else chance.sample(columns, k=chance.randrange(1, len(columns) + 1))
        )
        rows = [f"({', '.join(literal(chance, kind) for _, kind in some)})" for _ in range(chance.randrange(1, 5))]
        listed = f" ({', '.join(quoted(name) for name, _ in some)})"
        verb = chance.choice(("or ignore ", "or replace ")) if shape.key and chance.random() < 0.3 else ""
        statement = f"insert {verb}into {table}{listed} values {', '.join(rows)}"
        if shape.key and not verb and chance.random() < 0.6:
            sets = ", ".join(f"{quoted(n)} = excluded.{quoted(n)}" for n, _ in some if n not in shape.key)
            doing = f"update set {sets}" if sets and chance.random() < 0.6 else "nothing"
            statement += f" on conflict ({', '.join(map(quoted, shape.key))}) do {doing}"
    elif form < 0.60:
        shared = [name for name, kind in columns if (name, kind) in other.columns]
        names = ", ".join(map(quoted, shared or [columns[0][0]]))
        statement = f"insert into {table} by name select {names} from {quoted(other.name)} order by all limit 5"
    elif form < 0.82:
        name, kind = chance.choice(columns)
        value = chance.choice((literal(chance, kind), literal(chance, kind), "default"))
        statement = f"update {table} set {quoted(name)} = {value} where {_condition(chance, shape)}"
    else:
        statement = f"delete from {table} where {_condition(chance, shape)}"
    return f"{statement} returning *" if chance.random() < 0.25 else statement


def _condition(chance: Chooser, shape: Shape) -> str:
    name, kind = chance.choice(shape.columns)
    column = quoted(name)
    if kind not in _LITERALS or chance.random() < 0.4:
        return f"{column} is {chance.choice(('', 'not '))}null"
    value = chance.choice(_LITERALS[kind])
    compared = f"{column} {chance.choice(('=', '<>', '<', '>=', 'is distinct from'))} {value}"
    return chance.choice((compared, compared, f"not ({compared})", f"({compared} or {column} is null)"))


def _overwrite(chance: Chooser, shape: Shape, other: Shape) -> str:
    """With a partition where the table is split by columns."""
    fixed = [name for name in shape.split_by if chance.random() < 0.8]
    kinds = dict(shape.columns)
    columns = [(name, kind) for name, kind in shape.columns if name not in fixed]
    rows = [f"({', '.join(literal(chance, kind) for _, kind in columns)})" for _ in range(chance.randrange(1, 5))]
    values = ", ".join(f"{quoted(name)} = {chance.choice(_LITERALS[kinds[name]])}" for name in fixed)
    target = f"insert overwrite {chance.choice(('', 'table '))}{quoted(shape.name)}"
    given = f"values {', '.join(rows)}" if columns else "select 1 where false"
    if not fixed and chance.random() < 0.3:
        given = f"select * from {quoted(other.name)}"
    return f"{target} partition ({values}) {given}" if fixed else f"{target} {given}"


def _free(chance: Chooser, tables: Sequence[Shape]) -> str:
    taken = {shape.name for shape in tables}
    return chance.choice([name for name in (*NAMES, "w", "x", "y") if name not in taken])
