"""What Spark's CREATE TABLE says beside columns and query: USING, PARTITIONED BY; in the words of a cluster.

In Spark the columns that partitions are made of come last in a table, wherever they were declared.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import ENGINE_DIALECT

_FORMATS = ("parquet", "vortex")


@frozen
class TableClauses:
    """The clauses that were taken out of a statement: keys of partitions, and the format of files."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    file_format: str | None

    def written(self, tree: exp.Expr) -> str:
        """The statement, translated by now, with the clauses where the engine's dialect has them.

        Raises `SqlError` for a query whose last columns are not those that partitions are made of.
        """
        query = tree.args.get("expression")
        if query is not None:
            self._require_last([] if not isinstance(query, exp.Query) else query.named_selects)
            tree.set("expression", None)
        text = str(tree.sql(ENGINE_DIALECT))
        if self.keys:
            text += f" PARTITIONED BY ({', '.join(self.keys)})"
        if self.file_format is not None:
            text += f" WITH (file_format = '{self.file_format}')"
        return text if query is None else f"{text} AS {query.sql(ENGINE_DIALECT)}"

    def _require_last(self, names: Sequence[str]) -> None:
        last = [name.lower() for name in names[len(names) - len(self.columns) :]]
        if self.columns and last != list(self.columns):
            raise SqlError(
                f"CREATE TABLE with PARTITIONED BY ({', '.join(self.columns)}) cannot be run here: Spark puts these "
                "columns last, so name them last in the query, in that order"
            )


def taken_out(tree: exp.Expr, dialect: str) -> TableClauses | None:
    """What a CREATE TABLE of Spark says, taken out of it; None for other statements and where there is nothing.

    The columns that partitions are made of are put last. Raises `SqlError` for a format that there is not, and for keys
    that are not columns of the table or buckets of one.
    """
    properties = tree.args.get("properties")
    if dialect != "spark" or not isinstance(tree, exp.Create) or properties is None:
        return None
    format_name, keys, columns, others = None, list[str](), list[str](), list[exp.Expr]()
    for item in properties.expressions:
        if isinstance(item, exp.FileFormatProperty) and isinstance(item.this, exp.Var):
            format_name = _format(item.this.name.lower())
        elif isinstance(item, exp.PartitionedByProperty):
            for key in item.this.expressions:
                keys.append(_key(key, columns))
        else:
            others.append(item)
    tree.set("properties", exp.Properties(expressions=others) if others else None)
    if isinstance(tree.this, exp.Schema):
        _put_last(tree.this, columns)
    return TableClauses(tuple(keys), tuple(columns), format_name)


def _format(name: str) -> str | None:
    if name not in _FORMATS:
        raise SqlError(
            f"CREATE TABLE with USING {name} cannot be run here: files are USING parquet or USING vortex"
        )
    return None if name == "parquet" else name


def _key(node: exp.Expr, columns: list[str]) -> str:
    """One key in the engine's words; the column is added to those that come last, a bucket's is not."""
    if isinstance(node, exp.Identifier | exp.Column):
        columns.append(node.name.lower())
        return _quoted(node.name)
    if isinstance(node, exp.PartitionedByBucket) or (
        isinstance(node, exp.Anonymous)
        and node.name.lower().lstrip("\x01") == "bucket"
        and len(node.expressions) == 2
    ):
        parts = [node.this, node.expression] if isinstance(node, exp.PartitionedByBucket) else node.expressions
        number = next((part.name for part in parts if isinstance(part, exp.Literal)), "")
        column = next((part.name for part in parts if isinstance(part, exp.Identifier | exp.Column)), "")
        if number.isdecimal() and column:
            return f"bucket({number}, {_quoted(column)})"
    raise SqlError(
        f"CREATE TABLE with PARTITIONED BY ({node.sql('spark')}) cannot be run here: name columns that are declared, "
        "or bucket(n, column)"
    )


def _put_last(schema: exp.Schema, columns: Sequence[str]) -> None:
    declared = {item.name.lower() for item in schema.expressions if isinstance(item, exp.ColumnDef)}
    for name in columns:
        if name not in declared:
            raise SqlError(
                f"CREATE TABLE with PARTITIONED BY ({name}) cannot be run here: no such column is declared"
            )
    last = {name: place for place, name in enumerate(columns)}
    ordered = sorted(
        enumerate(schema.expressions),
        key=lambda found: (
            not isinstance(found[1], exp.ColumnDef),
            last.get(found[1].name.lower(), -1) if isinstance(found[1], exp.ColumnDef) else -1,
            found[0],
        ),
    )
    schema.set("expressions", [item for _, item in ordered])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
