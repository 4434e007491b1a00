"""`Principal`: who asks, as a verifier of tokens proved it, with the groups that it is a member of.

It is a text, the name, so it goes wherever the name of a client goes, and to whoever knows of no groups it is the name
alone. A text that was made of it has none: what loses the groups on its way gives fewer rights, never more.
"""

from __future__ import annotations

from collections.abc import Iterable

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret

MAX_NAME_CHARS = 256
MAX_GROUPS = 256


class Principal(str):
    """The name of a client, with its `groups` and the `token` that it showed, if that may be handed on.

    Raises `ConfigError` for a name or a group that cannot be one: see `require_name`.

    >>> anna = Principal("anna", ["emea", "audit"])
    >>> anna, anna.groups, groups_of(anna), groups_of("anna")
    ('anna', ('audit', 'emea'), ('audit', 'emea'), ())
    """

    __slots__ = ("groups", "token")
    groups: tuple[str, ...]
    token: Secret | None

    def __new__(cls, name: str, groups: Iterable[str] = (), token: Secret | None = None) -> Principal:
        made = super().__new__(cls, require_name(name, "the name of a client"))
        made.groups = tuple(sorted({require_name(one, "a group", blanks=True) for one in groups}))
        if len(made.groups) > MAX_GROUPS:
            raise ConfigError(f"client '{name}' is in {len(made.groups):,} groups, more than {MAX_GROUPS}")
        made.token = token
        return made

    def __reduce__(self) -> tuple[type[Principal], tuple[str, tuple[str, ...]]]:
        return Principal, (str(self), self.groups)  # a token goes nowhere by itself

    def __str__(self) -> str:
        return str.__str__(self)


def groups_of(client: str) -> tuple[str, ...]:
    """The groups of a client, if it is known in which it is."""
    return client.groups if isinstance(client, Principal) else ()


def require_name(name: str, what: str, *, blanks: bool = False) -> str:
    """The name. Raises `ConfigError` for one that is empty, too long, or has what names here do not have.

    Those with a blank are of the cluster itself, and one that begins with `user:` says in policies that a name follows.

    >>> require_name("anna@example.org", "the name of a client")
    'anna@example.org'
    """
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{what} has 1 to {MAX_NAME_CHARS} characters that can be printed, and no blank at an end"
        )
    if (" " in name and not blanks) or name.startswith("user:") or name == "*":
        raise ConfigError(f"{what} has no blank, is not '*' and does not begin with 'user:'")
    return name
