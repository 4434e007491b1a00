"""What the text of one field of an application file means: one way for each kind, and everything else refused; pure.

YAML's own guess counts only against a text: whatever an editor takes for a number, a truth value or nothing is no text
until it is in quotes. So this and the JSON schema say the same of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ballista_py.coordinator.app.fields import Field
from ballista_py.node.config_file import GivenValue
from ballista_py.node.config_values import value_of
from ballista_py.partitions.sql_view import MAX_VIEW_CHARS

COUNT = r"[1-9][0-9]{0,14}"
DURATION = r"([0-9]*[1-9][0-9]*(\.[0-9]{1,6})?|[0-9]+\.[0-9]*[1-9][0-9]*) ?(ms|s|m|h|d)"
PLAIN_DURATION = r"([1-9][0-9]{0,14}|0)(\.[0-9]{1,6})?"
NO_TEXT = re.compile(
    r"null|Null|NULL|~|true|True|TRUE|false|False|FALSE"
    r"|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
MAX_ITEMS = 1_000
_NULLS = ("", "~", "null", "Null", "NULL")


def read_value(field: Field, given: GivenValue, path: str) -> Any:
    """The value of a field that is no section. Raises `ConfigError` with the place and the way out."""
    if field.kind == "text":
        return _text(given, path)
    if field.kind == "query":
        return _query(given, path)
    if field.kind == "count":
        if not _is_plain(given) or not re.fullmatch(COUNT, str(given.value)):
            raise given.error(path, f"{_shown(given)} is no whole number from 1 on")
        return int(str(given.value))
    if field.kind == "flag":
        flag = value_of(path, bool, given)
        if field.choices and str(flag).lower() not in field.choices:
            raise given.error(path, f"{given.value} cannot be: {field.help}")
        return flag
    if field.kind == "duration":
        return _duration(given, path)
    if field.kind == "choice":
        text = _text(given, path)
        return value_of(path, _literal(field.choices), GivenValue(text, given.place, "quoted"))
    if field.kind == "names":
        return _names(given, path)
    if field.kind == "options":
        return _options(given, path)
    if not isinstance(given.value, tuple):
        raise given.error(path, "takes a list, as [one, two]")
    if not 1 <= len(given.value) <= MAX_ITEMS:
        raise given.error(path, f"takes 1 to {MAX_ITEMS:,} items")
    if field.kind == "keys":
        return [_key(item, path) for item in given.value]
    return [_text(item, path) for item in given.value]


def _literal(choices: tuple[str, ...]) -> Any:
    from typing import Literal

    return Literal[choices]


def _text(given: GivenValue, path: str) -> str:
    text = value_of(path, str, given)
    if given.style == "plain" and NO_TEXT.fullmatch(text):
        raise given.error(path, f"{text} is a number or a truth value to YAML: write '{text}', in quotes")
    if not text:
        raise given.error(path, "is empty")
    return str(text)


def _query(given: GivenValue, path: str) -> str:
    """A text that may have several lines."""
    if not isinstance(given.value, str):
        return _text(given, path)
    _text(evolve(given, value=given.value.replace("\n", " ").replace("\t", " ")), path)
    if len(given.value) > MAX_VIEW_CHARS:
        raise given.error(path, f"has {len(given.value):,} characters: {MAX_VIEW_CHARS:,} are the most")
    return given.value


def _duration(given: GivenValue, path: str) -> float:
    pattern = PLAIN_DURATION if _is_plain(given) and NO_TEXT.fullmatch(str(given.value)) else DURATION
    if not isinstance(given.value, str) or not re.fullmatch(pattern, given.value):
        raise given.error(
            path, f"{_shown(given)} is no time; write milliseconds, or a number with ms, s, m, h or d, as 30s"
        )
    found = value_of(path, float, GivenValue(given.value, given.place, "plain"), duration=True)
    if found <= 0:
        raise given.error(path, f"{_shown(given)} is no positive time")
    return float(found)


def _names(given: GivenValue, path: str) -> list[str]:
    """`[a, b]`, or as a spicepod has it: `a`, or `(a, b)`."""
    if isinstance(given.value, tuple):
        if not 1 <= len(given.value) <= MAX_ITEMS:
            raise given.error(path, f"takes 1 to {MAX_ITEMS:,} items")
        return [_text(item, path) for item in given.value]
    text = _text(given, path).strip()
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    names = [name.strip() for name in inner.split(",")]
    if not all(names):
        raise given.error(path, f"{text!r} is no list of columns; write [a, b]")
    return names


def _key(given: GivenValue, path: str) -> str | Mapping[str, str]:
    if not isinstance(given.value, Mapping):
        return _text(given, path)
    if len(given.value) != 1:
        raise given.error(path, "takes expressions, or {name: expression} with one name each")
    ((name, expression),) = given.value.items()
    return {name: _text(expression, path)}


def _options(given: GivenValue, path: str) -> dict[str, str]:
    if not isinstance(given.value, Mapping):
        raise given.error(path, "takes a mapping, as {name: value}")
    if len(given.value) > MAX_ITEMS:
        raise given.error(path, f"takes at most {MAX_ITEMS:,} options")
    found = {}
    for name, item in given.value.items():
        below = f"{path}.{name}"
        if item.style == "plain" and item.value in _NULLS:
            raise item.error(below, "takes a value")
        found[name] = str(value_of(below, str, item, secret=True))
    return found


def _is_plain(given: GivenValue) -> bool:
    return isinstance(given.value, str) and given.style == "plain"


def _shown(given: GivenValue) -> str:
    if not isinstance(given.value, str):
        return "what is there"
    text = given.value if len(given.value) <= 60 else given.value[:60] + "…"
    return repr(text) if text.isprintable() else ascii(text)
