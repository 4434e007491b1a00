"""What a token stands for, when a client gave it: noted on the store before the first partition is changed.

The first statement under a token claims it for its table. Another statement, or other rows, under the same token is
refused wherever its rows would go, before anything of it is written: the claim is one object, made once and never
changed. What a partition has applied is told by its manifest; a claim only refuses. So one that has gone, an hour
after its statement at the earliest, lets a token be taken again, for a statement that is then applied whole.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import ClassVar

from attrs import frozen

from ballista_py.errors import ObjectExists, ObjectMissing, SqlError, TryLater
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.write_tokens import client_of, name_of
from ballista_py.state.stores.store import ConditionalStore

TOKENS_PREFIX = "accelerations/tokens/"
CLAIMED_MS = 3_600_000.0
DEFINITIONS = "_definitions"  # in the place of a folder: statements that make, alter and drop tables
ATTEMPTS = 3


@frozen(kw_only=True)
class TokenClaim:
    """`accelerations/tokens/{folder}/{digest of the client and its token}.json`: the token as manifests keep it."""

    document_kind: ClassVar[str] = "token_claim"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then the token may be taken again

    token: str


def token_key(folder: str, token: str) -> str:
    """Where the claim of a client's token lies, which is as `token_for` makes it; `folder` is `TableSpec.folder`.

    Each client has tokens of its own; those of nobody in particular lie where they always did.
    """
    mine = name_of(token).encode(errors="surrogatepass")
    if client_of(token):
        mine += b"\0" + client_of(token).encode()
    return f"{TOKENS_PREFIX}{folder}/{blake2b(mine, digest_size=16).hexdigest()}.json"


class TokenClaims:
    """The claims of a state location. Safe to share between threads."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def claim(self, folder: str, token: str) -> None:
        """Return if the client's token is, from now on or since earlier, that of this statement on the table.

        `token` is as `token_for` makes it. Raises `SqlError` when it is that of another statement, and what the store
        raises.
        """
        state = ObjectState(self._store, token_key(folder, token), TokenClaim, runtime=self._runtime)
        for _ in range(ATTEMPTS):
            with suppress(ObjectExists):
                state.create(TokenClaim(token=token))
                return
            with suppress(ObjectMissing):  # it went in between
                found = state.read().document
                if found.token == token:
                    return
                name = name_of(token)
                raise SqlError(
                    f"token '{name}' was used for another statement, or for other rows: nothing was changed, take a "
                    "new token",
                    token=name,
                )
        raise TryLater("a token is being forgotten: send the statement again")

    def is_of(self, folder: str, token: str) -> bool:
        """Whether the client's token is that of this very statement on the table, which was begun then."""
        state = ObjectState(self._store, token_key(folder, token), TokenClaim, runtime=self._runtime)
        try:
            return state.read().document.token == token
        except ObjectMissing:
            return False

    def begun(self, folder: str, token: str) -> str | None:
        """The token, as it is kept, of the statement that was begun on the table under the same name by the client."""
        state = ObjectState(self._store, token_key(folder, token), TokenClaim, runtime=self._runtime)
        try:
            return state.read().document.token
        except ObjectMissing:
            return None
