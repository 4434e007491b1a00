"""Which secrets a definition references, written `${secrets:key}` in a label or an option of a table's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret
from ballista_py.state.members.control import AppDefinition

T = TypeVar("T")
_REFERENCE = re.compile(r"\$\{secrets:([A-Za-z0-9_.-]+)\}")


def referenced_secrets(definition: AppDefinition) -> frozenset[str]:
    """The keys that `definition` references, and that its nodes may therefore ask for.

    >>> sorted(referenced_secrets(AppDefinition(revision=1, tables=(), labels={"dsn": "db:${secrets:db.password}"})))
    ['db.password']
    """
    texts = [*_texts(definition.labels), *(text for table in definition.tables for text in _texts(table.source))]
    return frozenset(key for text in texts for key in _REFERENCE.findall(text))


def with_secrets(value: T, secrets: Mapping[str, Secret]) -> T:
    """`value` (text, list or mapping) with the secrets in place of their references, for whoever opens a source.

    What comes out is not to be kept or shown. Raises `ConfigError` naming a key that `secrets` lacks.

    >>> with_secrets({"user": "me", "password": "${secrets:db}"}, {"db": Secret("hunter2")})
    {'user': 'me', 'password': 'hunter2'}
    """
    found: Any = value
    if isinstance(value, str):
        found = _REFERENCE.sub(lambda match: _reveal(match[1], secrets), value)
    elif isinstance(value, Mapping):
        found = {name: with_secrets(item, secrets) for name, item in value.items()}
    elif isinstance(value, list | tuple):
        found = [with_secrets(item, secrets) for item in value]
    return cast(T, found)


def _reveal(key: str, secrets: Mapping[str, Secret]) -> str:
    if key not in secrets:
        raise ConfigError(f"the source references the secret '{key}', which the secrets file does not hold")
    return secrets[key].reveal()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
