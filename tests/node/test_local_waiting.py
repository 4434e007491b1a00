"""When a local cluster is said to be started: its schedulers answer, or refuse for a reason of their own."""

from contextlib import nullcontext

import pytest

from ballista_py.errors import TransportError, TryLater, Unauthenticated
from ballista_py.node.local.waiting import still_starting


@pytest.mark.parametrize(
    ("said", "starting"),
    [
        (None, []),
        (TryLater("scheduler 'a' is starting"), ["scheduler 'a' is starting"]),
        (Unauthenticated("the token is not valid"), []),
        (TransportError("no scheduler can be reached"), []),
    ],
)
def test_a_scheduler_that_says_to_try_later_is_still_starting(said, starting):
    def client_of(address):
        assert address == "127.0.0.1:7"
        if said is not None:
            raise said
        return nullcontext()

    assert still_starting(["127.0.0.1:7"], client_of) == starting
