"""What a fragment needs of a table that is scanned: its columns, and conditions that each row of the answer fulfils.

Both are told by the text of the fragment. Columns are all that could be meant, conditions only those that surely are:
rows are filtered by the fragment again.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.scans.task import Comparing, ScanCondition
from ballista_py.scans.typed_values import is_flat
from ballista_py.sql.estimate.statistics import fixed_bytes
from ballista_py.sql.parse.parsing import parsed_one
from ballista_py.sql.prune.file_bounds import ColumnTest
from ballista_py.sql.prune.files import FilePruner

MAX_IN = 1_000
_KEEPING = ("", "INNER", "LEFT", "CROSS")  # joins behind which a row of the first table is there or not, as it was
_MATCHING = ("", "INNER", "CROSS")  # those that show no row of the joined table unless it is there


@frozen(kw_only=True)
class ScanNeeds:
    """The columns of a table that a fragment reads, in their order, and what is true of the rows that it looks at."""

    columns: tuple[str, ...]
    filter: tuple[ScanCondition, ...] = ()


def needs_of(sql: str, table: str, schema: pa.Schema, *, filtered: bool = True) -> ScanNeeds:
    """What a fragment needs of a table of these columns; not `filtered`: whatever it says of rows is not used.

    >>> schema = pa.schema([("id", pa.int64()), ("fare", pa.float64()), ("kind", pa.string())])
    >>> needs = needs_of("SELECT SUM(t.fare) AS s FROM trips AS t WHERE t.kind = 'a' AND t.id + 1 > 3", "trips", schema)
    >>> needs.columns, [(one.column, one.operator) for one in needs.filter]
    (('id', 'fare', 'kind'), [('kind', '=')])
    """
    tree = parsed_one(sql, "duckdb")
    columns = _columns(tree, table, schema)
    return ScanNeeds(columns=columns, filter=_filter(tree, table, schema) if filtered else ())


def _columns(tree: exp.Expr, table: str, schema: pa.Schema) -> tuple[str, ...]:
    names = {table.lower(), *(one.alias.lower() for one in tree.find_all(exp.Table) if one.name.lower() == table)}
    stars = (star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    whole_rows = (one for one in tree.find_all(exp.Column) if not one.table and one.name.lower() in names)
    natural = (join for join in tree.find_all(exp.Join) if str(join.args.get("method") or "").upper() == "NATURAL")
    odd = (one for one in tree.find_all(exp.Columns, exp.Pivot))
    if any(True for found in (stars, whole_rows, natural, odd) for _ in found):
        return tuple(schema.names)
    read = {node.name.lower() for node in tree.find_all(exp.Identifier)}
    found = tuple(name for name in schema.names if name.lower() in read)
    return found or (_cheapest(schema),)


def _cheapest(schema: pa.Schema) -> str:
    """The column by which rows are counted."""
    return str(min(schema, key=lambda field: fixed_bytes(field.type) or 1_000).name)


def _filter(tree: exp.Expr, table: str, schema: pa.Schema) -> tuple[ScanCondition, ...]:
    found = [one for one in tree.find_all(exp.Table) if one.name.lower() == table.lower()]
    if len(found) != 1:  # each reference may ask for other rows
        return ()
    (named,) = found
    block = named.parent_select
    if not isinstance(block, exp.Select) or not _is_shown_as_it_is(block, named):
        return ()
    where = block.args.get("where")
    if where is None or any(not column.table for column in where.find_all(exp.Column)):
        return ()
    pruner = FilePruner(where=where.this, names=(named.alias_or_name.lower(),), schema=schema)
    return tuple(one for clause in pruner.condition() for one in _conditions(clause, schema))


def _is_shown_as_it_is(block: exp.Select, named: exp.Table) -> bool:
    """Whether a row of the table that WHERE is not true for can make no difference to the block."""
    joins = block.args.get("joins") or []
    if any(block.args.get(key) for key in ("laterals", "sample", "match")) or named.args.get("sample"):
        return False
    source = block.args.get("from_")
    own = [join for join in joins if join.this is named]
    if not own and (source is None or source.this is not named):
        return False
    if any(_kind(join) not in _KEEPING or join.args.get("method") for join in joins):
        return False
    return not own or _kind(own[0]) in _MATCHING


def _kind(join: exp.Join) -> str:
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    return side or ("" if kind == "OUTER" else kind)


def _conditions(clause: tuple[tuple[ColumnTest, ...], ...], schema: pa.Schema) -> Iterable[ScanCondition]:
    """The conditions that a clause is, as far as it can be written as such."""
    if len(clause) == 1:
        for test in clause[0]:
            yield from _condition(test, schema)
        return
    columns = {test.column for branch in clause for test in branch}
    is_list = len(columns) == 1 and all(len(branch) == 1 and branch[0].operator == "=" for branch in clause)
    if not is_list or len(clause) > MAX_IN:
        return
    (column,) = columns
    kind = schema.field(column).type
    values = [_scalar(branch[0].value, kind) for branch in clause]
    known = tuple(value for value in values if value is not None)
    if len(known) == len(values):
        yield ScanCondition(column=column, operator="in", values=known)


def _condition(test: ColumnTest, schema: pa.Schema) -> Iterable[ScanCondition]:
    if test.operator == "is null":
        yield ScanCondition(column=test.column, operator="is_null")
    elif test.operator == "is not null":
        yield ScanCondition(column=test.column, operator="is_not_null")
    else:
        operator: Comparing = test.operator
        value = _scalar(test.value, schema.field(test.column).type)
        if value is not None:
            yield ScanCondition(column=test.column, operator=operator, values=(value,))


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar | None:
    """The value with that type; None where it has none of it."""
    try:
        found = pa.scalar(value, kind) if is_flat(kind) else None
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return found if found is not None and found.is_valid else None
