"""Documents that hold a generated part: what stands between two marks is replaced, the rest stays as it is."""

from __future__ import annotations

from pathlib import Path

from ballista_py.errors import ConfigError


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put `text` between the marks of the document.

    Raises `ConfigError` for a document without the two marks in this order.
    """
    whole = path.read_text()
    before, found_begin, rest = whole.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ConfigError(f"'{path.name}' has no place for what is generated: it lacks the line {begin} or {end}")
    path.write_text(f"{before}{begin}\n{text.rstrip()}\n{end}{after}")
