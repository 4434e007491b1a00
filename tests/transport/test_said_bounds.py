"""What another node says beside rows is measured before it is read: errors, ends of answers, replies."""

import pyarrow.flight as flight
import pytest

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.flight.errors import from_flight
from ballista_py.transport.flight.wire import MAX_SAID_BYTES, MAX_VALUES, from_json


def test_many_values_are_refused_whoever_says_them():
    with pytest.raises(InvalidData, match="more than 1,000,000 values"):
        from_json(b'{"rows":0,"trailer":[' + b"[]," * 15_000_000 + b"[]]}")
    assert len(from_json(b'{"trailer":[' + b"0," * (MAX_VALUES - 10) + b"0]}")["trailer"]) == MAX_VALUES - 9


def test_a_long_text_at_the_end_of_an_answer_is_refused():
    with pytest.raises(InvalidData, match="more than 16 MiB"):
        from_json(b'{"trailer":"' + b"x" * MAX_SAID_BYTES + b'"}', most_bytes=MAX_SAID_BYTES)


@pytest.mark.parametrize("details", [b"[]," * 1_000_000, b'"' + b"x" * (2 << 20) + b'",'])
def test_an_error_that_says_too_much_is_an_error_of_the_link(details):
    said = b'{"code":"planning.sql","message":"no","details":{"a":[' + details + b"0]}}"
    found = from_flight(flight.FlightServerError("no", said), "127.0.0.1:1")
    assert isinstance(found, TransportError)
    assert "127.0.0.1:1" in found.message
