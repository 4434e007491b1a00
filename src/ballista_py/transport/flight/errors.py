"""Errors of our tree as statuses of calls, and back.

What travels is the `to_wire` form, as JSON in what Flight calls the extra info of an error: a stable code, one line,
small details. A traceback, a path or the text of an error outside the tree never travels.
"""

from __future__ import annotations

import logging
import re

import pyarrow.flight as flight
from pyarrow import ArrowException

from ballista_py.errors import BallistaError, InvalidData, TransportError, from_wire, named, to_wire
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.statuses import CallStatus, LinkBroke, status_of

_log = logging.getLogger(__name__)
# Arrow's errors of input and output, a stream that broke among them, are those of the system.
FLIGHT_FAILURES = (flight.FlightError, ArrowException, LinkBroke, OSError)

# gRPC may drop a call whose trailing metadata exceeds 8 KiB, and carries the message three times over.
MAX_ERROR_VALUES, MAX_ERROR_BYTES = 10_000, 1 << 20  # of what another node says of an error
MAX_MESSAGE_CHARS = 1_000
MAX_WIRE_BYTES = 3_000

# By this text alone gRPC tells a node that was never reached from a connection that broke.
_NEVER_CONNECTED = "failed to connect to all addresses"
_NOT_ACCEPTED = re.compile(r"certificate verify failed: ([\w \-]+)")
_NOT_NAMED = re.compile(r"Peer name (\S+) is not in peer certificate")
_NO_SUCH_HOST = re.compile(r"errors resolving |DNS resolution failed|address lookup failed")
_HUNG_UP = re.compile(r"Socket closed|Connection reset by peer")
_OTHER_HTTP = "Failed parsing HTTP/2"


def to_flight(error: BaseException) -> CallStatus:
    """The status that carries `error`; raise it `from None`."""
    if isinstance(error, CallStatus):
        return error
    if isinstance(error, LinkBroke):
        error = TransportError(str(error))
    if not isinstance(error, BallistaError):
        _log.error("a call failed for a reason that its caller is not told", exc_info=error)
    error = named(error)
    wire = to_wire(error)
    wire["message"] = _shortened(" ".join(str(wire["message"]).split()), MAX_MESSAGE_CHARS)
    extra = to_json(wire)
    if len(extra) > MAX_WIRE_BYTES:
        extra = to_json({**wire, "details": {}})
    if len(extra) > MAX_WIRE_BYTES:
        extra = to_json({**wire, "message": _shortened(wire["message"], MAX_MESSAGE_CHARS // 4), "details": {}})
    text = _shortened(wire["message"], MAX_MESSAGE_CHARS // 4)
    return CallStatus(status_of(error).grpc, text, extra)


def from_flight(error: Exception, address: str) -> BallistaError:
    """The error that the node at `address` raised, or the `TransportError` that says how the link to it failed."""
    extra = getattr(error, "extra_info", None)
    if extra:
        try:
            said = from_wire(from_json(extra, MAX_ERROR_VALUES, MAX_ERROR_BYTES))
        except (TransportError, InvalidData):
            return TransportError(
                f"node {address} answered with an error that is not of ballista_py", peer=address
            )
        # How the link is only this side can tell: a node that answers was reached.
        said.details.pop("sent", None)
        if said.details.get("peer") == address:
            del said.details["peer"]
        return said
    if isinstance(error, flight.FlightTimedOutError):
        return TransportError(f"node {address} did not answer in time", peer=address)
    if isinstance(error, flight.FlightCancelledError):
        return TransportError(f"the call to node {address} was cancelled", peer=address)
    if isinstance(error, flight.FlightUnavailableError):
        if _NO_SUCH_HOST.search(str(error)):
            reason = "there is no such host, or nobody who knows it answers"
            return TransportError(f"node {address} cannot be reached: {reason}", peer=address, sent=False)
        if _NEVER_CONNECTED in str(error):
            reason = _why_unreachable(str(error))
            return TransportError(f"node {address} cannot be reached{reason}", peer=address, sent=False)
        return TransportError(f"the connection to node {address} broke", peer=address)
    return TransportError(
        f"the conversation with node {address} failed ({type(error).__name__}); is it a data port of ballista_py, "
        "of a like release?",
        peer=address,
    )


def is_link_failure(error: BaseException, address: str) -> bool:
    """Whether the link to the node at `address` failed, as opposed to an answer of that node being an error."""
    return type(error) is TransportError and error.details.get("peer") == address


def was_never_sent(error: BallistaError, address: str) -> bool:
    """Whether the node at `address` surely heard nothing of the call. If in doubt, it may have."""
    return is_link_failure(error, address) and error.details.get("sent") is False


def _why_unreachable(said: str) -> str:
    """What this side's own gRPC found wrong with the other, for people; nothing where it is the network.

    >>> _why_unreachable("…: Peer name executor-9 is not in peer certificate")
    ": its certificate does not name 'executor-9'"
    """
    refused = _NOT_ACCEPTED.search(said)
    if refused is not None:
        return f": its certificate is not accepted ({refused[1].strip()})"
    unnamed = _NOT_NAMED.search(said)
    if unnamed is not None:
        return f": its certificate does not name '{unnamed[1]}'"
    if _OTHER_HTTP in said:
        return (
            ": what answers there does not speak HTTP/2, as a port for browsers; take the one for clients (50051)"
        )
    if _HUNG_UP.search(said):
        return ": it hung up at once; see its log, and whether it speaks TLS and asks for a certificate"
    return ""


def _shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"
