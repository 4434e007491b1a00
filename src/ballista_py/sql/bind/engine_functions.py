"""What is known of the engine's functions and types: which a statement may use, and which work over many rows.

The list beside this module, `engine_functions.tsv`, has one record for every function and type in the engine's
catalog. A person has looked at each of them: `scripts/review_functions.py` shows what another release of the engine
adds or drops. What is not on the list is not allowed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast

from attrs import frozen

FunctionKind: TypeAlias = Literal[
    "scalar", "aggregate", "window", "macro", "table", "table_macro", "pragma", "type"
]
Over: TypeAlias = Literal["row", "rows", "window", "relation", "session", "-"]
LIST = "engine_functions.tsv"
_CALLED: frozenset[FunctionKind] = frozenset(("scalar", "aggregate", "window", "macro"))


@frozen(kw_only=True)
class EngineFunction:
    """One function by one kind, or a type. `over` says what it is computed from: one row, or many `rows`."""

    name: str
    kind: FunctionKind
    over: Over
    allowed: bool
    reason: str


@lru_cache(maxsize=1)
def engine_functions() -> tuple[EngineFunction, ...]:
    """Every record of the reviewed list.

    >>> next(one for one in engine_functions() if one.name == "sleep_ms").allowed
    False
    """
    lines = files("ballista_py.sql.bind").joinpath(LIST).read_text("utf-8").splitlines()
    records = []
    for line in lines[1:]:
        name, kind, over, verdict, reason = line.split("\t")
        records.append(
            EngineFunction(
                name=name,
                kind=cast(FunctionKind, kind),
                over=cast(Over, over),
                allowed=verdict == "allowed",
                reason=reason,
            )
        )
    return tuple(records)


@lru_cache(maxsize=1)
def allowed_calls() -> frozenset[str]:
    """The functions that an expression may call: none of their kinds is refused.

    >>> "sum" in allowed_calls(), "getvariable" in allowed_calls(), "read_csv" in allowed_calls()
    (True, False, False)
    """
    called = [one for one in engine_functions() if one.kind in _CALLED]
    return frozenset(one.name for one in called) - {one.name for one in called if not one.allowed}


@lru_cache(maxsize=1)
def allowed_relations() -> frozenset[str]:
    """The functions that may stand in FROM.

    >>> "range" in allowed_relations(), "read_csv" in allowed_relations()
    (True, False)
    """
    return frozenset(one.name for one in engine_functions() if one.kind == "table" and one.allowed)


@lru_cache(maxsize=1)
def allowed_types() -> frozenset[str]:
    """The types that a statement may name.

    >>> "varchar" in allowed_types(), "geometry" in allowed_types()
    (True, False)
    """
    return frozenset(one.name for one in engine_functions() if one.kind == "type" and one.allowed)


@lru_cache(maxsize=1)
def aggregates() -> frozenset[str]:
    """The functions that make one value of many rows, macros that do so included.

    >>> {"sum", "product", "json_group_array"} <= aggregates(), "upper" in aggregates()
    (True, False)
    """
    return frozenset(one.name for one in engine_functions() if one.over == "rows")
