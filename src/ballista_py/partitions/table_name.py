"""How a table may be called, and what its name is in keys of the object store."""

from __future__ import annotations

import re
import unicodedata

from ballista_py.errors import ConfigError

MAX_PLAIN_CHARS = 128
MAX_BYTES = 63  # of a name with other characters, of which each takes up to three in a key
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_SIGNS = " _-"
_ESCAPE = "~"
_ESCAPED = re.compile(r"~([0-9a-f]{2})")


def require_table_name(name: str) -> None:
    """Raise `ConfigError` unless a table may be called so: letters and digits of any script, `_`, `-`, inner blanks.

    >>> require_table_name("größe 1")
    >>> require_table_name("a/b")
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: table name 'a/b' is not usable: '/' cannot be in it, but letters and \
digits of any script, '_', '-' and blanks
    """
    objection = _objection(name)
    if objection is not None:
        shown = "".join(c if c.isprintable() else "�" for c in (name if len(name) <= 128 else f"{name[:60]}…"))
        raise ConfigError(f"table name '{shown}' is not usable: {objection}")


def in_keys(name: str) -> str:
    """The name as keys of objects have it: its own letters, digits and `_` of ASCII, all else by its bytes.

    >>> in_keys("orders"), in_keys("a b")
    ('orders', 'a~20b')
    """
    if _KEPT.issuperset(name):
        return name
    return "".join(c if c in _KEPT else "".join(f"{_ESCAPE}{byte:02x}" for byte in c.encode()) for c in name)


def from_keys(text: str) -> str:
    """The name that `in_keys` wrote; a text that it did not write comes back in some form that is no table's name.

    >>> from_keys(in_keys("größe 1"))
    'größe 1'
    """
    if _ESCAPE not in text:
        return text
    parts = _ESCAPED.split(text)
    raw = b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))
    return raw.decode(errors="replace")


def folded(name: str) -> str:
    """The name of a table as it is kept: SQL makes no difference between A and a.

    Raises `ConfigError` for a capital letter outside of ASCII, which the engine tells from its small one.
    """
    small = name.lower()
    if small != "".join(c.lower() if c.isascii() else c for c in name):
        raise ConfigError(
            f"table name '{name[:MAX_PLAIN_CHARS]}' is not usable: only A to Z mean their small letters, write the "
            f"others small, as in '{small[:MAX_PLAIN_CHARS]}'"
        )
    return small


def _objection(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name != name.lower():
        return "take small letters, which mean capital ones, too"
    if name.isascii() and (_PLAIN.match(name) or len(name) > MAX_PLAIN_CHARS):
        many = len(name) > MAX_PLAIN_CHARS
        return f"at most {MAX_PLAIN_CHARS} characters" if many else None if name.strip("_") else "it has no letter"
    if len(name.encode(errors="replace")) > MAX_BYTES:
        return (
            f"at most {MAX_BYTES} bytes, or {MAX_PLAIN_CHARS} characters if they are all of a to z, 0 to 9 and '_'"
        )
    if unicodedata.normalize("NFC", name) != name:
        return "an accent is a letter of its own in it, write the letters with accents (form NFC of Unicode)"
    if name != name.strip(" "):
        return "it begins or ends with a blank"
    wrong = next((c for c in name if c not in _SIGNS and unicodedata.category(c)[0] not in "LMN"), None)
    if wrong is not None:
        shown = f"'{wrong}'" if wrong.isprintable() and not wrong.isspace() else f"the sign U+{ord(wrong):04X}"
        return f"{shown} cannot be in it, but letters and digits of any script, '_', '-' and blanks"
    return None if any(unicodedata.category(c)[0] in "LN" for c in name) else "it has no letter"
