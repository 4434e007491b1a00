"""The secrets of a cluster, in a file that schedulers alone can read."""

from __future__ import annotations

from pathlib import Path

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret
from ballista_py.transport.security.tokens import read_lines


def read_secrets(file: str) -> dict[str, Secret]:
    """The secrets in `file`: a line for each, with its key, a space and its value; `#` starts a comment.

    Raises `ConfigError` naming file and line, never a value.
    """
    found: dict[str, Secret] = {}
    for number, line in enumerate(read_lines(Path(file), "the secrets"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, _, value = line.strip().partition(" ")
        if not value.strip():
            raise ConfigError(f"{file}:{number}: write a key, a space and a value")
        if key in found:
            raise ConfigError(f"{file}:{number}: the key is given twice: keep one")
        if not key.isprintable():
            raise ConfigError(f"{file}:{number}: the key has a character that cannot be printed")
        found[key] = Secret(value.strip())
    return found
