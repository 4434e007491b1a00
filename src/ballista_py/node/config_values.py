"""What a text means as the value of a field: one way for each type, and everything else refused; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

from ballista_py.errors import ConfigError
from ballista_py.node.config_file import GivenValue

_INTEGER = re.compile(r"[+-]?[0-9][0-9_]{0,18}")
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]{0,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_MS = 100 * 366 * 86_400_000
_NULLS = ("", "~", "null")
_OTLP_SCHEMES = ("http", "https")
_MAX_SHOWN = 60
_MAX_TEXT = 4_096  # no path is longer


def value_of(
    name: str, kind: Any, found: GivenValue, *, secret: bool = False, duration: bool | None = None
) -> Any:
    """The value of the field `name`, whose type is `kind`. Raises `ConfigError` with the place and the way out.

    With `secret` no error shows the value. Whether a number is a `duration` is told by the name, if nobody says so.
    """
    value = _Reader(name, secret, is_duration(name) if duration is None else duration).read(kind, found)
    if name == "state_location" and _names_somebody(value):
        raise found.error(
            name,
            "the URL names a user or a password, which logs would show: leave them out, and give store_options",
        )
    return value


def _names_somebody(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.username is not None or parts.password is not None
    except ValueError:  # no URL at all, which is said when it is opened
        return False


def is_duration(name: str) -> bool:
    """Whether a field holds a time, by its name.

    >>> [is_duration(name) for name in ("ttl_ms", "partition_discovery_interval", "replicas")]
    [True, True, False]
    """
    return name.endswith(("_ms", "_interval", "_timeout", "_ttl")) and not name.startswith(
        "max_partition_assignments"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """What somebody who wrote `name` may have meant, as the end of a sentence; the whole list where nothing is near.

    >>> nearest("tttl_ms", ["ttl_ms", "skew_ms"])
    "did you mean 'ttl_ms'?"
    """
    near = get_close_matches(name, sorted(known), 1)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(sorted(known))}"


def check_endpoint(endpoint: str) -> str:
    """The endpoint, if it is one of gRPC. Raises `ConfigError` otherwise.

    >>> check_endpoint("http://127.0.0.1:4317")
    'http://127.0.0.1:4317'
    """
    if not _is_usable(endpoint):
        raise ConfigError(
            "otlp_endpoint: write http://host:4317, or https:// where the collector has a certificate; it is one of "
            "OTLP over gRPC, and what it wants to know goes into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return endpoint


def _is_usable(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in _OTLP_SCHEMES and bool(parts.hostname and parts.port) and not _has_more(parts)
    except ValueError:  # a port that is none
        return False


def _has_more(parts: SplitResult) -> bool:
    """Whether it names more than a host and a port: that would be sent nowhere, or shown in logs."""
    return bool(parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)


class _Reader:
    def __init__(self, name: str, secret: bool, duration: bool) -> None:
        self._name = name
        self._secret = secret
        self._is_duration = duration

    def read(self, kind: Any, found: GivenValue) -> Any:
        if NoneType in get_args(kind):
            if found.style == "plain" and found.value in _NULLS:
                return None
            kind = next(one for one in get_args(kind) if one is not NoneType)
        origin = get_origin(kind)
        if origin is tuple:
            if not isinstance(found.value, tuple):
                raise self._error(found, "takes a list, as [one, two]")
            return tuple(self._text(item) for item in found.value)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(found, get_args(kind)[1])
        if origin is Literal:
            return self._choice(found, get_args(kind))
        if kind is bool:
            return self._boolean(found)
        if kind is float and self._is_duration:
            return self._duration(found)
        if kind in (int, float):
            return self._number(found, kind)
        return self._text(found)

    def _text(self, found: GivenValue) -> str:
        if not isinstance(found.value, str) or (found.style == "plain" and found.value in _NULLS):
            raise self._error(found, "takes a text")
        if len(found.value) > _MAX_TEXT:
            raise self._error(found, f"is longer than {_MAX_TEXT:,} characters")
        if not found.value.isprintable():
            raise self._error(found, "holds a character that cannot be printed")
        return found.value

    def _choice(self, found: GivenValue, choices: Collection[str]) -> str:
        text = self._text(found)
        for choice in choices:
            if text == choice or (choice.isupper() and text.upper() == choice):
                return choice
        near = get_close_matches(text.lower(), [choice.lower() for choice in choices], 1)
        meant = f" (did you mean {next(c for c in choices if c.lower() == near[0])}?)" if near else ""
        raise self._error(found, f"is none of {', '.join(choices)}{meant}")

    def _boolean(self, found: GivenValue) -> bool:
        if found.style == "plain" and found.value in ("true", "false"):
            return found.value == "true"
        raise self._error(found, "is neither true nor false; write one of these two, without quotes")

    def _duration(self, found: GivenValue) -> float:
        match = _DURATION.fullmatch(found.value) if isinstance(found.value, str) else None
        if match is None:
            # Signs, powers and unknown units alike: a number that a validator refuses is told apart by it.
            if found.style != "quoted" and isinstance(found.value, str) and _NUMBER.fullmatch(found.value):
                return float(found.value)
            raise self._error(found, "is no time; write milliseconds, or a number with ms, s, m, h or d, as 30s")
        ms = float(match[1]) * _UNIT_MS[match[2]]
        if ms > _MAX_MS:
            raise self._error(found, "is longer than a hundred years")
        return ms

    def _number(self, found: GivenValue, kind: type[int] | type[float]) -> int | float:
        pattern = _INTEGER if kind is int else _NUMBER
        if not isinstance(found.value, str) or found.style == "quoted" or not pattern.fullmatch(found.value):
            raise self._error(found, f"is no {'whole ' if kind is int else ''}number")
        value = kind(found.value)
        if not math.isfinite(value) or abs(value) >= 2**63:
            raise self._error(found, "is too large a number")
        return value

    def _mapping(self, found: GivenValue, kind: Any) -> dict[str, Any]:
        if not isinstance(found.value, Mapping):
            raise self._error(found, "takes a mapping, as {name: value}")
        if not all(name.isprintable() for name in found.value):
            raise self._error(found, "holds a name with a character that cannot be printed")
        read = self._text if kind is str else self._any
        return {name: read(item) for name, item in found.value.items()}

    def _any(self, found: GivenValue) -> Any:
        if isinstance(found.value, tuple):
            return [self._any(item) for item in found.value]
        if isinstance(found.value, Mapping):
            return {name: self._any(item) for name, item in found.value.items()}
        if found.style == "plain":
            if found.value in _NULLS:
                return None
            if found.value in ("true", "false"):
                return found.value == "true"
            for kind, pattern in ((int, _INTEGER), (float, _NUMBER)):
                if pattern.fullmatch(found.value):
                    return kind(found.value)
        return found.value

    def _error(self, found: GivenValue, problem: str) -> Exception:
        if self._secret or not isinstance(found.value, str):
            kind = "the value" if isinstance(found.value, str) else "what is there"
            return found.error(self._name, f"{kind} {problem}")
        text = found.value if len(found.value) <= _MAX_SHOWN else found.value[:_MAX_SHOWN] + "…"
        return found.error(self._name, f"{ascii(text) if not text.isprintable() else repr(text)} {problem}")
