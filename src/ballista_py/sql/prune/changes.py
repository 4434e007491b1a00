"""What a local statement means for one table: which partitions it can touch, and the SQL that their owners run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.expressions import is_portable
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.changes import General, Local, is_default, quoted
from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.identifiers import free_name, identifier
from ballista_py.sql.parse.parsing import parsed_one
from ballista_py.sql.place.placement import Split, place_table
from ballista_py.sql.prune.files import FilePruner
from ballista_py.sql.prune.partitions import Pruner
from ballista_py.sql.rewrite import NEW_ROWS, PLACE, Rewrite

MAX_LITERAL_CHARS = 200


def local_rewrite(change: Local, table: TableSpec, types: Mapping[str, str]) -> Rewrite:
    """The SQL of a local statement; `types` are the SQL types of the table's columns.

    Raises `SqlError` for a column that the table does not have, or that is set twice.
    """
    source = f"{quoted(table.name)} as {quoted(change.alias)}"
    hit = quoted(free_name("hit", table.schema.names, change.text))
    steady = change.where is None or (change.tree is not None and is_portable(change.tree))
    where = "true" if change.where is None else f"({change.where}\n)"
    met = f"coalesce(cast({where} as boolean), false)"  # as in WHERE: a number other than 0 is true
    pruning = where if change.tree is not None else None
    names = {name.lower(): name for name in table.schema.names}
    columns = ", ".join(quoted(name) for name in table.schema.names)
    count = f"select count(*) from {source} where {where}" if steady else None
    places = f"select {quoted(PLACE)} from {source} where {where}" if steady and PLACE not in names else None
    if change.assignments is None:
        if change.where is None:
            return Rewrite()
        return Rewrite(
            rows=f"select {columns}, {met} as {hit} from {source}",
            count=count,
            places=places,
            deletes=True,
            where=pruning,
            alias=change.alias,
        )
    new: dict[str, str] = {}
    for name, value in change.assignments:
        real = names.get(name.lower())
        if real is None or real in new:
            raise SqlError(f"column '{name}' is " + ("set twice" if real else f"not one of table '{table.name}'"))
        default = default_of(table.schema.field(real)) or "null"
        new[real] = f"({default if is_default(value) else value}\n)"
    alias = quoted(change.alias)
    shown = [
        f"case when {hit} then cast({new[name]} as {types[name]}) else {alias}.{quoted(name)} end as {quoted(name)}"
        if name in new
        else f"{alias}.{quoted(name)}"
        for name in table.schema.names
    ]
    inner = f"select *, {met} as {hit} from {source}"
    return Rewrite(
        rows=f"select {', '.join(shown)}, {hit} from ({inner}) as {alias}",
        count=count,
        places=places,
        where=pruning,
        alias=change.alias,
    )


def file_pruner(where: str | None, alias: str, table: TableSpec) -> FilePruner:
    """What tells the files of the table that may hold rows of a predicate (in the engine's dialect) over it."""
    names = {table.name.lower(), alias.lower()}
    tree = None if where is None else parsed_one(for_parser(where))
    return FilePruner(where=tree, names=names, schema=table.schema)


def touched_partitions(change: Local, table: TableSpec, pmap: PartitionMap) -> tuple[int, ...]:
    """The partitions whose rows the statement can touch."""
    ids = pmap.ids()
    split = place_table(table)
    if change.tree is None or not isinstance(split, Split):
        return tuple(ids.tolist())
    bound = _bound(change.tree, change.alias, table)
    allowed = Pruner(split.under(change.alias), pmap).constraints(bound)
    named = {table.spec.keys[place].name: values for place, values in allowed.items()}
    return tuple((pmap.matching(named) if named else ids).tolist())


def key_sql(table: TableSpec) -> str:
    """One primary key that occurs twice in the relation `NEW_ROWS`, or in it and in the table; no row if none does."""
    keys, new = ", ".join(quoted(name) for name in table.primary_key), quoted(NEW_ROWS)
    return (
        f"(select {keys} from {new} group by {keys} having count(*) > 1 limit 1) union all "
        f"(select {keys} from {new} semi join {quoted(table.name)} using ({keys}) limit 1)"
    )


def rows_of_keys(table: TableSpec, given: pa.Table) -> str | None:
    """A predicate that is true for all rows of the table whose primary key is one of `given`; None: for all rows."""
    if not given.num_rows:
        return "false"
    told = []
    for name in table.primary_key:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
            continue
        ends = pc.min_max(given.column(name).cast(kind))
        low, high = (_literal(ends[end]) for end in ("min", "max"))
        if low is not None and high is not None:
            told.append(f"{quoted(name)} between {low} and {high}")
    return " and ".join(told) or None


def without_rows_of_keys(table: TableSpec, keys: pa.Table) -> Rewrite:
    """What takes the rows away whose primary key is one of `keys`, which are the relation `NEW_ROWS`, each once."""
    name, new = quoted(table.name), quoted(NEW_ROWS)
    names = ", ".join(quoted(key) for key in table.primary_key)
    columns = ", ".join(f"{name}.{quoted(column)}" for column in table.schema.names)
    met, hit = (quoted(free_name(wanted, table.schema.names, "")) for wanted in ("met", "hit"))
    inner = f"(select {names}, true as {met} from {new}) as {new}"
    return Rewrite(
        rows=f"select {columns}, coalesce({new}.{met}, false) as {hit} from {name} left join {inner} using ({names})",
        count=f"select count(*) from {name} semi join {new} using ({names})",
        places=None
        if PLACE in table.schema.names
        else f"select {quoted(PLACE)} from {name} semi join {new} using ({names})",
        deletes=True,
        where=rows_of_keys(table, keys),
        alias=table.name,
    )


def _literal(value: pa.Scalar) -> str | None:
    """A value as the engine and the parser read it alike; None where it is not written down."""
    try:
        found = value.as_py()
    except (ValueError, OverflowError):
        return None
    if isinstance(found, int):
        return str(found)
    if isinstance(found, date):
        return f"date '{found.isoformat()}'"
    is_short = isinstance(found, str) and len(found) <= MAX_LITERAL_CHARS and found.isprintable()
    return "'" + found.replace("'", "''") + "'" if is_short else None


def moves_rows(change: Local, table: TableSpec) -> bool:
    """Whether the statement sets a column that a partition key reads."""
    keys = {column.name.lower() for column in table.spec.columns}
    return any(name.lower() in keys for name, _ in change.assignments or ())


def sets_key(change: Local, table: TableSpec) -> bool:
    """Whether the statement sets a column of the primary key, so that its new values must be held against others."""
    keys = {name.lower() for name in table.primary_key}
    return any(name.lower() in keys for name, _ in change.assignments or ())


def as_general(change: Local) -> General:
    """The same statement, to be run as a whole."""
    return General(table=change.table, text=change.text, sources=(), returning=change.returning is not None)


def _bound(where: Expr, alias: str, table: TableSpec) -> Expr:
    """The predicate with every column under the alias and its declared name."""
    names = {name.lower(): name for name in table.schema.names}

    def bind(node: Expr) -> Expr:
        if isinstance(node, exp.Column) and node.name.lower() in names:
            return exp.Column(this=identifier(names[node.name.lower()]), table=identifier(alias))
        return node

    return where.copy().transform(bind)
