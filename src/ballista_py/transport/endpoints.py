"""Where every conversation begins: addresses, listening ports, channels.

All servers and channels of the transport are opened here, so this is the one place where credentials go. Without
a `Tls` a conversation is plain TCP.
"""

from __future__ import annotations

from typing import Any

import pyarrow.flight as flight
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError
from ballista_py.one_line import one_line
from ballista_py.transport.security.credentials import Identity, Tls

MAX_SHOWN_CHARS = 200
CONNECT_TIMEOUT_MS = 5_000
RECONNECT_FIRST_MS = 100
RECONNECT_CAP_MS = 2_000
TLS_SCHEMES = ("ballista+tls://", "grpc+tls://")
SCHEMES = ("ballista://", "grpc://", "grpc+tcp://", *TLS_SCHEMES)


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
        is_host = bool(host) and host.isascii() and host.isprintable() and not set(host) & set("/ ")
        if not (colon and is_host and port.isascii() and port.isdigit() and int(port[:6]) <= 65535):
            shown = one_line(text.encode(errors="backslashreplace").decode(), MAX_SHOWN_CHARS)
            raise ConfigError(f"'{shown}' is not an address; write host:port, for example 127.0.0.1:50051")
        return cls(host, int(port))


def open_flight(
    address: str, tls: Tls | None = None, peer_id: str | None = None, silence_ms: float | None = None
) -> flight.FlightClient:
    """A channel to a node's data port. It connects at the first call and reconnects within seconds.

    Calls under way fail when the node does not even answer a ping for `silence_ms` (default: they wait).

    With `tls` the node must prove that it is the executor `peer_id`, or if that is None the host in `address`. Raises
    `ConfigError` for a file that cannot be used.
    """
    node = Address.parse(address)
    ahead = [] if peer_id is None else _LITTLE_AHEAD
    options: dict[str, Any] = {
        "generic_options": [*_channel_options(receive=None), *_pings(silence_ms), *ahead],
    }
    if tls is None:
        return flight.FlightClient(flight.Location.for_grpc_tcp(node.host, node.port), **options)
    pems = tls.read()
    options |= {"tls_root_certs": pems.ca, "cert_chain": pems.certificate, "private_key": pems.key}
    if peer_id is not None:
        options["override_hostname"] = Identity(peer_id, "executor").name
    return flight.FlightClient(flight.Location.for_grpc_tls(node.host, node.port), **options)


def listen_grpc(server: Any, address: Address, tls: Tls | None = None, *, ask_client: bool = True) -> Address:
    """Bind a server of gRPC that has not started yet; returns the address with the real port.

    With `tls` and `ask_client` only peers with a certificate of its authority get in; files that are replaced count
    for the next connection. Raises `ConfigError` naming the address when it cannot be had, or the file that cannot
    be used.
    """
    try:
        if tls is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), _server_credentials(tls, ask_client))
    except BallistaError:
        raise
    except Exception:
        raise cannot_listen(address) from None
    if not port:
        raise cannot_listen(address)
    return Address(address.host, port)


def listen_behind(server: Any, target: str) -> None:
    """Bind a server of gRPC at a Unix socket, for a front that has ended TLS. Raises `ConfigError`."""
    try:
        listens = server.add_insecure_port(target)
    except Exception:
        listens = 0
    if not listens:
        raise ConfigError(
            "gRPC cannot listen at a socket in the folder for temporary files; set TMPDIR to another one"
        )


def open_control(address: str, tls: Tls | None = None, peer_id: str | None = None) -> Any:
    """A grpc.aio channel to a scheduler's control port; call it on the loop that will use it.

    With `tls` the peer must prove that it is the scheduler `peer_id`, or if that is None the host in `address`.
    """
    import grpc.aio

    target = str(Address.parse(address))
    options: list[tuple[str, Any]] = [*_channel_options(receive=CONTROL_MESSAGE_BYTES)]
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    pems = tls.read()
    if peer_id is not None:
        options.append(("grpc.ssl_target_name_override", Identity(peer_id, "scheduler").name))
    credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)


CONTROL_MESSAGE_BYTES = 64 << 20  # of what a scheduler answers
CONTROL_REQUEST_BYTES = 8 << 20
CONTROL_STREAMS_PER_CONNECTION = 32
CONTROL_METADATA_BYTES = 8 << 10
FLIGHT_MESSAGE_BYTES = 128 << 20
FLIGHT_STREAMS_PER_CONNECTION = 1_024  # between nodes, whose certificates are asked for
STRANGER_STREAMS_PER_CONNECTION = 64
STRANGER_AHEAD_BYTES = 64 << 10
FLIGHT_METADATA_BYTES = 16 << 10
_ONLY_AS_IT_IS = 1  # the first bit stands for no compression


def _server_options(message_bytes: int, streams: int, metadata_bytes: int) -> list[tuple[str, int]]:
    """What every server of gRPC is told. Its bounds are kept before anything is unpacked or given to a handler."""
    return [
        ("grpc.so_reuseport", 0),  # two nodes on one port must not share its connections silently
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_concurrent_streams", streams),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.http2.settings_timeout", HANDSHAKE_MS),
        ("grpc.server.max_pending_requests", PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS),
        ("grpc.max_metadata_size", metadata_bytes),
        ("grpc.absolute_max_metadata_size", metadata_bytes),
        ("grpc.compression_enabled_algorithms_bitset", _ONLY_AS_IT_IS),
        ("grpc.per_message_decompression", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS),
    ]


HANDSHAKE_MS = 10_000
PENDING_CALLS = 2_000  # not yet taken over from gRPC; it drops calls by lot, whosesoever, when there are more
PING_INTERVAL_MS = 200  # who pings a silent server more often than that a few times is cut off
CONTROL_SERVER_OPTIONS = [
    *_server_options(CONTROL_REQUEST_BYTES, CONTROL_STREAMS_PER_CONNECTION, CONTROL_METADATA_BYTES),
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES),
]


def flight_server_options(strangers: bool, message_bytes: int = FLIGHT_MESSAGE_BYTES) -> list[tuple[str, int]]:
    """Of a port that speaks Flight, to nodes or to `strangers`: who shows no certificate sends little ahead.

    gRPC lets in the streams of one connection before its client has confirmed that it knows the bounds, and keeps
    that of headers only afterwards. And it would let somebody send 16 MiB ahead on each of them.
    """
    streams = STRANGER_STREAMS_PER_CONNECTION if strangers else FLIGHT_STREAMS_PER_CONNECTION
    ahead = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", STRANGER_AHEAD_BYTES)]
    return [
        *_server_options(message_bytes, streams, FLIGHT_METADATA_BYTES),
        ("grpc.max_send_message_length", -1),
        *(ahead if strangers else []),
    ]


def _channel_options(receive: int | None) -> list[tuple[str, int]]:
    options = [
        ("grpc.use_local_subchannel_pool", 1),  # another channel's backoff is none of ours
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # this is how gRPC names its connect timeout
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_CAP_MS),
        ("grpc.enable_http_proxy", 0),
        # None of ours compresses what it answers: a message that says so is refused before it is unpacked.
        ("grpc.compression_enabled_algorithms_bitset", _ONLY_AS_IT_IS),
    ]
    if receive is not None:
        options += [("grpc.max_receive_message_length", receive), ("grpc.max_send_message_length", receive)]
    return options


# Of nodes: gRPC would let 4 to 16 MiB of each stream come in that nobody has asked for, and a node has hundreds.
_LITTLE_AHEAD = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 256 << 10)]


def _pings(silence_ms: float | None) -> list[tuple[str, int]]:
    """Ping a node that a call waits for and that says nothing, for as long as it says nothing: by default gRPC puts
    every ping after the second off by a minute. Our servers allow it (`PING_INTERVAL_MS`).
    """
    if silence_ms is None:
        return []
    return [
        ("grpc.keepalive_time_ms", int(silence_ms * 2 / 3)),
        ("grpc.keepalive_timeout_ms", int(silence_ms / 3)),
        ("grpc.http2.ping_timeout_ms", int(silence_ms / 3)),
        ("grpc.http2.max_pings_without_data", 0),  # no bound
    ]


def _server_credentials(tls: Tls, ask_client: bool) -> Any:
    import grpc

    def configuration() -> Any:
        tls.check()
        pems = tls.read()
        certificate, key = pems.pair()
        authority = pems.ca if ask_client else None
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)

    used = [tls.fingerprint()]

    def changed() -> Any:
        """What gRPC asks before every handshake. A pair that is being replaced is looked at again next time."""
        now = tls.fingerprint()
        if now == used[0]:
            return None
        try:
            found = configuration()
        except ConfigError:
            return None
        used[0] = now
        return found

    return grpc.dynamic_ssl_server_credentials(configuration(), changed, require_client_authentication=ask_client)


def cannot_listen(address: Address) -> ConfigError:
    return ConfigError(
        f"cannot listen on {address}: the port is in use or the address is not of this machine; "
        "take another address, or port 0 for any free one",
        address=str(address),
    )
