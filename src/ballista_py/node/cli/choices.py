"""How all commands of the command line look: help in plain text of 80 columns, values of which only a few are known."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import typer


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
