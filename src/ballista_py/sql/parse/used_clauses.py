"""Which clauses of a statement that changes something are used; every other one is refused by its name.

The lists are of what is read here, not of what the parser knows: a clause that a newer parser adds is refused until
somebody has used it. What lies below a listed argument and is none of these nodes is an expression or a query, which
the engine itself reads from the user's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import ENGINE_DIALECT

USED: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Insert: frozenset(  # "overwrite" is read by `overwrites`
        ("with_", "this", "expression", "by_name", "default", "alternative", "conflict", "returning", "overwrite")
    ),
    exp.OnConflict: frozenset(("expressions", "action", "conflict_keys", "where")),
    exp.Returning: frozenset(("expressions",)),
    exp.Update: frozenset(("with_", "this", "expressions", "from_", "where", "returning")),
    exp.Delete: frozenset(("with_", "this", "using", "where", "returning")),
    exp.Merge: frozenset(("with_", "this", "using", "on", "using_cond", "whens", "returning")),
    exp.Whens: frozenset(("expressions",)),
    exp.When: frozenset(("matched", "source", "condition", "then")),
    exp.Create: frozenset(("this", "kind", "expression", "exists", "properties", "replace")),
    exp.Drop: frozenset(("kind", "tables", "exists", "cascade", "restrict")),  # nothing depends on a table
    exp.TruncateTable: frozenset(("expressions",)),
    exp.Schema: frozenset(("this", "expressions")),
    exp.Table: frozenset(("this", "alias")),
    exp.TableAlias: frozenset(("this",)),
    exp.ColumnDef: frozenset(("this", "kind", "constraints")),
    exp.ColumnConstraint: frozenset(("this", "kind")),
    exp.NotNullColumnConstraint: frozenset(("allow_null",)),
    exp.PrimaryKeyColumnConstraint: frozenset(),
    exp.DefaultColumnConstraint: frozenset(("this",)),
    exp.Constraint: frozenset(("this", "expressions")),
    exp.CheckColumnConstraint: frozenset(("this",)),
    exp.PrimaryKey: frozenset(("this", "expressions")),
    exp.Properties: frozenset(("expressions",)),
    exp.Property: frozenset(("this", "value")),
    exp.Where: frozenset(("this",)),
}
_PLACES: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Insert: ("this", "conflict", "returning"),
    exp.OnConflict: ("where",),
    exp.Update: ("this", "where", "returning"),
    exp.Delete: ("this", "where", "returning"),
    exp.Merge: ("this", "whens", "returning"),
    exp.Whens: ("expressions",),
    exp.When: ("then",),
    exp.Create: ("this", "properties"),
    exp.Drop: ("tables",),
    exp.TruncateTable: ("expressions",),
    exp.Schema: ("this", "expressions"),
    exp.Table: ("alias",),
    exp.ColumnDef: ("constraints",),
    exp.ColumnConstraint: ("kind",),
    exp.Constraint: ("expressions",),
    exp.Properties: ("expressions",),
}
_NAMES: Mapping[tuple[type[exp.Expr], str], str] = {
    (exp.Insert, "where"): "REPLACE WHERE",
    (exp.Insert, "ignore"): "IGNORE",
    (exp.OnConflict, "duplicate"): "ON DUPLICATE KEY",
    (exp.OnConflict, "constraint"): "a name of a constraint behind ON CONFLICT",
    (exp.OnConflict, "index_predicate"): "WHERE behind the columns of ON CONFLICT",
    (exp.Returning, "into"): "INTO behind RETURNING",
    (exp.Insert, "exists"): "IF EXISTS",
    (exp.Delete, "tables"): "names between DELETE and FROM",
    (exp.Update, "order"): "ORDER BY",
    (exp.Delete, "order"): "ORDER BY",
    (exp.TruncateTable, "exists"): "IF EXISTS",
    (exp.Table, "db"): "a schema",
    (exp.Table, "catalog"): "a catalog",
    (exp.TableAlias, "columns"): "names of columns behind an alias",
}
# Tables have no children, statements no hints: with these and without, the rows are the same.
_CHANGES_NOTHING = (
    (exp.Table, "hints"),
    (exp.Table, "only"),
    (exp.Table, "indexed"),
    (exp.Insert, "hint"),
    (exp.Insert, "settings"),
    (exp.Update, "hint"),
    (exp.Delete, "hint"),
    (exp.TruncateTable, "only"),
    (exp.TruncateTable, "identity"),
)
_INSTEAD: Mapping[tuple[type[exp.Expr], str], str] = {
    (exp.OnConflict, "duplicate"): "use ON CONFLICT (…) DO UPDATE SET …",
    (exp.OnConflict, "constraint"): "name the columns of the primary key",
    (exp.OnConflict, "index_predicate"): "say with DO UPDATE … WHERE which rows change",
    (exp.Insert, "ignore"): "use ON CONFLICT DO NOTHING",
    (exp.Insert, "where"): "DELETE those rows first",
    (
        exp.Insert,
        "partition",
    ): "give every column its value in the query, rows find their partitions by themselves",
    (exp.Delete, "tables"): "name the table behind FROM, others behind USING, and say with WHERE which rows go",
    (exp.Table, "joins"): "use FROM (USING in a DELETE) and say with WHERE which rows, or use MERGE INTO",
    (exp.Table, "db"): "tables have plain names",
    **dict.fromkeys(_CHANGES_NOTHING, "leave it out"),
}
_ROWS = "say with WHERE which rows it is for, by their key for example"
# What may narrow the rows is never to be left out.
_OTHERWISE: Mapping[type[exp.Expr], str] = {
    exp.Update: _ROWS,
    exp.Delete: _ROWS,
    exp.TruncateTable: "use DELETE and say with WHERE which rows go",
    exp.Merge: "say with ON and WHEN … AND which rows it is for",
    exp.Insert: "say in its query which rows go in",
    exp.Create: "declare the columns, or keep the rows of a query with CREATE TABLE … AS",
    exp.Drop: "name the table alone",
}
_OF_TABLES = (exp.PrimaryKey, exp.CheckColumnConstraint)
_DECLARED = (exp.ColumnDef, *_OF_TABLES)
_CONSTRAINTS = (
    exp.NotNullColumnConstraint,
    exp.PrimaryKeyColumnConstraint,
    exp.CheckColumnConstraint,
    exp.DefaultColumnConstraint,
)
_KEY = "a table has one unique key, its PRIMARY KEY"
COMPUTED = "compute the column where it is needed, or with the rows that go in"
_REFERENCE = "tables do not look at each other, ask with a join which rows have no counterpart"
_UNDECLARED: Mapping[type[object], str] = {
    exp.UniqueColumnConstraint: _KEY,
    exp.Reference: _REFERENCE,
    exp.ForeignKey: _REFERENCE,
    exp.ComputedColumnConstraint: COMPUTED,
    exp.GeneratedAsRowColumnConstraint: COMPUTED,
    exp.GeneratedAsIdentityColumnConstraint: COMPUTED,
    exp.CollateColumnConstraint: "texts are compared by their bytes, compare lower(…) where case does not count",
}
_PLAIN = "a column has a type, NOT NULL, DEFAULT, PRIMARY KEY and CHECK"
_OPTIONS_OF_TABLES = (
    "a table has PARTITIONED BY (…) and WITH (file_format = …), in the engine's own dialect (duckdb)"
)
_PROPERTIES: Mapping[type[exp.Expr], str] = {
    exp.TemporaryProperty: "CREATE TEMPORARY TABLE cannot be run here: every table is there for all",
    exp.WithDataProperty: "CREATE TABLE with WITH DATA or WITH NO DATA cannot be run here: its query says which rows "
    "the table begins with, none with LIMIT 0",
}
_WORD = re.compile(r"[A-Z][a-z]*")
_COUNTED = "a statement that changes rows gives their number"


def require_used(tree: exp.Expr, dialect: str = ENGINE_DIALECT) -> None:
    """Raise `SqlError` for a clause of the statement, in its dialect, that nothing here would use.

    >>> from sqlglot import parse_one
    >>> require_used(parse_one("delete from t where a = 1 limit 1", dialect="duckdb"))
    Traceback (most recent call last):
    ballista_py.errors.SqlError: DELETE with LIMIT cannot be run here: say with WHERE which rows it is for, by \
their key for example
    """
    pending: list[exp.Expr] = [tree]
    while pending:
        node = pending.pop()
        used = USED.get(type(node))
        if used is None:
            continue
        for key, value in node.args.items():
            if key not in used and is_given(value):
                raise _refused(tree, type(node), key)
        for key in _PLACES.get(type(node), ()):
            value = node.args.get(key)
            pending.extend(item for item in (value if isinstance(value, list) else [value]) if item)
    if isinstance(tree, exp.Create) and str(tree.args.get("kind")).upper() == "TABLE":
        _require_declared(tree, dialect)


def _require_declared(tree: exp.Create, dialect: str) -> None:
    """Raise `SqlError` for what a new table is to have and cannot have here."""
    properties = tree.args.get("properties")
    for item in properties.expressions if properties is not None else ():
        if isinstance(item, exp.LikeProperty):  # read by `likes`, here and in other dialects
            continue
        if type(item) in _PROPERTIES:
            raise SqlError(_PROPERTIES[type(item)])
        if type(item) is not exp.Property or dialect != ENGINE_DIALECT:
            name = " ".join(_WORD.findall(type(item).__name__.removesuffix("Property"))).upper()
            raise SqlError(f"CREATE TABLE with {name or item.name} cannot be run here: {_OPTIONS_OF_TABLES}")
    for item in tree.this.expressions if isinstance(tree.this, exp.Schema) else ():
        if isinstance(item, exp.LikeProperty):
            continue
        parts = item.expressions if isinstance(item, exp.Constraint) else [item]
        if not all(
            isinstance(part, _OF_TABLES if isinstance(item, exp.Constraint) else _DECLARED) for part in parts
        ):
            raise SqlError(f"'{item.sql(dialect)}' cannot be declared here{_instead(parts)}")
        for constraint in item.args.get("constraints") or ():
            if not isinstance(constraint.args.get("kind"), _CONSTRAINTS):
                text = constraint.sql(dialect)
                instead = _instead([constraint.args.get("kind")])
                raise SqlError(f"'{text}' of column '{item.name}' cannot be declared here{instead}")


def _instead(parts: Sequence[object]) -> str:
    if any(isinstance(part, exp.Identifier) for part in parts):
        return ": say its type, or behind AS its name, as SELECT … AS name does"
    return next((f": {_UNDECLARED[type(part)]}" for part in parts if type(part) in _UNDECLARED), f": {_PLAIN}")


def is_given(value: object) -> bool:
    """Whether an argument says anything: the parser writes down what is absent, too."""
    if isinstance(value, exp.Expr):
        return type(value) not in _OPTIONS or any(map(is_given, value.args.values()))
    return bool(value)


_OPTIONS = (exp.IndexParameters,)


def _refused(tree: exp.Expr, kind: type[exp.Expr], key: str) -> SqlError:
    name = "TRUNCATE" if isinstance(tree, exp.TruncateTable) else tree.key.upper()
    clause = _NAMES.get((kind, key)) or key.strip("_").upper().replace("_", " ")
    if key == "returning":
        return SqlError(f"{name} with RETURNING cannot be run here: {_COUNTED}")
    own = _INSTEAD.get((kind, key)) or _INSTEAD.get((type(tree), key))
    instead = own or _OTHERWISE.get(type(tree), "send it without")
    return SqlError(f"{name} with {clause} cannot be run here: {instead}")
