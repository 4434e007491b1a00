"""What a message of protobuf takes is told by its bytes, before it is read."""

import random

import pytest

from ballista_py.errors import InvalidData
from ballista_py.protobuf_sizes import require_unpackable
from ballista_py.state.members.control import ExecutorInfo, Heartbeat, HeldPartitions
from ballista_py.transport.control.codec import heartbeat_from_message, heartbeat_to_message
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.grpc import parsed
from ballista_py.transport.flight_sql.messages import message, pack, unpack


def wrapped(number: int, body: bytes) -> bytes:
    """A field with these bytes."""
    size, length = len(body), []
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + body


HELD = wrapped(1, wrapped(5, b""))[2:]  # one empty table of a heartbeat
BOMBS = {
    "empty tables": wrapped(1, HELD * 6_000_000),
    "empty tasks": wrapped(2, wrapped(4, b"") * 2_000_000),
    "numbers": wrapped(1, wrapped(5, wrapped(3, b"\x01" * 3_000_000) + wrapped(4, b"\x01" * 3_000_000))),
    "numbers one by one": wrapped(1, wrapped(5, b"\x18\x01" * 1_000_000)),
    "map": wrapped(1, wrapped(5, wrapped(6, b"\x08\x01") * 500_000)),
    "unknown numbers": b"\xf8\x07\x01" * 1_000_000,
    "unknown groups": b"\xfb\x07\xfc\x07" * 1_000_000,
    "unknown texts": wrapped(15, b"") * 1_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_much_is_refused_unread(name):
    with pytest.raises(InvalidData, match="64 MiB once it is read"):
        parsed(pb.ExecutorMessage, BOMBS[name])


def test_the_heartbeat_of_many_partitions_is_read():
    numbers = tuple(range(80_000))
    held = HeldPartitions(
        table="t", revision=1, active=numbers, epochs=numbers, loaded=numbers, rows=numbers, bytes=numbers
    )
    info = ExecutorInfo(executor_id="e", instance_id="i", data_address="h:1")
    heartbeat = Heartbeat(executor=info, sequence=1, lapsed=False, held=(held,))
    data = heartbeat_to_message(heartbeat).SerializeToString()
    assert heartbeat_from_message(parsed(pb.ExecutorMessage, data)) == heartbeat


def test_commands_of_clients_are_measured_too():
    options = {f"o{number}": "" for number in range(300_000)}
    with pytest.raises(InvalidData, match="once it is read"):
        unpack(pack(message("CommandStatementIngest", table="t", options=options)))
    sent = message("CommandStatementQuery", query="select '" + "x" * (1 << 20) + "'")
    assert unpack(pack(sent)) == sent


def test_what_is_no_message_is_left_to_who_reads_it():
    chance = random.Random(3)
    good = BOMBS["map"][:600_000]
    for _ in range(300):
        data = bytearray(good[: chance.randrange(200_000, len(good))])
        for _ in range(chance.randrange(5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            require_unpackable(bytes(data), pb.ExecutorMessage.DESCRIPTOR)
        except InvalidData:
            continue
