"""The end of a call's messages: of a caller that was done, and of one that died, which gRPC learns a moment later."""

import pytest

from ballista_py.transport.control.grpc import grpc
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.statuses import LinkBroke


class Messages:
    """As gRPC's iterator of requests: it gives these, one after the other, and raises those that are errors."""

    def __init__(self, *come):
        self._come = list(come)

    def __iter__(self):
        return self

    def __next__(self):
        found = self._come.pop(0)
        if isinstance(found, bytes):
            return found
        raise found


def received(*come):
    return list(ServedCall("DoPut", Messages(*come), None, lambda _: None).received())


def test_a_caller_that_was_done_is_asked_twice():
    assert received(b"a", b"b", StopIteration(), StopIteration()) == [b"a", b"b"]


def test_an_end_that_is_followed_by_a_broken_link_is_no_end():
    with pytest.raises(LinkBroke):
        received(b"a", StopIteration(), grpc.RpcError())


def test_a_link_that_is_known_to_be_broken_is_no_end():
    with pytest.raises(LinkBroke):
        received(b"a", grpc.RpcError())
