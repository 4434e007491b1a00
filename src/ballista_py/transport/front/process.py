"""The process of a front: told by its node over one socket where to listen and what gRPC allows; it ends with its node.

It has the listening sockets, the names of the certificate's files and of a socket of the node's, and nothing else.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import sys
from typing import Any

from ballista_py.logs import configure_logging
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.transport.front.channel import Channel
from ballista_py.transport.front.client_reader import ClientBounds
from ballista_py.transport.front.http2 import (
    FIRST_MAX_FRAME_SIZE,
    HEAD_BYTES,
    MAX_FRAME_SIZE,
    PREFACE,
    SETTINGS,
    Head,
    settings_frame,
    settings_of,
)
from ballista_py.transport.front.relay import Relay, RelayOptions, known_of
from ballista_py.transport.front.server_certificate import ServerCertificate
from ballista_py.transport.security.connection_guard import ConnectionLimits
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.sockets import let_open

ASK_S = 10.0
ALIVE_MS = 1_000.0
FILES_BESIDE = 64  # open files that are no connections


class GrpcSilent(Exception):
    """gRPC did not say what clients may do."""


def main(arguments: list[str]) -> None:
    """Serve the node at the other end of the file descriptor that is named, for as long as it lives."""
    runtime = SystemRuntime()
    connected = socket.socket(fileno=int(arguments[0]))
    told = _first_message(connected)
    configure_logging(told["name"], told["level"])
    channel = Channel(connected)
    try:
        try:
            _serve(channel, told, runtime)
        except GrpcSilent as silent:
            channel.receive()
            sys.exit(str(silent))  # the node lives, and starts another one
    except EOFError:
        shutil.rmtree(os.path.dirname(told["backend"]), ignore_errors=True)  # its node may have been killed
    except KeyboardInterrupt:  # meant for the node
        sys.exit(0)


def _serve(channel: Channel, told: dict[str, Any], runtime: Runtime) -> None:
    settings = _settings_of_grpc(told["backend"])
    limits = ConnectionLimits(**told["limits"])
    let_open(2 * limits.connections + FILES_BESIDE)
    bounds = ClientBounds(
        frame_bytes=settings.get(MAX_FRAME_SIZE, FIRST_MAX_FRAME_SIZE), header_bytes=told["header_bytes"]
    )
    listeners = [socket.socket(fileno=fd) for fd in told["listeners"]]
    for listener in listeners:
        listener.setblocking(False)
    options = RelayOptions(
        backend=told["backend"], port=told["port"], settings=settings, bounds=bounds, limits=limits
    )
    certificate = ServerCertificate(Tls(certificate_file=told["certificate"], key_file=told["key"]), runtime)
    relay = Relay(listeners, certificate, options, runtime)

    def readable() -> None:
        for message in channel.receive():
            if "busy" in message:
                relay.known(known_of(message))
            for host, port in message.get("heard", ()):
                relay.heard((host, port))
            for host, port in message.get("cut", ()):
                relay.cut((host, port))
            if message.get("end"):
                relay.finish()

    relay.watch(channel.socket.fileno(), readable)
    gc.freeze()
    said_ms = 0.0
    while not relay.is_finished:
        relay.tick()
        now_ms = runtime.monotonic_ms()
        if now_ms - said_ms > ALIVE_MS and not channel.is_behind:
            said_ms = now_ms
            channel.send({"links": len(relay)})


def _first_message(connected: socket.socket) -> dict[str, Any]:
    """What the node says at the start."""
    import json

    said = b""
    while not said.endswith(b"\n"):
        piece = connected.recv(1)  # what follows is for the channel
        if not piece:
            sys.exit(0)
        said += piece
    found: dict[str, Any] = json.loads(said)
    return found


def _settings_of_grpc(path: str) -> dict[int, int]:
    """What gRPC tells each client first that it may do."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ASK_S)
        try:
            asking.connect(path)
            asking.sendall(PREFACE + settings_frame({}))
            said = b""
            while len(said) < HEAD_BYTES or len(said) < HEAD_BYTES + Head.of(said).length:
                piece = asking.recv(4_096)
                if not piece:
                    raise GrpcSilent("gRPC hung up")
                said += piece
        except OSError as error:
            raise GrpcSilent(f"gRPC did not answer: {error.strerror or error}") from None
    head = Head.of(said)
    assert head.kind == SETTINGS
    return settings_of(said[HEAD_BYTES : HEAD_BYTES + head.length])


if __name__ == "__main__":
    main(sys.argv[1:])
