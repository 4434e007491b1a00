"""`write_plan`: a statement over one relation as a plan of Substrait, for engines that finish a query themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.sql.parse.parsing import parsed
from ballista_py.sql.substrait.kinds import message_of, of_column
from ballista_py.sql.substrait.messages import MAX_PLAN_BYTES, messages
from ballista_py.sql.substrait.written_aggregates import add_measure, add_sort, add_window, is_aggregate
from ballista_py.sql.substrait.written_expressions import Meanings, TermWriter, form
from ballista_py.sql.substrait.written_pieces import Functions, Term, field_ref, known

_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "kind"}
_VERSION = (0, 74, 0)  # of the messages


def write_plan(sql: str, schemas: Mapping[str, pa.Schema]) -> bytes:
    """The plan that gives the rows of a statement, to DataFusion as to the engine.

    The statement is one SELECT of the engine's dialect over one relation of `schemas`, or over such a SELECT:
    expressions, WHERE, GROUP BY, HAVING, windows, DISTINCT, ORDER BY, LIMIT. What DataFusion does in another way is
    said in a way in which it does the same, or not at all.

    Raises `UnsupportedExpression` for whatever cannot be said so, and `MissingExtra` without the package `substrait`.

    >>> from ballista_py.sql.substrait.reading import read_plan
    >>> partial = pa.schema([("g", pa.string()), ("sum", pa.decimal128(38, 0)), ("count", pa.int64())])
    >>> data = write_plan("SELECT g, SUM(sum) AS total FROM f0 AS groups GROUP BY g", {"f0": partial})
    >>> read_plan(data, {"f0": partial}).sql
    'SELECT "f0"."g" AS "g", SUM("f0"."sum") AS "total" FROM "f0" GROUP BY "f0"."g"'
    """
    try:
        trees = parsed(sql)
        if len(trees) != 1 or trees[0] is None:
            raise UnsupportedExpression("one statement can be said in Substrait")
        functions = Functions()
        built = _query(trees[0], schemas, functions)
    except (SqlglotError, SqlError):
        raise UnsupportedExpression("the statement cannot be read by the parser") from None
    except RecursionError:
        raise UnsupportedExpression("the statement is nested too deeply to be said in Substrait") from None
    if built.relation.ByteSize() > MAX_PLAN_BYTES:
        raise UnsupportedExpression("the statement makes a plan that is larger than plans are read")
    plan = messages().plan.Plan()
    version = plan.version
    version.major_number, version.minor_number, version.patch_number = _VERSION
    version.producer = "ballista_py"
    functions.declare(plan)
    root = plan.relations.add().root
    root.input.CopyFrom(built.relation)
    root.names.extend(built.names)
    return bytes(plan.SerializeToString())


@frozen(eq=False, kw_only=True)
class _Built:
    """A relation of a plan of `width` fields, and what names and expressions mean over it.

    `names` and `kinds` are those of its fields where statements over it may name them.
    """

    relation: Any
    names: tuple[str, ...]
    width: int
    scope: Meanings
    kinds: tuple[pa.DataType, ...] = ()


def _query(tree: exp.Expr, schemas: Mapping[str, pa.Schema], functions: Functions) -> _Built:
    if isinstance(tree, exp.Subquery) and not (tree.args.keys() - {"this", "alias"} and _extra(tree)):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        raise UnsupportedExpression("one SELECT over one relation can be said in Substrait")
    strange = [name for name, value in tree.args.items() if value and name not in _CLAUSES]
    if strange:
        raise UnsupportedExpression(f"a clause '{strange[0].strip('_')}' cannot be said in Substrait")
    built = _source(tree, schemas, functions)
    if tree.args.get("where") is not None:
        built = _filtered(built, tree.args["where"].this, functions)
    items = _items(tree, built)
    keys = _distinct_nodes(_meant(one, items) for one in _group_keys(tree))
    order = [
        (_meant(one.this, items), one)
        for one in (tree.args["order"].expressions if tree.args.get("order") else ())
    ]
    having = tree.args.get("having")
    used = [item for _, item in items] + [key for key, _ in order] + ([having.this] if having is not None else [])
    measures = _distinct_nodes(
        node for one in used for node in one.find_all(exp.AggFunc, exp.Filter) if is_aggregate(node)
    )
    if keys or measures or tree.args.get("group") is not None:
        built = _aggregated(built, keys, measures, functions)
    if having is not None:
        built = _filtered(built, having.this, functions)
    windows = _distinct_nodes(node for one in used for node in one.find_all(exp.Window))
    if windows:
        built = _windowed(built, windows, functions)
    return _finished(built, tree, items, order, functions)


def _extra(tree: exp.Expr) -> bool:
    return any(value for name, value in tree.args.items() if name not in ("this", "alias"))


def _source(tree: exp.Select, schemas: Mapping[str, pa.Schema], functions: Functions) -> _Built:
    origin = tree.args.get("from_")
    if origin is None or tree.args.get("joins"):
        raise UnsupportedExpression("a statement over one relation can be said in Substrait")
    source = origin.this
    if source.args.get("alias") is not None and source.args["alias"].args.get("columns"):
        raise UnsupportedExpression(
            "a relation with new names for its columns cannot be said: say them in a SELECT"
        )
    if isinstance(source, exp.Subquery):
        if _extra(source):
            raise UnsupportedExpression("a subquery with clauses of its own cannot be said in Substrait")
        built = _query(source.this, schemas, functions)
        return attrs.evolve(built, scope=_scope(source.alias, built.names, built.kinds))
    if not isinstance(source, exp.Table) or _extra(source) or source.name not in schemas:
        raise UnsupportedExpression(f"'{form(source)[:80]}' is no relation that is known here")
    return _read(source.name, source.alias or source.name, schemas[source.name])


def _read(table: str, alias: str, schema: pa.Schema) -> _Built:
    relation = messages().algebra.Rel()
    read = relation.read
    read.common.direct.SetInParent()
    read.named_table.names.append(table)
    kinds = tuple(of_column(one.type) for one in schema)
    for one, kind in zip(schema, kinds, strict=True):
        read.base_schema.names.append(one.name)
        read.base_schema.struct.types.add().CopyFrom(message_of(kind, one.nullable))
    read.base_schema.struct.nullability = 2
    names = tuple(schema.names)
    return _Built(relation=relation, names=names, width=len(names), kinds=kinds, scope=_scope(alias, names, kinds))


def _scope(alias: str, names: Sequence[str], kinds: Sequence[pa.DataType]) -> Meanings:
    columns = {
        (alias.lower(), name.lower()): (n, kind) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    if len(columns) < len(names):
        raise UnsupportedExpression("a relation with two columns of one name cannot be said in Substrait")
    return Meanings(columns, {})


def _filtered(built: _Built, condition: exp.Expr, functions: Functions) -> _Built:
    relation = messages().algebra.Rel()
    relation.filter.common.direct.SetInParent()
    relation.filter.input.CopyFrom(built.relation)
    relation.filter.condition.CopyFrom(TermWriter(functions, built.scope).condition(condition).message)
    return attrs.evolve(built, relation=relation)


def _items(tree: exp.Select, built: _Built) -> list[tuple[str, exp.Expr]]:
    """The columns that the SELECT gives, by their names."""
    found: list[tuple[str, exp.Expr]] = []
    for one in tree.expressions:
        if isinstance(one, exp.Star) and not _extra(one):
            found.extend((name, exp.column(name, quoted=True)) for name in built.names)
        elif isinstance(one, exp.Alias):
            found.append((one.alias, one.this))
        elif isinstance(one, exp.Column) and not isinstance(one.this, exp.Star):
            found.append((one.name, one))
        else:
            raise UnsupportedExpression(f"'{form(one)[:80]}' needs a name to be said in Substrait")
    return found


def _group_keys(tree: exp.Select) -> list[exp.Expr]:
    group = tree.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise UnsupportedExpression("GROUP BY ALL, ROLLUP and CUBE cannot be said in this plan")
    if any(isinstance(one, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple) for one in group.expressions):
        raise UnsupportedExpression("several grouping sets cannot be said in this plan")
    return list(group.expressions)


def _meant(node: exp.Expr, items: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
    """What a key of GROUP BY or ORDER BY stands for: a number is a place, a bare name may be that of an item."""
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.name) if node.name.isdigit() else 0
        if not 1 <= place <= len(items):
            raise UnsupportedExpression(f"there is no column {node.name[:20]} to group or order by")
        return items[place - 1][1]
    if isinstance(node, exp.Column) and not node.table:
        named = [item for name, item in items if name.lower() == node.name.lower()]
        if len(named) == 1:
            return named[0]
    return node


def _distinct_nodes(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    found: dict[str, exp.Expr] = {}
    for node in nodes:
        found.setdefault(form(node), node)
    return list(found.values())


def _aggregated(
    built: _Built, keys: Sequence[exp.Expr], measures: Sequence[exp.Expr], functions: Functions
) -> _Built:
    writer = TermWriter(functions, built.scope)
    relation = messages().algebra.Rel()
    aggregate = relation.aggregate
    aggregate.common.direct.SetInParent()
    aggregate.input.CopyFrom(built.relation)
    grouping = aggregate.groupings.add()
    computed: dict[str, Term] = {}
    columns: dict[tuple[str, str], tuple[int, pa.DataType]] = {}
    for n, key in enumerate(keys):
        value = writer.settled(writer.value(key))
        aggregate.grouping_expressions.add().CopyFrom(value.message)
        grouping.grouping_expressions.add().CopyFrom(value.message)  # for readers of before
        grouping.expression_references.append(n)
        computed[form(key)] = field_ref(n, known(value))
        if isinstance(key, exp.Column):
            columns[key.table.lower(), key.name.lower()] = (n, known(value))
    for node in measures:
        computed[form(node)] = add_measure(aggregate, writer, node, len(keys) + len(aggregate.measures))
    width = len(keys) + len(aggregate.measures)
    return _Built(relation=relation, names=(), width=width, scope=Meanings(columns, computed))


def _windowed(built: _Built, windows: Sequence[exp.Expr], functions: Functions) -> _Built:
    writer = TermWriter(functions, built.scope)
    relation = messages().algebra.Rel()
    project = relation.project
    project.common.direct.SetInParent()
    project.input.CopyFrom(built.relation)
    computed = dict(built.scope.computed)
    for node in windows:
        assert isinstance(node, exp.Window)
        computed[form(node)] = add_window(project, writer, node, built.width + len(project.expressions))
    width = built.width + len(project.expressions)
    return attrs.evolve(built, relation=relation, width=width, scope=attrs.evolve(built.scope, computed=computed))


def _finished(
    built: _Built, tree: exp.Select, items: Sequence[tuple[str, exp.Expr]], order: Sequence[tuple[exp.Expr, exp.Expr]],
    functions: Functions,
) -> _Built:  # fmt: skip
    """Projection, DISTINCT, order and limit; keys of the order that are no items go along, and are left in the end."""
    writer = TermWriter(functions, built.scope)
    values = [writer.value(item) for _, item in items]
    if tree.args.get("distinct") is not None:
        values = [writer.settled(value) for value in values]
    texts = [form(item) for _, item in items]
    sorts = []
    for key, node in order:
        if form(key) not in texts:
            if tree.args.get("distinct") is not None:
                raise UnsupportedExpression("SELECT DISTINCT is ordered by what it gives")
            texts.append(form(key))
            values.append(writer.value(key))
        sorts.append((texts.index(form(key)), node))
    relation = _projected(built.relation, built.width, values)
    kinds = tuple(known(value) for value in values)
    if tree.args.get("distinct") is not None:
        relation = _without_repeats(relation, tree.args["distinct"], kinds)
    if sorts:
        relation = _sorted(relation, [(field_ref(place, kinds[place]), node) for place, node in sorts], writer)
    relation = _cut(relation, tree)
    if len(values) > len(items):
        fields = [field_ref(place, kind) for place, kind in enumerate(kinds[: len(items)])]
        relation = _projected(relation, len(values), fields)
    names = tuple(name for name, _ in items)
    return _Built(
        relation=relation, names=names, width=len(items), kinds=kinds[: len(items)], scope=Meanings({}, {})
    )


def _projected(below: Any, width: int, values: Sequence[Term]) -> Any:
    relation = messages().algebra.Rel()
    relation.project.input.CopyFrom(below)
    for n, value in enumerate(values):
        relation.project.expressions.add().CopyFrom(value.message)
        relation.project.common.emit.output_mapping.append(width + n)
    return relation


def _without_repeats(below: Any, distinct: exp.Expr, kinds: Sequence[pa.DataType]) -> Any:
    if distinct.args.get("on") is not None:
        raise UnsupportedExpression("DISTINCT ON cannot be said in Substrait")
    relation = messages().algebra.Rel()
    aggregate = relation.aggregate
    aggregate.input.CopyFrom(below)
    grouping = aggregate.groupings.add()
    for place, kind in enumerate(kinds):
        message = field_ref(place, kind).message
        aggregate.grouping_expressions.add().CopyFrom(message)
        grouping.grouping_expressions.add().CopyFrom(message)
        grouping.expression_references.append(place)
    return relation


def _sorted(below: Any, keys: Sequence[tuple[Term, exp.Expr]], writer: TermWriter) -> Any:
    relation = messages().algebra.Rel()
    relation.sort.input.CopyFrom(below)
    for value, node in keys:
        add_sort(relation.sort.sorts.add(), writer.settled(value), node)
    return relation


def _cut(below: Any, tree: exp.Select) -> Any:
    limit, offset = (_rows(tree.args.get(name)) for name in ("limit", "offset"))
    if limit is None and offset is None:
        return below
    relation = messages().algebra.Rel()
    relation.fetch.input.CopyFrom(below)
    if offset is not None:
        relation.fetch.offset_expr.literal.i64 = offset
    if limit is not None:
        relation.fetch.count_expr.literal.i64 = limit
    return relation


def _rows(clause: exp.Expr | None) -> int | None:
    if clause is None:
        return None
    number = clause.expression
    if not isinstance(number, exp.Literal) or not number.name.isdigit() or _extra_limit(clause):
        raise UnsupportedExpression("LIMIT and OFFSET can be said as numbers of the statement")
    return int(number.name)


def _extra_limit(clause: exp.Expr) -> bool:
    return any(value for name, value in clause.args.items() if name not in ("expression", "this"))
