"""Where every conversation begins: addresses, listening ports, channels.

All servers and channels of the transport are opened here, so this is the one place where credentials go. This
release speaks plain TCP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow.flight as flight
from attrs import frozen

from ballista_py.errors import ConfigError

CONNECT_TIMEOUT_MS = 5_000
RECONNECT_FIRST_MS = 100
RECONNECT_CAP_MS = 2_000
SCHEMES = ("ballista://", "grpc://")

FlightServerT = TypeVar("FlightServerT", bound=flight.FlightServerBase)


@frozen
class Address:
    """Host and port of one node. `str(address)` is `host:port`, with brackets around an IPv6 host.

    >>> Address.parse("ballista://[::1]:50051")
    Address(host='::1', port=50051)
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in `host:port`, with or without one of `SCHEMES` before it. Raises `ConfigError`."""
        bare = text
        for scheme in SCHEMES:
            bare = bare.removeprefix(scheme)
        host, colon, port = bare.rstrip("/").rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535) or "/" in host:
            raise ConfigError(f"'{text}' is not an address; write host:port, for example 127.0.0.1:50051")
        return cls(host, int(port))


def listen_flight(start: Callable[[flight.Location], FlightServerT], address: Address) -> FlightServerT:
    """A Flight server that accepts calls at `address` from now on; port 0 takes a free one (see `server.port`).

    Raises `ConfigError` naming the address when it cannot be had.
    """
    try:
        return start(flight.Location.for_grpc_tcp(address.host, address.port))
    except Exception:
        raise _cannot_listen(address) from None


def open_flight(address: str) -> flight.FlightClient:
    """A channel to a node's data port. It connects at the first call and reconnects within seconds."""
    node = Address.parse(address)
    return flight.FlightClient(
        flight.Location.for_grpc_tcp(node.host, node.port), generic_options=_channel_options(receive=None)
    )


def listen_control(server: Any, address: Address) -> Address:
    """Bind a grpc.aio server that has not started yet; returns the address with the real port.

    Raises `ConfigError` naming the address when it cannot be had.
    """
    try:
        port = server.add_insecure_port(str(address))
    except Exception:
        raise _cannot_listen(address) from None
    if not port:
        raise _cannot_listen(address)
    return Address(address.host, port)


def open_control(address: str) -> Any:
    """A grpc.aio channel to a scheduler's control port; call it on the loop that will use it."""
    import grpc.aio

    return grpc.aio.insecure_channel(
        str(Address.parse(address)), options=_channel_options(receive=CONTROL_MESSAGE_BYTES)
    )


CONTROL_MESSAGE_BYTES = 64 << 20
CONTROL_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # two nodes on one port must not share its connections silently
    ("grpc.max_receive_message_length", CONTROL_MESSAGE_BYTES),
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES),
]


def _channel_options(receive: int | None) -> list[tuple[str, int]]:
    options = [
        ("grpc.use_local_subchannel_pool", 1),  # another channel's backoff is none of ours
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # this is how gRPC names its connect timeout
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_CAP_MS),
        ("grpc.enable_http_proxy", 0),
    ]
    if receive is not None:
        options += [("grpc.max_receive_message_length", receive), ("grpc.max_send_message_length", receive)]
    return options


def _cannot_listen(address: Address) -> ConfigError:
    return ConfigError(
        f"cannot listen on {address}: the port is in use or the address is not of this machine; "
        "take another address, or port 0 for any free one",
        address=str(address),
    )
