"""The names of the dialects that are read. Whoever sends the engine's own text loads no more than this."""

from __future__ import annotations

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import ENGINE_DIALECT

DIALECTS = ("postgres", "spark")
_OTHER_NAMES = {"postgresql": "postgres"}


def known_dialect(name: str) -> str:
    """The dialect that is meant, `duckdb` for the engine's own. Raises `SqlError` for one that is not read.

    >>> known_dialect("PostgreSQL")
    'postgres'
    """
    lower = name.lower()
    found = _OTHER_NAMES.get(lower, lower)
    if found in (*DIALECTS, ENGINE_DIALECT):
        return found
    shown = "".join(c if c.isprintable() else "?" for c in name[:40])
    raise SqlError(
        f"the dialect '{shown}' is not read here: write the statement in {ENGINE_DIALECT} (the engine's own), "
        f"{' or '.join(sorted(DIALECTS))}"
    )


__all__ = ["DIALECTS", "known_dialect"]
