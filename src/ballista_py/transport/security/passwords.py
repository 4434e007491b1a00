"""User and password at the handshake of Flight: what drivers send that know nothing of tokens.

The password is the client's token and the user its name. Who proves both is given a bearer token of another kind for
the calls that follow: it counts for `HANDSHAKE_S`, at this scheduler, and only as long as the password itself does.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ballista_py.errors import Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.transport.security.tokens import TokenVerifier

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

HANDSHAKE_S = 86_400  # a driver that is connected for longer is refused once, and connects again
MAX_CREDENTIALS_CHARS = 4_096
_PREFIX = "handshake."


def basic_credentials(authorization: str) -> tuple[str, str]:
    """User and password in an `Authorization` header. Raises `Unauthenticated` for another scheme or none.

    >>> basic_credentials("Basic YWRhOnNlY3JldA==")
    ('ada', 'secret')
    >>> basic_credentials("Basic YTpi") == basic_credentials("basic YTpi")
    True
    """
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic" or not coded.strip():
        raise Unauthenticated(
            "a handshake shows user and password (Authorization: Basic): the name of a client, and its token"
        )
    if len(coded) > MAX_CREDENTIALS_CHARS:
        raise Unauthenticated(f"user and password have more than {MAX_CREDENTIALS_CHARS:,} characters")
    try:
        coded = coded.strip().rstrip("=")
        text = base64.b64decode(
            coded + "=" * (-len(coded) % 4), validate=True
        ).decode()  # drivers in Go leave "=" out
    except ValueError:
        raise Unauthenticated("user and password are not coded as Authorization: Basic says") from None
    user, separator, password = text.partition(":")
    if not separator:
        raise Unauthenticated("user and password are not coded as Authorization: Basic says")
    return user, password


@define
class Passwords:
    """A `TokenVerifier` that also knows the tokens that it gave at handshakes; nothing of one is remembered.

    What it gives is the password itself, sealed with a key of this process: so a token that its file has lost lets in
    nobody, whichever way it is shown. Safe to share between threads.
    """

    verifier: TokenVerifier = field(repr=False)
    runtime: Runtime
    _sealing: Fernet = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        from cryptography.fernet import Fernet

        self._sealing = Fernet(Fernet.generate_key())

    def introduced(self, authorization: str) -> tuple[str, str]:
        """The name of the client that shows these credentials, and its token for the calls that follow.

        One that shows a token instead, as the driver for JDBC does before its first call, is given that one.
        Raises `Unauthenticated`, which does not tell whether it is for the user or for the password.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.verify(token.strip()), token.strip()
        user, password = basic_credentials(authorization)
        try:
            name = self.verifier.verify(password)
        except Unauthenticated:
            name = ""
        if not hmac.compare_digest(name.encode(), user.encode(errors="surrogatepass")) or not name:
            raise Unauthenticated(
                "user and password are not those of a client: the user is its name, the password its token"
            )
        sealed = self._sealing.encrypt_at_time(password.encode(), self._now_s())
        return name, _PREFIX + sealed.decode()

    def verify(self, token: str) -> str:
        """The name of the client. Raises `Unauthenticated`, for a token of a handshake also when its time is over."""
        if not token.startswith(_PREFIX):
            return self.verifier.verify(token)
        return self.verifier.verify(self._opened(token.removeprefix(_PREFIX)))

    def _opened(self, sealed: str) -> str:
        from cryptography.fernet import InvalidToken

        try:
            found: Any = self._sealing.decrypt_at_time(sealed, HANDSHAKE_S, self._now_s())
        except (InvalidToken, ValueError):
            raise Unauthenticated(
                f"the token of the handshake is over ({HANDSHAKE_S // 3_600} hours, at the scheduler that gave it): "
                "connect again with user and password"
            ) from None
        return str(found.decode())

    def _now_s(self) -> int:
        """Of a clock that is nobody's to set; the key is as old as this process."""
        return int(self.runtime.monotonic_ms() / 1e3)
