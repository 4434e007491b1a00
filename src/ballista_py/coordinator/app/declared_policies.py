"""The policies of an application file: what is wrong with them by themselves, and what tells them from others; pure."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import orjson
from attrs import asdict

from ballista_py.coordinator.app.application import DeclaredPolicies, Problem
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.partitions.policies import (
    ACTIONS,
    EVERY_TABLE,
    EVERYBODY,
    MAX_EXPRESSION_CHARS,
    MAX_RULES,
    USER,
    Policies,
)
from ballista_py.partitions.table import require_table_name
from ballista_py.principal import require_name
from ballista_py.sql.barriers import require_row_expression


def declared_policies(policies: Policies, *, on: bool = True) -> DeclaredPolicies:
    """Policies with the digest by which they are known.

    >>> declared_policies(Policies(operators=("ops",))).digest == declared_policies(Policies()).digest
    False
    """
    said = orjson.dumps(asdict(policies), option=orjson.OPT_SORT_KEYS)
    return DeclaredPolicies(policies=policies, on=on, digest=sha256(said).hexdigest())


def problems_of_policies(policies: Policies, on: bool = True) -> Iterator[Problem]:
    """What is wrong with policies without a look at any table, each at its path in the file."""
    if on and not policies.operators:
        yield Problem(
            "policies", "the field 'operators' is missing: nobody could change what they say by a statement"
        )
    yield from _people("policies.operators", policies.operators, everybody=False)
    for kind, rules in (("grants", policies.grants), ("rows", policies.rows), ("masks", policies.masks)):
        if len(rules) > MAX_RULES:
            yield Problem(f"policies.{kind}", f"takes at most {MAX_RULES:,} items")
    for number, grant in enumerate(policies.grants):
        path = f"policies.grants[{number}]"
        yield from _people(f"{path}.to", grant.to)
        yield from _tables(f"{path}.tables", grant.tables)
        for action in grant.may:
            if action not in ACTIONS:
                yield Problem(f"{path}.may", f"'{action}' is nothing to be granted: {', '.join(ACTIONS)} are")
    for number, row in enumerate(policies.rows):
        path = f"policies.rows[{number}]"
        yield from _people(f"{path}.unless", row.spares, everybody=False)
        yield from _tables(f"{path}.tables", row.tables)
        yield from _expression(f"{path}.where", row.where)
    for number, mask in enumerate(policies.masks):
        path = f"policies.masks[{number}]"
        yield from _people(f"{path}.unless", mask.spares, everybody=False)
        yield from _tables(f"{path}.tables", mask.tables)
        yield from _expression(f"{path}.value", mask.value)


def _people(path: str, names: tuple[str, ...], *, everybody: bool = True) -> Iterator[Problem]:
    for name in names:
        try:
            if name.startswith(USER):
                require_name(name.removeprefix(USER), "the name of a client")
            elif name != EVERYBODY or not everybody:
                require_name(name, "a group", blanks=True)
        except ConfigError as error:
            yield Problem(path, f"{error.message}; a group, user:NAME, or '*' for everybody where that may be")


def _tables(path: str, names: tuple[str, ...]) -> Iterator[Problem]:
    for name in names:
        try:
            if name != EVERY_TABLE:
                require_table_name(name)
        except ConfigError as error:
            yield Problem(path, error.message)


def _expression(path: str, text: str) -> Iterator[Problem]:
    if len(text) > MAX_EXPRESSION_CHARS:
        yield Problem(path, f"has {len(text):,} characters: {MAX_EXPRESSION_CHARS:,} are the most")
        return
    try:
        require_row_expression(text)
    except BallistaError as error:
        yield Problem(path, error.message)
