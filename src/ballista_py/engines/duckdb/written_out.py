"""How many columns and expressions a statement has once DuckDB has put in place what its names and stars stand for.

A name of the select list stands for its whole expression wherever it is used in that SELECT, and `*` for all columns
of what it reads. `x0+x0 as x1, x1+x1 as x2, …` and `select *, * from (select *, * from …)` double with each of their
steps: 400 characters make a million. The binder makes them all, and nothing interrupts it.

Operands that DuckDB writes down several times while it plans: nested in each other they multiply.

`x between a and b` becomes `x >= a and x <= b`, and so on; twenty levels of it in 400 characters are a plan of a
million expressions, made in the node itself, where nobody can end it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import Factory, define, frozen

from ballista_py.errors import SqlError

MAX_REPEATED = 100_000  # expressions, as many as a statement may have elements
MAX_CHAINED = 4_096  # beyond it a statement is planned where it can be ended
_TIMES = 4  # more than two, because what is made of them is written down again


def repeats(element: dict[str, Any]) -> bool:
    """Whether DuckDB may write an operand of the element down more than once.

    >>> repeats({"class": "BETWEEN"}), repeats({"class": "FUNCTION"})
    (True, False)
    """
    return element.get("class") in ("BETWEEN", "LAMBDA") or element.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN")


def require_few_repeated(statement: Any) -> None:
    """Raise `SqlError` for a parsed statement with too many expressions once each stands as often as it is written.

    An operand that is repeated by one element alone counts as nothing: that is what such elements are for.
    """
    total = 0
    pending: list[tuple[Any, int, int]] = [(statement, 1, 0)]  # how often it is written, by how many elements
    while pending:
        element, times, levels = pending.pop()
        if isinstance(element, list):
            pending.extend((item, times, levels) for item in element)
        elif isinstance(element, dict):
            if levels > 1 and "class" in element:
                total += times
                if total > MAX_REPEATED:
                    raise SqlError(
                        "operands of BETWEEN, IN and lambdas stand in each other so deep that the plan would have more "
                        f"than {MAX_REPEATED:,} expressions: compute the inner ones in a table of their own"
                    )
            pending.extend(_parts(element, times, levels))


def _parts(element: dict[str, Any], times: int, levels: int) -> list[tuple[Any, int, int]]:
    if not repeats(element):
        return [(value, times, levels) for value in element.values() if isinstance(value, dict | list)]
    if "children" in element:  # IN: the first is looked for among the others
        operand, others = element["children"][:1], element["children"][1:]
        return [(operand, times * max(_TIMES, len(others)), levels + 1), (others, times, levels)]
    return [(value, times * _TIMES, levels + 1) for value in element.values() if isinstance(value, dict | list)]


def chained(statement: Any) -> int:
    """How often, at most, an expression may stand in the plan because columns are computed of columns that are.

    Those of one SELECT may name each other, and a filter is handed down through all subqueries, written out in each.
    """
    product = 1
    pending: list[Any] = [statement]
    while pending and product <= MAX_REPEATED:
        element = pending.pop()
        if isinstance(element, dict):
            if "select_list" in element:
                product *= _written(element["select_list"])
            pending.extend(value for value in element.values() if isinstance(value, dict | list))
        elif isinstance(element, list):
            pending.extend(element)
    return product


def _written(items: list[dict[str, Any]]) -> int:
    """How often, at most, an expression of these columns is written, each with what it names of those before it."""
    known: dict[str, int] = {}
    most = 1
    for item in items:
        times = _most(item, known)
        most = max(most, times)
        alias = str(item.get("alias", "")).lower()
        if alias:
            known[alias] = times
    return most


def _most(item: Any, known: dict[str, int]) -> int:
    most = 1
    pending: list[tuple[Any, int]] = [(item, 1)]
    while pending:
        element, times = pending.pop()
        most = max(most, min(times, MAX_REPEATED + 1))
        if isinstance(element, list):
            pending.extend((part, times) for part in element)
        elif isinstance(element, dict) and "select_list" not in element:
            if element.get("class") == "COLUMN_REF":
                times *= known.get(str(element["column_names"][-1]).lower(), 1)
                most = max(most, min(times, MAX_REPEATED + 1))
            elif element.get("class") == "CASE":
                checks = element["case_checks"]
                pending.extend((check["when_expr"], times * len(checks)) for check in checks)
                pending.extend((check["then_expr"], times) for check in checks)
                pending.append((element.get("else_expr"), times))
            else:
                pending.extend((part, many) for part, many, _ in _parts(element, times, 0))
    return most


MAX_WRITTEN_OUT = 100_000  # as many as a statement may have elements
MAX_BOUND_COLUMNS = 16_384  # beyond it a statement is bound where that can be ended: it takes half a second
_LARGE = 1 << 40  # beyond it nobody counts
_NODE = "_NODE"


@frozen
class Columns:
    """So many columns, and all those of so many tables."""

    single: int = 0
    tables: int = 0

    def __add__(self, other: Columns) -> Columns:
        return Columns(min(_LARGE, self.single + other.single), min(_LARGE, self.tables + other.tables))

    def times(self, number: int) -> Columns:
        """The same, so often."""
        return Columns(min(_LARGE, self.single * number), min(_LARGE, self.tables * number))

    def of(self, width: int) -> int:
        """How many they are if no table has more columns than `width`."""
        return self.single + self.tables * width


NO_COLUMNS = Columns()
_ONE = Columns(single=1)
_TABLE = Columns(tables=1)


@frozen
class WrittenOut:
    """The columns that all blocks of a statement give together, and how many expressions they are computed by."""

    columns: Columns
    expressions: int


def require_few_written_out(found: WrittenOut) -> None:
    """Raise `SqlError` for a statement that is too large once it is written out.

    >>> require_few_written_out(WrittenOut(Columns(7), 1 << 20))
    Traceback (most recent call last):
    ballista_py.errors.SqlError: columns of one SELECT that are computed of each other would be written out as more \
than 100,000 expressions: compute the inner ones in a subquery or in WITH
    """
    if found.expressions > MAX_WRITTEN_OUT:
        raise SqlError(
            "columns of one SELECT that are computed of each other would be written out as more than "
            f"{MAX_WRITTEN_OUT:,} expressions: compute the inner ones in a subquery or in WITH"
        )
    if found.columns.of(1) > MAX_WRITTEN_OUT:
        raise SqlError(
            f"* would stand for more than {MAX_WRITTEN_OUT:,} columns, because subqueries give the same columns "
            "several times: name those that are needed"
        )


def written_out(statement: Any) -> WrittenOut:
    """The size of a statement, given as DuckDB's parser gives it. As many steps as the tree has elements."""
    counter = _Counter()
    counter.walk(statement)
    return WrittenOut(counter.columns, min(counter.expressions, _LARGE))


@define
class _Counter:
    """The blocks that were seen, inner ones first, and what the names of WITH stand for where it is now."""

    columns: Columns = NO_COLUMNS
    expressions: int = 0
    _of_block: dict[int, Columns] = Factory(dict)
    _named: dict[str, list[Columns]] = Factory(dict)

    def walk(self, statement: Any) -> None:
        pending: list[tuple[str, Any]] = [("enter", statement)]
        while pending:
            step, element = pending.pop()
            if step == "name":
                name, block = element
                self._named.setdefault(name, []).append(self._of_block.get(id(block), _TABLE))
            elif step == "leave":
                self._leave(element)
            elif isinstance(element, list):
                pending.extend(("enter", item) for item in element)
            elif isinstance(element, dict):
                if _is_block(element):
                    pending.append(("leave", element))
                pending.extend(
                    ("enter", value) for key, value in element.items() if key != "cte_map" and _has_parts(value)
                )
                for entry in reversed(_common_tables(element)):  # the first one is looked at first
                    block = entry["value"].get("query_node", {})
                    pending += [("name", (str(entry["key"]).lower(), block)), ("enter", block)]

    def _leave(self, block: dict[str, Any]) -> None:
        found = self._select(block) if "select_list" in block else self._set_operation(block)
        self._of_block[id(block)] = found
        self.columns += found
        for entry in _common_tables(block):
            self._named[str(entry["key"]).lower()].pop()

    def _set_operation(self, block: dict[str, Any]) -> Columns:
        children = [*block.get("children", ()), block.get("left"), block.get("right")]
        sizes = [self._of_block.get(id(child), _TABLE) for child in children if isinstance(child, dict)]
        if "BY_NAME" in str(block.get("setop_type")):
            return sum(sizes, NO_COLUMNS)
        return max(sizes, key=lambda one: one.of(1), default=_ONE)

    def _select(self, block: dict[str, Any]) -> Columns:
        sources = list(self._sources(block.get("from_table")))
        everything = sum((columns for _, columns in sources), NO_COLUMNS)
        columns, known = NO_COLUMNS, dict[str, int]()
        for item in block["select_list"]:
            size, has_star = _size(item, known)
            if not has_star:
                columns += _ONE
                self.expressions += size
            else:
                name = str(item.get("relation_name", "")).lower()
                named = [found for alias, found in sources if name and alias == name]
                found = named[0] if len(named) == 1 else everything
                columns += found
                self.expressions += (size - 1) * max(1, found.of(1))
            alias = str(item.get("alias", "")).lower()
            if alias:
                known[alias] = size
        others = [value for key, value in block.items() if key not in ("select_list", "from_table", "cte_map")]
        self.expressions += _size(others, known)[0]
        return columns

    def _sources(self, source: Any) -> Iterator[tuple[str, Columns]]:
        """The relations of a FROM, with their names and columns."""
        pending, times = [source], 1
        while pending:
            one = pending.pop()
            if not isinstance(one, dict):
                continue
            name = str(one.get("alias") or one.get("table_name") or "").lower()
            kind = one.get("type")
            if kind == "JOIN":
                pending += [one.get("left"), one.get("right")]
            elif kind == "PIVOT":
                for pivot in one.get("pivots", ()):
                    times = min(_LARGE, times * max(1, len(pivot.get("entries", ()))))
                yield name, _ONE.times(times * max(1, len(one.get("aggregates", ()))))
                pending.append(one.get("source"))
            elif kind == "SUBQUERY":
                yield name, self._of_block.get(id(one.get("subquery", {}).get("node")), _TABLE)
            elif kind == "EXPRESSION_LIST":
                yield name, _ONE.times(max(map(len, one.get("values", ())), default=1))
            elif kind != "EMPTY":
                table = self._named.get(str(one.get("table_name", "")).lower())
                yield name, table[-1] if table else _TABLE


def _size(expression: Any, known: dict[str, int]) -> tuple[int, bool]:
    """How many pieces an expression has without its subqueries, and whether it stands for one of each column."""
    size, has_star = 0, False
    pending = [expression]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending.extend(one)
        elif isinstance(one, dict) and not _is_block(one):
            if "class" in one:
                size += 1
            if one.get("class") == "COLUMN_REF":
                size += known.get(str(one["column_names"][-1]).lower(), 0)
            has_star = has_star or one.get("class") == "STAR"
            pending.extend(value for value in one.values() if _has_parts(value))
    return min(size, _LARGE), has_star


def _common_tables(element: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = element.get("cte_map", {}).get("map", []) if _is_block(element) else []
    return found


def _is_block(element: dict[str, Any]) -> bool:
    return "class" not in element and str(element.get("type", "")).endswith(_NODE)


def _has_parts(value: Any) -> bool:
    return isinstance(value, dict | list)
