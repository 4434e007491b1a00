"""The certificate that clients are shown, read anew when its files were replaced."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from ballista_py.errors import ConfigError
from ballista_py.runtime import Runtime
from ballista_py.transport.security.credentials import Tls

LOOK_MS = 200.0


class ServerCertificate:
    """How clients are met: TLS 1.2 or later, `protocols` and nothing else, with the certificate in the files of `tls`,
    which are looked at every `look_ms`.

    Raises `ConfigError` for files that cannot be used. Later ones that cannot be used leave it as it is.
    """

    def __init__(
        self, tls: Tls, runtime: Runtime, *, protocols: Sequence[str] = ("h2",), look_ms: float = LOOK_MS
    ) -> None:
        self._tls = tls
        self._runtime = runtime
        self._protocols = list(protocols)
        self._look_ms = look_ms
        self._seen = tls.fingerprint()
        self._looked_ms = runtime.monotonic_ms()
        self._context = _made(tls, self._protocols)

    def context(self) -> ssl.SSLContext:
        """What the next handshake takes."""
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms >= self._look_ms:
            self._looked_ms = now_ms
            now = self._tls.fingerprint()
            if now != self._seen:
                try:
                    self._context = _made(self._tls, self._protocols)
                except ConfigError:  # amid a replacement
                    return self._context
                self._seen = now
        return self._context


def _made(tls: Tls, protocols: list[str]) -> ssl.SSLContext:
    tls.check()
    tls.read().pair()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(protocols)
    made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    made.num_tickets = 0
    assert tls.certificate_file is not None
    try:
        made.load_cert_chain(tls.certificate_file, tls.key_file)
    except (ssl.SSLError, OSError):
        raise ConfigError("TLS: the certificate was replaced meanwhile") from None
    return made
