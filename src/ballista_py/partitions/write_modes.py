"""Whether statements may change a table that has a source: what is declared, held against what can be carried out.

Pure; asked when a table is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ballista_py.errors import ConfigError
from ballista_py.partitions.refresh import WRITE_WAITS

WRITABLE_FORMATS = frozenset(("postgres",))
WRITE_OPTIONS = ("write_mode", "write_wait")
MAX_SHOWN = 60


def require_write_mode(table: str, mode: object, wait: object, source: Any) -> None:
    """Raise `ConfigError` unless a table with this source, or none, can be written to so.

    >>> require_write_mode("t", "write_through", "visible", {"format": "csv"})
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: table 't': Write-through acceleration currently requires a source of format \
'postgres': leave write_mode out, and change the rows where they come from
    """
    if wait not in WRITE_WAITS:
        raise ConfigError(f"table '{table}': write_wait: {_shown(wait)} is none of {', '.join(WRITE_WAITS)}")
    if mode == "write_back":
        raise ConfigError(
            f"table '{table}': durable write-back needs a source that can apply a delivered row in one atomic step: "
            "take write_mode 'write_through', which answers once the source has it"
        )
    if mode not in ("read_only", "write_through"):
        raise ConfigError(f"table '{table}': write_mode: {_shown(mode)} is none of read_only, write_through")
    found = source.get("format") if isinstance(source, Mapping) else None
    if mode == "write_through" and found not in WRITABLE_FORMATS:
        way_out = (
            "leave write_mode out, a table without a source is written to anyway"
            if source is None
            else "leave write_mode out, and change the rows where they come from"
        )
        raise ConfigError(
            f"table '{table}': Write-through acceleration currently requires a source of format 'postgres': {way_out}"
        )


def refuse_write_options(options: Mapping[str, object]) -> None:
    """Raise `ConfigError` for options of a table without a source that are about writing to one.

    >>> refuse_write_options({"file_format": "vortex"})
    """
    named = next((name for name in WRITE_OPTIONS if name in options), None)
    if named is not None:
        require_write_mode(
            "of this statement", options.get("write_mode", "read_only"), options.get("write_wait", "visible"), None
        )
        raise ConfigError(f"{named} is of tables with a source, as 'postgres': leave it out")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{text[:MAX_SHOWN]}'"
