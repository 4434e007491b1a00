"""Which secrets a definition references, written `${secrets:key}` in a label or an option of a table's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ballista_py.state.control import AppDefinition

_REFERENCE = re.compile(r"\$\{secrets:([A-Za-z0-9_.-]+)\}")


def referenced_secrets(definition: AppDefinition) -> frozenset[str]:
    """The keys that `definition` references, and that its nodes may therefore ask for.

    >>> sorted(referenced_secrets(AppDefinition(revision=1, tables=(), labels={"dsn": "db:${secrets:db.password}"})))
    ['db.password']
    """
    texts = [*_texts(definition.labels), *(text for table in definition.tables for text in _texts(table.source))]
    return frozenset(key for text in texts for key in _REFERENCE.findall(text))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
