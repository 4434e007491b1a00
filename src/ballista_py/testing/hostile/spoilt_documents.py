"""Documents of a cluster as somebody who can write the bucket might leave them: every case a function of its seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from ballista_py.runtime import seeded_chance

Path = tuple[str | int, ...]

_MOST_LISTED = 300
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**62, 2**63, -(2**63) - 1, 10**30, 1.5, -1.5, 1e308, "", "x", "-1",
    "1e3", "9" * 500, "\x1b[2J\x00", "../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "a/b", "é" * 2_000,
    "${env:HOME}", "'; drop table t; --", "QUFBQQ==", [], [1], [[]], [None], {}, {"a": 1}, {"header": {}},
    [1] * _MOST_LISTED, [["x", "y"]] * _MOST_LISTED,
)  # fmt: skip
_WHOLE: tuple[bytes, ...] = (
    b"", b"\xff\xfe", b"\0" * 100, b"null", b"[]", b"{}", b"1", b'""', b"[" * 100_000, b'{"header":' * 2_000,
    b"PAR1" + b"\0" * 64, b'{"header": NaN}', b'{"header": 1e999}',
)  # fmt: skip


def spoilt(data: bytes, seed: int) -> bytes:
    """The document with something wrong: other bytes, a part of it, or other values in a few of its places.

    >>> spoilt(b'{"a": 1}', 7) == spoilt(b'{"a": 1}', 7)
    True
    """
    chance = seeded_chance(seed)
    how = chance.random()
    if how < 0.1:
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed)
    if how < 0.15:
        return data[: chance.randrange(len(data))]
    if how < 0.2:
        return chance.choice((*_WHOLE, data + data, b"\xef\xbb\xbf" + data))
    found = orjson.loads(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(found, chance)
    try:
        return orjson.dumps(found)
    except TypeError:  # numbers that it does not write
        return json.dumps(found).encode()


def _change(document: Any, chance: Any) -> None:
    places = [place for place in _places(document) if place]
    if not places:
        return
    *way, last = chance.choice(places)
    inside = document
    for step in way:
        inside = inside[step]
    chance.choice(_CHANGES)(inside, last, chance)


def _put(inside: Any, last: Any, chance: Any) -> None:
    inside[last] = copy.deepcopy(chance.choice(VALUES))


def _remove(inside: Any, last: Any, _chance: Any) -> None:
    del inside[last]


def _double(inside: Any, last: Any, chance: Any) -> None:
    if isinstance(inside, list):
        inside.append(copy.deepcopy(inside[last]))
    else:
        inside[str(chance.choice(VALUES))[:50]] = copy.deepcopy(inside[last])


def _shift(inside: Any, last: Any, chance: Any) -> None:
    value = inside[last]
    if isinstance(value, str) and value:
        place = chance.randrange(len(value))
        inside[last] = value[:place] + chance.choice("Aa0/+=.\x00") + value[place + 1 :]
    elif type(value) in (int, float):
        inside[last] = value + chance.choice((1, -1, 1_000, 2**40))


_Change = Callable[[Any, Any, Any], None]
_CHANGES: tuple[_Change, ...] = (_put, _put, _put, _put, _remove, _double, _shift, _shift)


def _places(value: Any, way: Path = ()) -> Iterator[Path]:
    yield way
    inside: Mapping[Any, Any] = {}
    if isinstance(value, dict):
        inside = value
    elif isinstance(value, list):
        inside = dict(enumerate(value))
    for name, one in inside.items():
        yield from _places(one, (*way, name))
