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

_WHOLE_DIGITS = 18
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
            said = f"CAST(({said_of(table, mask.value, rights.name, rights.groups)}\n) AS {kind})"
            is_sure = kind == "VARCHAR" and _family(_expression_of(mask.value), table.schema) == "text"
            shown = f"{said if is_sure else f'TRY({said})'} AS {shown}"
        columns.append(shown)
    conditions = [_condition(table, one, rights) for one in rights.filters(table.name)]
    where = "" if not conditions else " WHERE " + " AND ".join(conditions)
    return f"SELECT {', '.join(columns)} FROM {quoted(table.name)}{where} OFFSET 0"


def _condition(table: TableSpec, where: str, rights: Rights) -> str:
    """A condition as the barrier has it: a row over which it fails is not shown, and nor is the error, which has values
    of rows that are hidden."""
    said = f"({said_of(table, where, rights.name, rights.groups)}\n)"
    return said if _family(_expression_of(where), table.schema) == "truth" else f"TRY({said})"


def _family(node: exp.Expr, schema: pa.Schema) -> str | None:
    """What an expression surely gives that fails over no row: `truth`, `text`, `whole` numbers, `groups`; None for
    any other, which may be sure and is not known to be.

    What is tried costs the engine what it knows of its files, so plain conditions are not.
    """
    inner = [_family(one, schema) for one in node.iter_expressions() if not isinstance(one, exp.Identifier)]
    if isinstance(node, exp.Paren | exp.Not):
        return inner[0]
    if isinstance(node, exp.Boolean):
        return "truth"
    if isinstance(node, exp.CurrentUser) or (isinstance(node, exp.Literal) and node.is_string):
        return "text"
    if isinstance(node, exp.Literal):
        return "whole" if node.is_int and len(node.name) <= _WHOLE_DIGITS else None
    if isinstance(node, exp.Anonymous):
        return "groups" if node.name.lower() == "current_groups" and not node.expressions else None
    if isinstance(node, exp.Column):
        return _family_of_column(node.name.lower(), schema)
    if isinstance(node, exp.And | exp.Or):
        return "truth" if inner == ["truth", "truth"] else None
    if isinstance(node, exp.DPipe):
        return "text" if inner == ["text", "text"] else None
    if isinstance(node, exp.ArrayContains):
        return "truth" if inner == ["groups", "text"] else None
    compares = isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between)
    if compares or (isinstance(node, exp.In) and node.expressions):
        return "truth" if len(set(inner)) == 1 and inner[0] in ("text", "whole") else None
    return None


def _family_of_column(name: str, schema: pa.Schema) -> str | None:
    if name in _OF_CLIENT:
        return "text" if name == "current_user" else "groups"
    kind = next((one.type for one in schema if one.name.lower() == name), pa.null())
    if pa.types.is_signed_integer(kind):
        return "whole"
    if pa.types.is_boolean(kind):
        return "truth"
    return "text" if pa.types.is_string(kind) else None


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
    wrong, inner = _wrong(expression), _expression_of(expression)
    found = next((node for node in inner.walk() if isinstance(node, _NOT_OF_A_ROW)), None)
    if found is not None:
        raise SqlError(f"{wrong}: {found.key} looks at more than that, or cannot be told apart")
    known = None if columns is None else {name.lower() for name in columns}
    for column in inner.find_all(exp.Column):
        name = column.name.lower()
        if column.table or (known is not None and name not in known and name not in _OF_CLIENT):
            raise SqlError(f"{wrong}: '{column.sql('duckdb')}' is none of its columns")


def _wrong(expression: str) -> str:
    return f"a policy says {expression!r}, which is no expression over one row of its table"


def _expression_of(expression: str) -> exp.Expr:
    """The tree of a text, in brackets, that is one expression. Raises `SqlError`."""
    try:
        trees = parsed(f"SELECT ({expression}\n)", "duckdb")
    except SqlglotError as error:
        raise SqlError(f"{_wrong(expression)}: it cannot be read") from error
    tree = trees[0] if len(trees) == 1 else None
    given = {name for name, value in tree.args.items() if value} if isinstance(tree, exp.Select) else set()
    if tree is None or given != {"expressions"} or len(tree.expressions) != 1:
        raise SqlError(f"{_wrong(expression)}: it is more than that")
    inner: exp.Expr = tree.expressions[0]
    if not isinstance(inner, exp.Paren):
        raise SqlError(f"{_wrong(expression)}: it is more than that")
    return inner


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
