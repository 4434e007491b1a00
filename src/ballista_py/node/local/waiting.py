"""What a cluster still lacks, in words, and waiting until it lacks nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ballista_py.errors import BallistaError, ConfigError, TransportError, TryLater
from ballista_py.runtime import Runtime
from ballista_py.transport.client.client import Client

POLL_MS = 50


def missing_after(timeout_ms: float, missing: Callable[[], list[str]], runtime: Runtime) -> list[str]:
    """Nothing, as soon as nothing is `missing`; else what is after `timeout_ms`. What `missing` raises ends it."""
    until_ms = runtime.monotonic_ms() + timeout_ms
    while (found := missing()) and runtime.monotonic_ms() <= until_ms:
        runtime.sleep_ms(POLL_MS)
    return found


def not_members(names: Sequence[str], before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The nodes that are no members now, or none but under the instance that they had before they were started."""
    return [name for name in names if now.get(name) in (None, before.get(name))]


def not_loaded(tables: Sequence[str], addresses: Sequence[str], client_of: Callable[[str], Client]) -> list[str]:
    """What these tables (none: all) lack until they are served. Every scheduler must agree that it is nothing."""
    missing: list[str] = []
    for address in addresses:
        try:
            with client_of(address) as client:
                rows = {row["table"]: row for row in client.tables()}
        except TransportError as error:
            return [str(error)]
        for name in tables or rows:
            row = rows.get(name)
            if row is None:
                missing.append(f"{name} is not known to {address} yet")
            elif not row["ready"]:
                reasons = "".join(f" ({where}: {why})" for where, why in list(row["failed"].items())[:3])
                missing.append(f"{name} serves {row['serving']} of {row['partitions']} partitions{reasons}")
    return missing


def not_copied(table: str, addresses: Sequence[str], client_of: Callable[[str], Client]) -> list[str]:
    """What a table that follows its source lacks until its first copy is there. The scheduler that reads knows it."""
    reason = f"{table} has no copy of its source yet"
    for address in addresses:
        try:
            with client_of(address) as client:
                changes = next((row.get("changes") or {} for row in client.tables() if row["table"] == table), {})
        except TransportError as error:
            reason = str(error)
            continue
        if changes.get("position"):
            return []
        if changes.get("error"):
            reason = f"{table} has no copy of its source yet: {changes['error']['message']}"
    return [reason]


def still_starting(addresses: Sequence[str], client_of: Callable[[str], Client]) -> list[str]:
    """Those of these schedulers that say that they are not ready yet. Whoever says anything else is."""
    starting = []
    for address in addresses:
        try:
            with client_of(address):
                pass
        except TryLater as error:
            starting.append(str(error))
        except BallistaError:  # it may have reasons of its own to refuse this process
            continue
    return starting


def not_applied(schedulers: Sequence[str], shown: Callable[[str], Any]) -> list[str]:
    """The schedulers that are not done with their application files.

    Raises `ConfigError` for a file of which something cannot be applied. One that does not count is done with.
    """
    waiting = []
    for name in schedulers:
        try:
            found = shown(name)["app"]
        except TransportError as error:
            waiting.append(f"{name}: {error}")
            continue
        if found["standing"] in ("refused", "failed"):
            raise ConfigError("; ".join(found["problems"]))
        if found["standing"] in ("waiting", "new", "unfinished", "elsewhere"):
            waiting.append(f"{name} is not done with {found['file']['name']} revision {found['file']['revision']}")
    return waiting
