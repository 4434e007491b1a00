"""What a cluster still lacks, in words, and waiting until it lacks nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    SourceLost,
    SourceUnfit,
    TransportError,
    TryLater,
    from_wire,
)
from ballista_py.runtime import Runtime
from ballista_py.transport.client.client import Client

POLL_MS = 50
SOURCE_AWAY_MS = 60_000  # after which a table whose source is away all the time is not made


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


def wait_until_copied(
    table: str,
    timeout_ms: float,
    addresses: Callable[[], Sequence[str]],
    client_of: Callable[[str], Client],
    runtime: Runtime,
) -> None:
    """Return when a table that follows its source has its first copy.

    Raises what keeps it from that: at once what does not pass by itself, after `SOURCE_AWAY_MS` of it what may pass.
    Raises `TryLater` after `timeout_ms`; it goes on being copied then.
    """
    came_ms = runtime.monotonic_ms()

    def missing() -> list[str]:
        nonlocal came_ms
        reason, error = not_copied(table, addresses(), client_of)
        if isinstance(error, SourceUnfit | SourceLost | ConfigError):
            raise error
        if error is None:
            came_ms = runtime.monotonic_ms()
        elif runtime.monotonic_ms() - came_ms > SOURCE_AWAY_MS:
            raise error
        return reason

    lacking = missing_after(timeout_ms, missing, runtime)
    if lacking:
        raise TryLater(f"not copied after {timeout_ms / 1e3:.0f} s: {'; '.join(lacking)}")


def not_copied(
    table: str, addresses: Sequence[str], client_of: Callable[[str], Client]
) -> tuple[list[str], BallistaError | None]:
    """What a table that follows its source lacks until its first copy is there, and the error that keeps it from that.

    The scheduler that reads knows it.
    """
    reason, error = f"{table} has no copy of its source yet", None
    for address in addresses:
        try:
            with client_of(address) as client:
                changes = next((row.get("changes") or {} for row in client.tables() if row["table"] == table), {})
        except TransportError as failure:
            reason = str(failure)
            continue
        if changes.get("position"):
            return [], None
        if changes.get("error"):
            error = from_wire(changes["error"])
            reason = f"{table} has no copy of its source yet: {error.message}"
    return [reason], error


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
