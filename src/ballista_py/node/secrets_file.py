"""The secrets of a cluster, in a file that schedulers alone can read."""

from __future__ import annotations

from pathlib import Path

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret


def read_secrets(file: str) -> dict[str, Secret]:
    """The secrets in `file`: a line for each, with its key, a space and its value; `#` starts a comment.

    Raises `ConfigError` naming file and line, never a value.
    """
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the secrets cannot be read ({type(error).__name__})") from None
    found: dict[str, Secret] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, _, value = line.strip().partition(" ")
        if not value.strip():
            raise ConfigError(f"{file}:{number}: write a key, a space and a value")
        found[key] = Secret(value.strip())
    return found
