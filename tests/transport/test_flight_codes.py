"""Errors at the data and parts ports: our clients get the very error, those of gRPC a status that says what to do."""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import pytest

from ballista_py import errors
from ballista_py.errors import (
    BallistaError,
    InvalidData,
    LeaseExpired,
    MergeTooLarge,
    ObjectMissing,
    SqlError,
    StoreUnavailable,
    TimeLimit,
    TransportError,
    TryLater,
    Unauthenticated,
    WriteIncomplete,
)
from ballista_py.testing.hostile.raw_flight import RawFlight
from ballista_py.transport.flight import listener
from ballista_py.transport.flight.errors import from_flight, to_flight
from ballista_py.transport.flight.wire import to_json

ALL = sorted(
    {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BallistaError)},
    key=lambda kind: kind.code,
)


class Raising:
    """A handler whose every answer is the error named in the question."""

    verbs = ()

    def action(self, name, body, context):
        raise {kind.code: kind for kind in ALL}[name](f"about '{name}'", table="t")


def test_every_error_of_the_tree_arrives_as_it_was_raised_whatever_its_status(serve, pool):
    address = serve(Raising()).address
    for kind in ALL:
        with pytest.raises(BallistaError) as caught:
            pool.call(address, kind.code, {})
        assert type(caught.value) is kind
        assert (caught.value.message, caught.value.details) == (f"about '{kind.code}'", {"table": "t"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SqlError("no"), "INVALID_ARGUMENT"),
        (InvalidData("no"), "INVALID_ARGUMENT"),
        (TransportError("no"), "INVALID_ARGUMENT"),
        (LeaseExpired("no"), "FAILED_PRECONDITION"),
        (ObjectMissing("no"), "NOT_FOUND"),
        (MergeTooLarge("no"), "RESOURCE_EXHAUSTED"),
        (MemoryError(), "RESOURCE_EXHAUSTED"),
        (TimeLimit("no"), "DEADLINE_EXCEEDED"),
        (WriteIncomplete("no"), "ABORTED"),
        (StoreUnavailable("no"), "UNAVAILABLE"),
        (TryLater("no"), "UNAVAILABLE"),
        (Unauthenticated("no"), "UNAUTHENTICATED"),
        (BallistaError("no"), "INTERNAL"),
        (KeyError("no"), "INTERNAL"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_the_status_says_whose_fault_it_is(error, code):
    assert to_flight(error).code == code


def test_no_error_of_the_tree_but_its_root_is_called_a_fault_of_the_node():
    assert [kind for kind in ALL if to_flight(kind("no")).code == "INTERNAL"] == [BallistaError]
    assert not [kind for kind in ALL if to_flight(kind("no")).code == "UNKNOWN"]


def test_a_status_of_a_time_limit_is_not_taken_for_a_link_that_failed():
    said = to_flight(TimeLimit("the statement took longer than 3 s")).extra
    assert isinstance(from_flight(SimpleNamespace(extra_info=said), "x:1"), TimeLimit)


@pytest.mark.parametrize("body", [b"{", b"[]", to_json({"kind": ["leg"]}), b"\xff"])
def test_a_command_that_is_none_is_the_fault_of_its_sender(serve, body):
    with RawFlight(f"ballista://{serve().address}") as flight, pytest.raises(grpc.RpcError) as caught:
        flight.exchange(body, [])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()


def test_an_offence_whose_handler_never_starts_speaks_for_others_only_a_second(serve):
    port = serve().server._listener
    now_ms = [0.0]
    port._runtime = SimpleNamespace(monotonic_ms=lambda: now_ms[0])
    offence = SimpleNamespace(method="/x/y", invocation_metadata=[("x", "y")] * 10_000)
    assert port.service(offence) is not None
    assert port.service(offence) is None
    now_ms[0] += listener.OFFENCE_MS
    assert port.service(offence) is not None
