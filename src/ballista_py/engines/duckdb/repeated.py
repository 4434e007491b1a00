"""Operands that DuckDB writes down several times while it plans: nested in each other they multiply.

`x between a and b` becomes `x >= a and x <= b`, and so on; twenty levels of it in 400 characters are a plan of a
million expressions, made in the node itself, where nobody can end it.
"""

from __future__ import annotations

from typing import Any

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
