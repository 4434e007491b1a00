"""Options of a store's client, read from words of a command line; without its framework, so that nodes can, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import orjson

from ballista_py.errors import ConfigError


def store_options(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as options: text, JSON objects, `true` and `false`, `@NAME` for a variable's value."""
    found: dict[str, Any] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or not name.isidentifier():
            raise ConfigError(f"option '{name}' is not usable: write name=value")
        if text.startswith("@"):
            if text[1:] not in os.environ:
                raise ConfigError(f"option '{name}' names the environment variable '{text[1:]}', which is not set")
            found[name] = os.environ[text[1:]]
        elif text in ("true", "false"):
            found[name] = text == "true"
        elif text.startswith("{"):
            try:
                found[name] = orjson.loads(text)
            except orjson.JSONDecodeError:
                raise ConfigError(
                    f"option '{name}' is not usable: its value starts with '{{' and is no JSON"
                ) from None
        else:
            found[name] = text
    return found
