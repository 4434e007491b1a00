"""Questions to other nodes, and streams from them, over one kept connection per address.

Errors of the node arrive as the errors of our tree that it raised; a link that fails is a `TransportError` whose
`details["peer"]` is the address. A stream that ends without the trailer of a complete answer is such a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ballista_py.errors import ConfigError, TimeLimit, TransportError, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.traces import TRACE_HEADER, told_parent
from ballista_py.transport.arrow.door import Chunk, FlightRows
from ballista_py.transport.endpoints import open_flight
from ballista_py.transport.flight.answer_shapes import known_reply, known_trailer
from ballista_py.transport.flight.commands import REWRITE, TIME_LIMIT, as_part, time_limit
from ballista_py.transport.flight.errors import FLIGHT_FAILURES, from_flight, is_link_failure
from ballista_py.transport.flight.wire import MAX_SAID_BYTES, from_json, to_json
from ballista_py.transport.flight.writes import WriteStream
from ballista_py.transport.security.callers import CLUSTER_HEADER, NODE_HEADER, TOKEN_HEADER
from ballista_py.transport.security.credentials import Removed, Tls
from ballista_py.transport.security.tokens import UNSENDABLE, is_sendable
from ballista_py.work import stopped_by

CALL_TIMEOUT_MS = 30_000
LOOK_MS = 1_000
SILENCE_MS = 15_000
LATE_MS = 5_000  # after a time limit that a node has not kept


class FlightPool:
    """Connections to data ports, made at first use and shared by all threads; `close` gives them up.

    `tls` is what both sides prove themselves with. Every call says that it comes from the node `node_id`, or from
    the client with `token`, and of the cluster `cluster_id` once that is set: nodes of another one refuse it. Files
    that are replaced count within `LOOK_MS`. A node that was stopped or cut off counts as lost after `silence_ms`;
    one that only takes long does not. One in `removed` is not asked.

    >>> from ballista_py.runtime import SystemRuntime
    >>> with FlightPool(SystemRuntime()) as pool:
    ...     pool.call("127.0.0.1:1", "ping", {})
    Traceback (most recent call last):
    ballista_py.errors.TransportError: node 127.0.0.1:1 cannot be reached
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
        tls: Tls | None = None,
        node_id: str | None = None,
        token: Secret | None = None,
        silence_ms: float = SILENCE_MS,
        cluster_id: str = "",
        removed: Removed | None = None,
    ) -> None:
        if token is not None and not is_sendable(token.reveal()):
            raise ConfigError(f"the token {UNSENDABLE}")
        self._removed = removed or Removed()
        self.cluster_id = cluster_id
        self._call_timeout_ms = call_timeout_ms
        self._tls = tls
        self._node_id = node_id
        self._token = token
        self._silence_ms = silence_ms
        self._lock = runtime.lock()
        self._clients: dict[tuple[str, str | None], flight.FlightClient] = {}
        self._runtime = runtime
        self._closed = False
        self._in_use = None if tls is None else tls.fingerprint()
        self._looked_ms = runtime.monotonic_ms()

    def call(
        self, address: str, action: str, body: Mapping[str, Any], timeout_ms: float | None = None
    ) -> dict[str, Any]:
        """The node's answer to a question, within `timeout_ms`.

        Raises what the node raised, or `TransportError` when the link failed or the time was over; then the node
        may or may not have acted on the question.
        """
        answer = self.call_bytes(address, action, to_json(body), timeout_ms)
        return known_reply(action, from_json(answer, most_bytes=MAX_SAID_BYTES), address)

    def call_bytes(self, address: str, action: str, body: bytes, timeout_ms: float | None = None) -> bytes:
        """As `call`, of a question whose body and answer are not JSON: whoever asks looks at them."""
        timeout_s = (self._call_timeout_ms if timeout_ms is None else timeout_ms) / 1e3
        try:
            options = self._options(timeout_s)
            answers = list(self._client(address).do_action(flight.Action(action, body), options))
        except FLIGHT_FAILURES as error:
            raise self._failed(error, address) from None
        if len(answers) != 1:
            raise TransportError(
                f"node {address} gave {len(answers)} answers to '{action}', not one", peer=address
            )
        return bytes(answers[0].body.to_pybytes())

    def open_exchange(self, address: str, command: bytes) -> tuple[Any, Any]:
        """The two halves of an exchange that begins with `command`. Raises `TransportError` when the link failed."""
        client = self._client(address)
        try:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), self._options(None))
        except FLIGHT_FAILURES as error:
            raise self._failed(error, address) from None
        return writer, reader

    def failure(self, error: Exception, address: str) -> Exception:
        """What a failure of an exchange with a node means, as an error of our tree."""
        return self._failed(error, address)

    def open_stream(
        self,
        address: str,
        command: Mapping[str, Any],
        timeout_ms: float | None = None,
        *,
        peer_id: str | None = None,
    ) -> FlightStream:
        """Send `command` and return at once; whatever the node says to it is said by the stream.

        `timeout_ms` limits the whole stream (default: no limit but the command's, and a moment for the node to keep
        it). With TLS the node must prove that it is `peer_id`,
        or if that is None the host in `address`. Raises `TransportError` when the link failed.
        """
        command = as_part(command)
        options = self._options(_patience_s(command) if timeout_ms is None else timeout_ms / 1e3)
        client = self._client(address, peer_id)
        try:
            descriptor = flight.FlightDescriptor.for_command(to_json(command))
            writer, reader = client.do_exchange(descriptor, options)
        except FLIGHT_FAILURES as error:
            raise self._failed(error, address) from None
        return FlightStream(self, client, writer, reader, address, command, peer_id)

    def ask(self, address: str, command: Mapping[str, Any], *, peer_id: str | None = None) -> dict[str, Any]:
        """What the node made of `command`, however long that takes; a write without rows.

        Raises what the node raised, or `TransportError` when the link failed or the node fell silent.
        """
        stream = self.open_write(address, command, pa.schema([]), peer_id=peer_id)
        try:
            if command.get("kind") != REWRITE:  # what is decided is done, whoever waits
                return stream.finish()
            with stopped_by(stream.abort):
                return stream.finish()
        finally:
            stream.abort()

    def open_write(
        self, address: str, command: Mapping[str, Any], schema: pa.Schema, *, peer_id: str | None = None
    ) -> WriteStream:
        """Start to send rows of `schema` under `command`. Raises `TransportError` when the link failed."""
        client = self._client(address, peer_id)
        command = as_part(command)
        try:
            descriptor = flight.FlightDescriptor.for_command(to_json(command))
            writer, reader = client.do_exchange(descriptor, self._options(_patience_s(command)))
        except FLIGHT_FAILURES as error:
            raise self._failed(error, address, command) from None
        failed = partial(self._failed, address=address, command=command)
        stream = WriteStream(client, writer, reader, address, failed, command.get("kind"))
        stream.begin(schema)
        return stream

    def drop(self, address: str) -> None:
        """Forget the connection to `address`; the next call makes a new one. Open streams go on."""
        with self._lock:
            for key in [key for key in self._clients if key[0] == address]:
                del self._clients[key]

    @property
    def closed(self) -> bool:
        """Whether it was closed: then every call raises `TransportError`."""
        return self._closed

    def close(self) -> None:
        """Forget all connections and make no other. Open streams go on."""
        with self._lock:
            self._closed = True
            self._clients.clear()

    def __enter__(self) -> FlightPool:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def now_ms(self) -> float:
        """The time by which looks at the list of removed nodes are spaced."""
        return self._runtime.monotonic_ms()

    def check_peer(self, address: str, peer_id: str | None, **details: bool) -> None:
        """Raises `TransportError` for a node that was removed, which is neither asked nor heard."""
        if peer_id is not None:
            try:
                self._removed.check(peer_id)
            except Unauthenticated as error:
                raise TransportError(error.message, peer=address, **details) from None

    def _client(self, address: str, peer_id: str | None = None) -> flight.FlightClient:
        key = address, peer_id
        self.check_peer(address, peer_id, sent=False)
        with self._lock:
            if self._closed:
                raise TransportError("this client is closed: connect again")
            if self._tls is not None:
                self._forget_if_replaced(self._tls)
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = open_flight(address, self._tls, peer_id, self._silence_ms)
            return client

    def _forget_if_replaced(self, tls: Tls) -> None:
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        now = tls.fingerprint()
        if now != self._in_use:
            self._in_use = now
            self._clients.clear()

    def _options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        headers = []
        if self._node_id is not None:
            headers.append((NODE_HEADER.encode(), self._node_id.encode()))
        if self.cluster_id:
            headers.append((CLUSTER_HEADER.encode(), self.cluster_id.encode()))
        if self._token is not None:
            headers.append((TOKEN_HEADER.encode(), b"Bearer " + self._token.reveal().encode()))
        parent = told_parent()
        if parent:
            headers.append((TRACE_HEADER.encode(), parent.encode()))
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)

    def _failed(self, error: Exception, address: str, command: Mapping[str, Any] | None = None) -> Exception:
        if command is not None and TIME_LIMIT in command and _is_silent(error):
            return TimeLimit("the statement's time is over, and its answer has not come to its end")
        failure = from_flight(error, address)
        if is_link_failure(failure, address) and not isinstance(error, flight.FlightCancelledError):
            self.drop(address)
        return failure


class FlightStream:
    """The answer to one command: its schema, its batches in order, then its trailer.

    It is read by one thread; `cancel` may come from any. A stream that is given up before its end must be
    cancelled; one that is dropped cancels itself.
    """

    def __init__(
        self,
        pool: FlightPool,
        client: Any,
        writer: Any,
        reader: Any,
        address: str,
        command: Mapping[str, Any],
        peer_id: str | None = None,
    ) -> None:
        self.address = address
        self._peer_id = peer_id
        self._asked_ms = pool.now_ms()
        self._command = command
        self._pool = pool
        self._client = client  # kept while its stream is read
        self._writer = writer
        self._reader = FlightRows(reader, answers=True)
        self._schema: pa.Schema | None = None
        self._trailer: dict[str, Any] | None = None
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches. Waits until the node accepted the command; raises what it raised instead."""
        if self._schema is None:
            try:
                self._schema = self._reader.schema
            except FLIGHT_FAILURES as error:
                self._end()
                raise self._failed(error) from None
            except BaseException:
                self._end()
                raise
        return self._schema

    @property
    def trailer(self) -> dict[str, Any]:
        """What the node said at the end. Raises `TransportError` before the batches were read to the end."""
        if self._trailer is None:
            raise TransportError(f"the stream from node {self.address} has not been read to its end")
        return self._trailer

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, lazily, once. Raises what the node raised, or `TransportError` when the link failed.

        When the iteration ends without an error the answer was complete.
        """
        _ = self.schema
        try:
            while (chunk := self._next()) is not None:
                batch = chunk.rows
                if batch is None:
                    self._hear(from_json(chunk.said, most_bytes=MAX_SAID_BYTES))
                    continue
                self._rows += batch.num_rows
                del chunk
                if batch.num_rows:
                    yield batch
                del batch  # its memory takes the next one, unless the reader still has it
            if self._trailer is None:
                raise TransportError(
                    f"the stream from node {self.address} broke off after {self._rows} rows", peer=self.address
                )
        finally:
            self._end()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def cancel(self) -> None:
        """Give up the rest: a waiting reader gets a `TransportError`, the node stops its work. Harmless later."""
        self._reader.cancel()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        # A stream that is dropped without this makes gRPC wait for its end, and Arrow complain on stderr.
        self._reader.cancel()
        with suppress(*FLIGHT_FAILURES):
            self._writer.close()

    def _next(self) -> Chunk | None:
        try:
            chunk = self._reader.read()
        except StopIteration:
            return None
        except FLIGHT_FAILURES as error:
            raise self._failed(error) from None
        now_ms = self._pool.now_ms()
        if now_ms - self._asked_ms >= LOOK_MS:
            self._asked_ms = now_ms
            self._pool.check_peer(self.address, self._peer_id)
        return chunk

    def _hear(self, message: Mapping[str, Any]) -> None:
        if not message:
            return  # a pulse: the work goes on
        rows, trailer = known_trailer(self._command.get("kind"), message, self.address)
        if rows != self._rows:
            raise TransportError(
                f"the stream from node {self.address} lost rows: {rows} were sent, {self._rows} came",
                peer=self.address,
            )
        self._trailer = trailer

    def _failed(self, error: Exception) -> Exception:
        return self._pool._failed(error, self.address, self._command)


def _patience_s(command: Mapping[str, Any]) -> float | None:
    """How long a node may take for a command with a time limit, which is the node's to keep."""
    limit_ms = time_limit(command)
    return None if limit_ms is None else (limit_ms + LATE_MS) / 1e3


def _is_silent(error: Exception) -> bool:
    """Whether the time of a call is over, and not because the node said so."""
    return isinstance(error, flight.FlightTimedOutError) and not getattr(error, "extra_info", None)
