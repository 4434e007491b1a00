"""HTTP/1.1 as h11 reads it, without what a proxy in front of a node could read in another way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import h11

from ballista_py.traces import TRACE_HEADER

# What a node reads the first of: somebody else may read the last. h11 looks at `host` and `content-length` itself.
_ONCE = frozenset(
    name.encode()
    for name in (
        *("authorization", "content-type", "content-encoding", "transfer-encoding"),
        *("origin", "sec-fetch-site", TRACE_HEADER),
    )
)


class StrictConnection(h11.Connection):
    """The server's side of a connection on which a request has one length, one of each header that is read, and a
    version of HTTP that is spoken here. Whatever else comes is `RemoteProtocolError`, and the end of the connection.
    """

    def next_event(self) -> Any:
        """See `h11.Connection.next_event`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            require_plain(event)
        return event


def require_plain(request: h11.Request) -> None:
    """Raise `RemoteProtocolError` for a request that others could understand in another way.

    >>> require_plain(h11.Request(method="GET", target="/", headers=[("host", "a"), ("accept", "b"), ("accept", "c")]))
    """
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("another version of HTTP", error_status_hint=505)
    names = Counter(name for name, _value in request.headers)
    if any(names[name] > 1 for name in _ONCE):
        raise h11.RemoteProtocolError("a header that may come once came twice")
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        raise h11.RemoteProtocolError("a length beside chunks, or chunks in HTTP/1.0")
