"""Barriers: what stands between a table and a statement of somebody who does not see all of it.

The table becomes a common table expression of its own name, with the rows and values that he sees, in the text of each
leg: the last text before an executor, whatever the planner did with the statement. `OFFSET 0` drops no row, and no
optimizer that we run moves anything of the statement past it: DuckDB pushes predicates into subqueries and even into
MATERIALIZED common table expressions, but not below a LIMIT or an OFFSET (`docs/design/216-policies.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from attrs import evolve
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ballista_py.errors import SqlError
from ballista_py.partitions.policies import Masked, Rights
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.edits import edited
from ballista_py.sql.parse.parsing import SqlglotError, parsed, tokenized
from ballista_py.sql.plan import Catalog, QueryPlan

_OF_CLIENT = ("current_user", "current_groups")
_NOT_OF_A_ROW = (
    exp.Query, exp.Subquery, exp.Window, exp.AggFunc, exp.Star, exp.Placeholder, exp.Parameter, exp.Lambda, exp.Alias,
)  # fmt: skip


def barrier_of(table: TableSpec, rights: Rights, types: Sequence[str]) -> str:
    """The query that gives what the client sees of a table; `types` are those of its columns, as SQL writes them.

    Raises `SqlError` for a table that its policies do not fit: nothing of it is shown then.
    """
    masks = {mask.column.lower(): mask for mask in rights.masks(table.name)}
    keys = {column.name.lower() for column in table.spec.columns}
    _require_columns(table, masks, keys)
    columns = []
    for name, kind in zip(table.schema.names, types, strict=True):
        mask = masks.get(name.lower())
        shown = quoted(name)
        if mask is not None:
            value = said_of(table, mask.value, rights.name, rights.groups)
            shown = f"CAST(({value}\n) AS {kind}) AS {shown}"
        columns.append(shown)
    conditions = [said_of(table, one, rights.name, rights.groups) for one in rights.filters(table.name)]
    where = "" if not conditions else " WHERE " + " AND ".join(f"({one}\n)" for one in conditions)
    return f"SELECT {', '.join(columns)} FROM {quoted(table.name)}{where} OFFSET 0"


def shown_spec(table: TableSpec, masks: Sequence[Masked]) -> TableSpec:
    """The table as a statement may count on it: values that are masked are neither unique nor surely there."""
    masked = {mask.column.lower() for mask in masks}
    fields = [one.with_nullable(True) if one.name.lower() in masked else one for one in table.schema]
    key = () if any(name.lower() in masked for name in table.primary_key) else table.primary_key
    return evolve(table, schema=pa.schema(fields, table.schema.metadata), primary_key=key)


def _require_columns(table: TableSpec, masks: Mapping[str, Masked], keys: set[str]) -> None:
    known = {name.lower() for name in table.schema.names}
    for column, mask in masks.items():
        if column not in known:
            raise SqlError(
                f"a policy masks column '{mask.column}' of table '{table.name}', which has no such column: the table "
                "is shown to nobody but operators until one of them is changed"
            )
        if column in keys:
            raise SqlError(
                f"a policy masks column '{mask.column}', by which table '{table.name}' is split: where a row lies "
                "would tell its value, so mask another column, or filter rows"
            )


def said_of(table: TableSpec, expression: str, user: str, groups: Sequence[str]) -> str:
    """An expression of a policy, in which `current_user()` and `current_groups()` are what they are of this client.

    Raises `SqlError` for one that is no expression over a single row of the table.
    """
    require_row_expression(expression, table.schema.names)
    values = {"current_user": literal(user), "current_groups": f"[{', '.join(map(literal, groups))}]::VARCHAR[]"}
    tokens = tokenized(expression)
    edits = []
    for place, token in enumerate(tokens):
        name = token.text.lower()
        if name not in values or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        end = token.end + 1
        rest = tokens[place + 1 : place + 3]
        if [one.token_type for one in rest] == [TokenType.L_PAREN, TokenType.R_PAREN]:
            end = rest[1].end + 1
        edits.append((token.start, end, values[name]))
    return edited(expression, edits)


def require_row_expression(expression: str, columns: Sequence[str] | None = None) -> None:
    """Raise `SqlError` for a text that is not one expression over a single row, by these columns if they are known."""
    wrong = f"a policy says {expression!r}, which is no expression over one row of its table"
    try:
        trees = parsed(f"SELECT ({expression}\n)", "duckdb")
    except SqlglotError as error:
        raise SqlError(f"{wrong}: it cannot be read") from error
    tree = trees[0] if len(trees) == 1 else None
    given = {name for name, value in tree.args.items() if value} if isinstance(tree, exp.Select) else set()
    if tree is None or given != {"expressions"} or len(tree.expressions) != 1:
        raise SqlError(f"{wrong}: it is more than that")
    inner = tree.expressions[0]
    if not isinstance(inner, exp.Paren):
        raise SqlError(f"{wrong}: it is more than that")
    found = next((node for node in inner.walk() if isinstance(node, _NOT_OF_A_ROW)), None)
    if found is not None:
        raise SqlError(f"{wrong}: {found.key} looks at more than that, or cannot be told apart")
    known = None if columns is None else {name.lower() for name in columns}
    for column in inner.find_all(exp.Column):
        name = column.name.lower()
        if column.table or (known is not None and name not in known and name not in _OF_CLIENT):
            raise SqlError(f"{wrong}: '{column.sql('duckdb')}' is none of its columns")


def barred(sql: str, tables: Sequence[str], catalog: Catalog) -> str:
    """The text of a leg, with what its client sees in the place of each table that he does not see all of."""
    behind = [name for name in tables if name in catalog.barriers]
    if not behind:
        return sql
    if sql[:7].upper() != "SELECT ":
        raise SqlError("a statement of this form is not run over tables of which policies hide rows or values")
    named = ", ".join(f"{quoted(name)} AS ({catalog.barriers[name]})" for name in behind)
    return f"WITH {named}\n{sql}"


def is_behind_barriers(plan: QueryPlan, catalog: Catalog) -> bool:
    """Whether a table that the plan reads stands behind a barrier."""
    return bool(catalog.barriers) and any(
        table.table in catalog.barriers for fragment in plan.fragments for table in fragment.tables
    )


def literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
