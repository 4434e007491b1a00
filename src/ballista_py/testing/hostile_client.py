"""A client that means harm, for a deployment of your own: `python -m ballista_py.testing.hostile_client URL`.

It sends a fixed list of hostile messages to one scheduler, one after the other, and prints a line for each: `refused`
and with which words, `accepted`, or `connection lost` when the scheduler does not answer a harmless question
afterwards. Whatever is accepted should be harmless; `LEAK` says that bytes came back that nobody had sent.

`ATTACKS` is a list: append your own, each a name and a function of a `RawFlight`. Tables that it makes are called
`hostile_…`, and dropped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import grpc
from attrs import frozen

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret
from ballista_py.testing.hostile.messages import MESSAGES, Lie, column
from ballista_py.testing.hostile.raw_flight import Data, RawFlight, lost, new_name, stream_of
from ballista_py.transport.endpoints import TLS_SCHEMES
from ballista_py.transport.flight.wire import to_json
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.security.credentials import Tls

Verdict: TypeAlias = Literal["refused", "accepted", "connection lost", "LEAK"]
HONEST_BYTES = 3_000


@frozen
class Attack:
    """One hostile thing to do. `run` returns what came back, or raises `grpc.RpcError` when it is refused.

    An honest answer to it has at most `honest_bytes`.
    """

    name: str
    about: str
    run: Callable[[RawFlight], list[bytes]]
    honest_bytes: int = 1 << 20


@frozen
class Result:
    """What became of an attack; `said` are the scheduler's own words, on one line."""

    attack: Attack
    verdict: Verdict
    said: str

    def __str__(self) -> str:
        return f"{self.verdict:<15} {self.attack.name:<32} {self.said or self.attack.about}"


def hostile_client(
    url: str,
    *,
    token: str | Secret | None = None,
    tls: Tls | None = None,
    attacks: Iterable[Attack] | None = None,
) -> Iterator[Result]:
    """Attack the scheduler at `url` (`ballista://host:port`), as a client with this `token`; a result for each.

    >>> [str(found.verdict) for found in hostile_client("ballista://127.0.0.1:1", attacks=ATTACKS[:1])]
    ['connection lost']
    """
    if tls is None and url.startswith(TLS_SCHEMES):
        tls = Tls()
    for attack in ATTACKS if attacks is None else attacks:
        with RawFlight(url, token, tls) as flight:
            yield _tried(attack, flight)


def bind(messages: Iterable[Data], flight: RawFlight) -> list[bytes]:
    """Bind the messages to `select $1`, and fetch what it gives."""
    command = message("CommandPreparedStatementQuery", prepared_statement_handle=flight.prepare("select $1 as c"))
    answer = flight.put(pack(command), messages)
    if answer and answer[0]:
        from_server = message("DoPutPreparedStatementResult").FromString(answer[0])
        command = message(
            "CommandPreparedStatementQuery", prepared_statement_handle=from_server.prepared_statement_handle
        )
    return [data for ticket in flight.info(pack(command)) for data in flight.get(ticket)]


def ingest(messages: Iterable[Data], flight: RawFlight) -> list[bytes]:
    """Make a table of the messages, and fetch what it holds."""
    table = new_name()
    options = message("TableDefinitionOptions", if_not_exist=1, if_exists=2)
    command = message("CommandStatementIngest", table=table, table_definition_options=options)
    try:
        flight.put(pack(command), messages)
        return query(f'select * from "{table}"', flight)  # the name is ours
    finally:
        with suppress(grpc.RpcError):
            query(f'drop table if exists "{table}"', flight)


def own_ingest(messages: Iterable[Data], flight: RawFlight) -> list[bytes]:
    """The same by the protocol of our own clients."""
    table = new_name()
    command = {"kind": "ingest", "table": table, "mode": "create_append", "token": table, "atomic": False}
    try:
        return flight.exchange(
            to_json(command), [*messages, Data(said=to_json({"end": {"rows": 3, "checksum": 0}}))]
        )
    finally:
        with suppress(grpc.RpcError):
            query(f'drop table if exists "{table}"', flight)


def query(text: str, flight: RawFlight) -> list[bytes]:
    """The encoded messages of the answer to a statement."""
    tickets = flight.info(pack(message("CommandStatementQuery", query=text)))
    return [data for ticket in tickets for data in flight.get(ticket)]


def _tried(attack: Attack, flight: RawFlight) -> Result:
    try:
        came = attack.run(flight)
    except grpc.RpcError as error:
        said = " ".join((error.details() or str(error.code())).split())
        return Result(attack, "connection lost" if lost(error) and not flight.lives() else "refused", said)
    if not flight.lives():
        return Result(attack, "connection lost", "it answered, and then it was gone")
    size = sum(map(len, came))
    if size > attack.honest_bytes:
        return Result(attack, "LEAK", f"{size:,} bytes came back")
    return Result(attack, "accepted", "")


def forge(messages: Iterable[Data], flight: RawFlight) -> list[bytes]:
    """Ask for a handle of our own making, with the messages where the parameters stand."""
    head = to_json({"query": "select $1 as c", "dialect": None, "part": None, "run_id": None})
    handle = head + b"\n" + stream_of(messages)
    command = message("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    return [data for ticket in flight.info(pack(command)) for data in flight.get(ticket)]


def _commands() -> Iterator[Attack]:
    valid = column_of_one()
    select = pack(message("CommandStatementQuery", query="select 1"))
    for name, about, command in (
        ("empty", "no command at all", b""),
        ("garbage", "a command of random bytes", bytes(range(256)) * 8),
        ("half", "half a command", select[: len(select) // 2]),
        ("other", "a command of another protocol", b"\n\x1dtype.googleapis.com/other.Type\x12\x00"),
        ("endless", "a length that goes on for ever", b"\n" + b"\xff" * 64),
        ("huge", "a statement of 16 MiB", pack(message("CommandStatementQuery", query="x" * (16 << 20)))),
        ("nul", "a statement with a NUL", pack(message("CommandStatementQuery", query="select '\x00'"))),
    ):
        yield Attack(f"command-{name}/info", about, partial(_info, command))
        yield Attack(f"command-{name}/get", about, partial(_get, command))
        yield Attack(f"command-{name}/put", about, partial(_put, command, valid))
        yield Attack(f"command-{name}/exchange", about, partial(_exchange, command, valid))
    for kind in ("CancelFlightInfo", "CreatePreparedStatement", "SetSessionOptions", "members", "nothing", ""):
        yield Attack(f"action-{kind or 'none'}", "an action with a body of ones", partial(_act, kind))
    for method in ("DoPut", "DoExchange", "DoGet", "DoAction", "GetFlightInfo", "Handshake", "Nothing"):
        yield Attack(f"method-{method}/nothing", "a call that ends before it begins", partial(_raw, method, []))
        yield Attack(f"method-{method}/garbage", "a call of ones", partial(_raw, method, [b"\xff" * 99]))
    for method in ("DoPut", "DoExchange", "DoGet", "DoAction", "GetFlightInfo"):
        for how in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            run = partial(_raw_compressed, method, how)
            yield Attack(f"method-{method}/{how.name.lower()}", "256 MiB that travel as 260 kB", run)
    path = b"\n\x06\x08\x01\x1a\x02ab"
    yield Attack("put-path", "rows for a path instead of a command", partial(_raw, "DoPut", [path]))
    yield Attack("put-no-rows", "an ingest that ends before its schema", partial(ingest, [Data()]))


def column_of_one() -> list[Data]:
    """The messages of one valid row."""
    import pyarrow as pa

    return column(pa.array([1], pa.int64()))


def _act(kind: str, flight: RawFlight) -> list[bytes]:
    return flight.action(kind, b"\xff" * 1_000)


def _info(command: bytes, flight: RawFlight) -> list[bytes]:
    return flight.info(command)


def _get(ticket: bytes, flight: RawFlight) -> list[bytes]:
    return flight.get(ticket)


def _put(command: bytes, messages: list[Data], flight: RawFlight) -> list[bytes]:
    return flight.put(command, messages)


def _exchange(command: bytes, messages: list[Data], flight: RawFlight) -> list[bytes]:
    return flight.exchange(command, messages)


def _raw(method: str, requests: list[bytes], flight: RawFlight) -> list[bytes]:
    return flight.raw(method, requests)


def _raw_compressed(method: str, how: Any, flight: RawFlight) -> list[bytes]:
    return flight.raw(method, [bytes(256 << 20)], how)


DOORS: dict[str, Callable[[Iterable[Data], RawFlight], list[bytes]]] = {
    "bind": bind,
    "ingest": ingest,
    "own-ingest": own_ingest,
    "handle": forge,
}
"""Every way by which Arrow data of a client comes to a scheduler."""


def _through(door: str, lie: Lie, flight: RawFlight) -> list[bytes]:
    return DOORS[door](lie.make(), flight)


def _attacks() -> Iterator[Attack]:
    for name, lie in MESSAGES.items():
        for door in DOORS:
            yield Attack(f"{name}/{door}", lie.about, partial(_through, door, lie), HONEST_BYTES + lie.unpacked)
    yield from _commands()


ATTACKS: list[Attack] = list(_attacks())


def main() -> int:
    """Attack what the command line says; status 1 when a connection was lost or bytes leaked, 2 without a scheduler."""
    parser = argparse.ArgumentParser(description="Send hostile messages to a scheduler of your own.")
    parser.add_argument("url", help="ballista://host:port or ballista+tls://host:port")
    parser.add_argument("--token", help="what the scheduler asks of its clients")
    parser.add_argument("--ca-file", help="whose certificates to trust")
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    options = parser.parse_args()
    tls = Tls(ca_file=options.ca_file) if options.ca_file else None
    chosen = [attack for attack in ATTACKS if options.only in attack.name]
    if not chosen:
        parser.error(f"there is no attack whose name holds '{options.only}'")
    bad = tried = 0
    try:
        for found in hostile_client(options.url, token=options.token, tls=tls, attacks=chosen):
            if not tried and found.verdict == "connection lost":
                parser.error(f"no scheduler answers at {options.url} ({found.said})")
            print(found, flush=True)
            tried += 1
            bad += found.verdict in ("connection lost", "LEAK")
    except ConfigError as error:
        parser.error(error.message)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
