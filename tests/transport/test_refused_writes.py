"""A node that ends a write at once is named, whichever half of the stream says so first."""

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py.errors import TransportError
from ballista_py.transport.flight.errors import from_flight
from ballista_py.transport.flight.writes import WriteStream

ROWS = pa.record_batch({"n": [1]})


class EndsAtOnce(flight.FlightServerBase):
    """Refuses every exchange before it has read anything."""

    def do_exchange(self, context, descriptor, reader, writer):
        raise flight.FlightUnavailableError("go elsewhere")


def test_a_write_that_is_ended_at_once_is_an_error_of_ours(pool):
    with EndsAtOnce("grpc://127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(TransportError, match=address):
            pool.ask(address, {"kind": "settle"})


class BrokenHalves:
    """Both halves of a stream of which Arrow says no more than that it is broken."""

    def _broken(self, *_):
        raise OSError("Could not write record batch to stream (server disconnect?)")

    begin = write_batch = write_metadata = done_writing = close = read_chunk = _broken

    def cancel(self):
        """Nothing is under way."""


@pytest.mark.parametrize("at", ["begin", "finish"])
def test_a_stream_that_broke_without_a_word_names_the_node(at):
    halves = BrokenHalves()
    stream = WriteStream(None, halves, halves, "here:1", lambda error: from_flight(error, "here:1"), "ingest")
    with pytest.raises(TransportError, match="here:1"):
        stream.begin(ROWS.schema) if at == "begin" else stream.finish()
