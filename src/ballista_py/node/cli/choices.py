"""How all commands of the command line look: help in plain text of 80 columns, values of which only a few are known.

Options of a store's client, read from words of a command line; without its framework, so that nodes can, too.

Options of a store's client as an option of a command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import orjson
import typer

from ballista_py.errors import ConfigError


def command_group(text: str, **options: Any) -> typer.Typer:
    """A group of commands. Its help is plain text: boxes would cut the names of long options short."""
    settings: dict[str, Any] = {
        "no_args_is_help": True,
        "add_completion": False,
        "rich_markup_mode": None,
        "context_settings": {"max_content_width": 80, "help_option_names": ["--help", "-h"]},
        "pretty_exceptions_enable": False,
    }
    return typer.Typer(help=text, **{**settings, **options})


def choice(*known: str, upper: bool = False) -> Callable[[str], str]:
    """What reads an option that has one of these values; another one is told with the nearest there is.

    >>> choice("spark", "auto")("spark")
    'spark'
    """

    def read(word: str) -> str:
        value = word.upper() if upper else word
        if value in known:
            return value
        near = get_close_matches(value, known, 1)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        raise typer.BadParameter(f"{word[:60]!r} is none of {', '.join(known)}{meant}")

    return read


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


Option = Annotated[
    list[str] | None,
    typer.Option(
        help="of the store's client, as endpoint_url=http://…; '@NAME' reads a variable; may be repeated; "
        "default: what the variables of the store's own tools say",
        metavar="NAME=VALUE",
    ),
]
