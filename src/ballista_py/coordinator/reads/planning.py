"""What of a query is done at each part of a read job, and what is left to do over the rows of all; pure."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from ballista_py.errors import Unsupported
from ballista_py.sql.bind.now import mentions_moment
from ballista_py.sql.parts import columns_named, columns_read, is_row_by_row, rows_of
from ballista_py.sql.plan import Catalog, QueryPlan


@frozen(kw_only=True)
class PartPlan:
    """`sql` is done for each part, over these `columns` of the `partitions` of a `table`.

    `rest` is what is left to do over the rows of all parts, which are called `relation` in it; None: nothing. The rows
    of a partition may be in several parts where the plan `divides` them. One that `passes_rows` gives the columns of
    all rows as they are.
    """

    table: str
    partitions: tuple[int, ...]
    sql: str
    columns: tuple[str, ...]
    divides: bool
    rest: str | None
    relation: str
    passes_rows: bool = False


def part_plan(plan: QueryPlan, catalog: Catalog, named: Collection[str], *, little: bool = False) -> PartPlan:
    """The parts of a planned query; `named` are the tables that its text may mean.

    With `little` parts give the rows and columns that it needs, and all else is left to do. Raises `Unsupported` for
    one that reads no table, or more than one.
    """
    tables = {table.table for fragment in plan.fragments for table in fragment.tables} or set(named)
    if len(tables) != 1:
        said = "no table" if not tables else "tables " + ", ".join(f"'{name}'" for name in sorted(tables))
        raise Unsupported(
            f"a read job is of one table, and this query reads {said}: run it as a query, or make a table of it "
            "(CREATE TABLE ... AS) and read that"
        )
    (table,) = tables
    names = catalog.tables[table].schema.names
    if len(plan.fragments) == 1 and not plan.broadcasts and len(plan.fragments[0].tables) == 1:
        fragment, read = plan.fragments[0], plan.fragments[0].tables[0]
        if little and not is_row_by_row(fragment.sql):
            _require_no_moment(plan)
            columns = columns_read(fragment.sql, names)
            return PartPlan(
                table=table,
                partitions=read.partitions,
                sql=rows_of(fragment.sql, table, columns),
                columns=columns,
                divides=not read.whole,
                rest=plan.sql,
                relation=table,
            )
        passed = columns_named(fragment.sql, names)
        return PartPlan(
            table=table,
            partitions=read.partitions,
            sql=fragment.sql,
            columns=passed or columns_read(fragment.sql, names),
            passes_rows=passed is not None,
            divides=not read.whole and is_row_by_row(fragment.sql),
            rest=plan.merge_sql,
            relation=fragment.name if plan.merge_sql is not None else "",
        )
    _require_no_moment(plan)
    quoted = '"' + table.replace('"', '""') + '"'  # several reads of the table: its rows are all that parts give
    return PartPlan(
        table=table,
        partitions=tuple(range(len(catalog.maps[table]))),
        sql=f"SELECT * FROM {quoted}",
        columns=tuple(names),
        divides=True,
        rest=plan.sql,
        relation=table,
    )


def _require_no_moment(plan: QueryPlan) -> None:
    if mentions_moment(plan.sql):
        raise Unsupported(
            "what is left of this query is done by whoever reads, whose clock is another one: write the moment that "
            "now(), current_date or the like stand for"
        )
