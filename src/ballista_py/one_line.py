"""Text of somebody else as one line that can be shown: no sign that a terminal obeys, and no more than fits.

Names and messages come from other nodes, from clients and from documents; they end in logs, errors and terminals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What terminals obey: sequences that begin with ESC, or with the one character that stands for its first two.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b[\]PX^_]|[\x9d\x90])[^\x07\x1b\x9c]{0,256}(?:\x07|\x1b\\|\x9c)?|\x1b."
)
_PATH = re.compile(r"(?<![\w/.:~])~?/(?:(?:[^\s/'\",;:()]++/)++[^\s/'\",;:()]*|[^\s/'\",;:()]+\.\w+)")
_URL = re.compile(r"\b(?:file|memory|s3a?|gs|gcs|az|abfss?|wasbs?|hdfs)://[^\s'\",;()]*[^\s'\",;:().]")
_DOCUMENT = re.compile(
    r"(?:cluster|policies|jobs/[^/]+|heartbeats/[^/]+|accelerations/(?:partitions|commits|claims|seen/[^/]+)/[^/]+"
    r"|snapshots/.+/manifest|snapshots/[^/]+/table)\.json|identity"
)
_KEY = re.compile(r"(?:\b[Oo]bject )?'((?:accelerations|heartbeats|jobs|snapshots)/[^']*)'")
_AN_OBJECT = "an object of the state location"
SHORTENED = "…"
MOST_READ_CHARS = 4_096
MOST_DETAILS = 32
MOST_DETAIL_CHARS = 1_024
MOST_LISTED = 128


def printable(text: str) -> str:
    r"""The text with a blank for each sign that cannot be printed, and without sequences that terminals obey.

    >>> printable("no \x1b[31mred\x1b[0m here\u202e")
    'no red here '
    """
    if text.isprintable():
        return text
    text = _SEQUENCES.sub("", text)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def one_line(text: str, most_chars: int) -> str:
    r"""The text as one line of at most `most_chars`.

    >>> one_line("a\nb", 10), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    if len(text) > most_chars:
        text = text[: most_chars - 1] + SHORTENED
    return printable(text)


def ends_of(text: str, most_chars: int = MOST_READ_CHARS) -> str:
    """The beginning and the end of a text of somebody else, all of it that patterns are looked for in.

    A pattern may take as many steps as the text has characters, squared, and nobody else of the process is served then.

    >>> ends_of("abcdef", 4), len(ends_of("x" * 1_000_000))
    ('ab…ef', 4097)
    """
    if len(text) <= most_chars:
        return text
    return f"{text[: most_chars // 2]}{SHORTENED}{text[-(most_chars // 2) :]}"


def without_places(text: str, key: str = "", file: str = "") -> str:
    """What a node says of itself, without where its files and the objects of its store are.

    `key` is the object that the text names. The name of a shared document stays: it is what has to be put back.

    >>> without_places("TLS: /etc/pki/node.pem cannot be read"), without_places("see s3://b/k/x.arrow: gone")
    ('TLS: a file of the node cannot be read', 'see a place of the node: gone')
    >>> without_places("object 'snapshots/t/data/x' is gone", "snapshots/t/data/x")
    'an object of the state location is gone'
    """
    if key and not _DOCUMENT.fullmatch(key):
        text = text.replace(f"object '{key}'", _AN_OBJECT).replace(f"'{key}'", _AN_OBJECT)
        text = text.replace(key, _AN_OBJECT) if "/" in key else text
    text = _KEY.sub(lambda found: found[0] if _DOCUMENT.fullmatch(found[1]) else _AN_OBJECT, text)
    if file:
        text = text.replace(file, "a file of the node")
    return _PATH.sub("a file of the node", _URL.sub("a place of the node", text))


def plain_details(said: object) -> dict[str, Any]:
    """Of what somebody else says beside an error that which can be shown: texts, numbers, and short lists of both.

    >>> plain_details({"line": 3, "key": "a\\x1b[2Jb", "deep": {"er": 1}, "partitions": ["x", []]})
    {'line': 3, 'key': 'ab', 'partitions': ['x']}
    """
    if not isinstance(said, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in list(said.items())[:MOST_DETAILS]:
        plain = (
            [_plain(one) for one in value[:MOST_LISTED] if _is_plain(one)] if isinstance(value, list) else value
        )
        if isinstance(value, list) or _is_plain(value):
            found[one_line(str(name), MOST_DETAIL_CHARS)] = _plain(plain)
    return found


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _plain(value: Any) -> Any:
    return one_line(value, MOST_DETAIL_CHARS) if isinstance(value, str) else value
