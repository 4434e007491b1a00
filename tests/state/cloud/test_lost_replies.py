"""Every client behind a proxy that spoils replies: no increment lost, none counted twice, no falsehood told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import field, frozen

from ballista_py.errors import OutcomeUnknown, RetriesExhausted, StoreUnavailable, VersionConflict
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.testing import HttpProxy, ReplyFaults

WRITERS = 4
FAST = {"request_timeout_ms": 5_000.0}
LOST = ReplyFaults(dropped=0.2)
MIXED = ReplyFaults(dropped=0.05, truncated=0.05, delayed=0.05, duplicated=0.05, resent=0.05, delay_ms=20.0)
WRITES = frozenset({"PUT", "POST"})


@frozen
class Counter:
    """A counter, and how much of it each writer contributed."""

    value: int = 0
    of_writer: dict[str, int] = field(factory=dict)


def _one_more(counter: Counter, writer: str) -> Counter:
    share = counter.of_writer.get(writer, 0) + 1
    return Counter(value=counter.value + 1, of_writer={**counter.of_writer, writer: share})


def _options(endpoint):
    return {} if endpoint.kind == "obstore" else FAST


def _count(endpoint, prefix, spawn, faults, increments) -> tuple[Counter, dict]:
    """What the counter ends at after `increments` by WRITERS clients behind a proxy."""
    straight = ObjectState(endpoint.open(prefix), "counter.json", Counter)
    straight.create(Counter())
    with HttpProxy(endpoint.host, endpoint.port, faults, seed=20, spawn=spawn) as proxy:

        def write(number: int) -> None:
            writer = f"w{number}"
            store = endpoint.open(prefix, port=proxy.port, **_options(endpoint))
            state = ObjectState(store, "counter.json", Counter)
            done = 0
            while done < increments // WRITERS:
                try:
                    state.update(lambda counter: _one_more(counter, writer))
                except (RetriesExhausted, StoreUnavailable):  # surely not applied
                    continue
                except OutcomeUnknown:  # 32 commits of others hid ours: read before acting on it, as we are told
                    proxy.counts["undecided"] = proxy.counts.get("undecided", 0) + 1
                    done = straight.read().document.of_writer.get(writer, 0)
                    continue
                done += 1

        with ThreadPoolExecutor(WRITERS) as executor:
            list(executor.map(write, range(WRITERS)))
    print(endpoint.kind, proxy.counts)
    return straight.read().document, proxy.counts


@pytest.mark.share(2)
@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
@pytest.mark.parametrize("faults", [LOST, MIXED], ids=["one-in-five-dropped", "every-fault"])
def test_with_replies_spoilt_every_increment_counts_once(endpoint, prefix, spawn, faults):
    increments = 60
    counter, counts = _count(endpoint, prefix, spawn, faults, increments)
    assert counter.value == increments
    assert sum(counter.of_writer.values()) == increments
    assert counts["dropped"] > 0


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
def test_with_one_reply_in_five_lost_a_thousand_increments_end_at_a_thousand(endpoint, prefix, spawn):
    counter, counts = _count(endpoint, prefix, spawn, LOST, 1_000)
    assert counter.value == 1_000
    assert counts.get("undecided", 0) <= 10
    assert counts["dropped"] > 300


def _warm_up(store) -> None:
    """Have a connection in the pool; the first request of a busy machine may take longer than a client waits."""
    for number in range(20):
        with contextlib.suppress(StoreUnavailable, OutcomeUnknown):
            store.create(f"warm-{number}", b"")
            return
    raise AssertionError("no request came through to a healthy server")


NEVER, LATE = ReplyFaults(dropped=1.0), ReplyFaults(delayed=1.0, delay_ms=8_000.0)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("endpoint", "faults"),
    [  # how long an obstore store waits is its owner's choice, so no reply comes late to it
        *(pytest.param(kind, NEVER, id=f"{kind}-dropped") for kind in ("s3", "gcs", "azure", "obstore")),
        *(pytest.param(kind, LATE, id=f"{kind}-late") for kind in ("s3", "gcs", "azure")),
    ],
    indirect=["endpoint"],
)
def test_a_write_whose_reply_is_lost_is_neither_success_nor_conflict_and_is_sent_once(
    endpoint, prefix, spawn, faults
):
    straight = endpoint.open(prefix)
    old = straight.create("old", b"1")
    with HttpProxy(endpoint.host, endpoint.port, ReplyFaults(), seed=1, spawn=spawn, only=WRITES) as proxy:
        options = {**_options(endpoint), "request_timeout_ms": 2_000.0} if endpoint.kind != "obstore" else {}
        store = endpoint.open(prefix, port=proxy.port, **options)
        _warm_up(store)
        proxy.faults = faults
        sent = sum(proxy.counts.values())
        with pytest.raises(OutcomeUnknown, match="'new' may be written"):
            store.create("new", b"1")
        with pytest.raises(OutcomeUnknown, match="'old' may be written"):
            store.replace("old", b"2", old)
        writes = sum(proxy.counts.values()) - sent
        assert writes == 2
    assert straight.get("new").data == b"1"
    assert straight.get("old").data == b"2"


@pytest.mark.share(2)
@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
def test_reads_and_deletes_outlast_lost_replies(endpoint, prefix, spawn):
    straight = endpoint.open(prefix)
    data = bytes(range(256)) * 400
    version = straight.create("a", data)
    faults = ReplyFaults(dropped=0.1, truncated=0.1, duplicated=0.1)
    with HttpProxy(endpoint.host, endpoint.port, faults, seed=3, spawn=spawn) as proxy:
        store = endpoint.open(prefix, port=proxy.port, **_options(endpoint))
        for _ in range(12):
            found = store.get("a")
            assert (found.data, found.version) == (data, version)
            assert [entry.key for entry in store.list("")] == ["a"]
        store.delete("a")
        assert list(store.list("")) == []


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure"], indirect=True)
def test_a_server_that_cannot_be_reached_wrote_surely_nothing(endpoint, prefix, spawn):
    with HttpProxy(endpoint.host, endpoint.port, ReplyFaults(), seed=1, spawn=spawn) as proxy:
        pass
    store = endpoint.open(prefix, port=proxy.port, **FAST)
    _wait_until_closed(proxy.port)
    with pytest.raises(StoreUnavailable, match="'a' was not written: the store could not be reached"):
        store.create("a", b"1")
    with pytest.raises(StoreUnavailable, match="'a' was not written: the store could not be reached"):
        store.replace("a", b"1", "7")
    with pytest.raises(StoreUnavailable, match="'a' cannot be read"):
        store.get("a")


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
@pytest.mark.parametrize(
    ("status", "expected"),
    [(429, StoreUnavailable), (500, OutcomeUnknown), (502, OutcomeUnknown), (504, OutcomeUnknown)],
)
def test_a_throttled_write_surely_did_not_land_and_a_failing_gateway_cannot_tell(
    endpoint, spawn, status, expected
):
    with _answering(
        f"HTTP/1.1 {status} Sorry\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode(), spawn
    ) as port:
        store = endpoint.open("p", port=port, **_options(endpoint))
        with pytest.raises(expected, match="'a'"):
            store.create("a", b"1")
        with pytest.raises(expected, match="'a'"):
            store.replace("a", b"1", "7")


@pytest.mark.parametrize(
    ("endpoint", "reply", "of_create", "of_replace"),
    [
        ("s3", "409 ConditionalRequestConflict", StoreUnavailable, VersionConflict),
        ("s3", "404 NoSuchKey", StoreUnavailable, VersionConflict),
        ("s3", "503 SlowDown", StoreUnavailable, StoreUnavailable),
        ("s3", "500 InternalError", OutcomeUnknown, OutcomeUnknown),
        ("s3", "403 AccessDenied", StoreUnavailable, StoreUnavailable),
        ("azure", "503 ServerBusy", StoreUnavailable, StoreUnavailable),
        ("azure", "500 OperationTimedOut", OutcomeUnknown, OutcomeUnknown),
        ("azure", "403 AuthorizationFailure", StoreUnavailable, StoreUnavailable),
    ],
    indirect=["endpoint"],
)
def test_the_words_of_a_store_become_the_error_that_tells_what_to_do(
    endpoint, spawn, reply, of_create, of_replace
):
    status, code = reply.split()
    xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    head = f"HTTP/1.1 {status} x\r\nx-ms-error-code: {code}\r\nContent-Type: application/xml\r\n"
    raw = f"{head}Content-Length: {len(xml)}\r\nConnection: close\r\n\r\n{xml}".encode()
    with _answering(raw, spawn) as port:
        store = endpoint.open("p", port=port, **FAST)
        with pytest.raises(of_create, match="'a'"):
            store.create("a", b"1")
        with pytest.raises(of_replace, match="'a'"):
            store.replace("a", b"1", "7")


class _answering:
    """A server that says the same to everything."""

    def __init__(self, reply: bytes, spawn) -> None:
        self.reply = reply
        self.spawn = spawn
        self.ready = threading.Event()

    def __enter__(self) -> int:
        self.spawn(lambda: asyncio.run(self.serve()))
        self.ready.wait()
        return self.port

    def __exit__(self, *exc) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)

    async def serve(self) -> None:
        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.ended.wait()

    async def answer(self, reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.reply)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


def _wait_until_closed(port: int) -> None:
    import socket
    import time

    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            return
        time.sleep(0.01)
