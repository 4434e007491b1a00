"""What heartbeats say of tables, written and read once as long as it stays the same.

A heartbeat tells of every table that an executor holds, and from one to the next hardly any has changed. Both ends of
a stream remember what the last heartbeat said, by table: the sender by its values, the reader by their very bytes.
What is the same again is the same value again, so that whoever works on reports sees at once which ones are new.
"""

from __future__ import annotations

from collections.abc import Iterable

from ballista_py.state.members.control import Heartbeat, HeldPartitions
from ballista_py.transport.control.codec import (
    Held,
    heartbeat_from_message,
    heartbeat_to_message,
    held_from_message,
    held_to_message,
)
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.heartbeat_checks import checked_held, checked_sender


class HeldWriter:
    """Writes the heartbeats of one stream. Not for several threads at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[HeldPartitions, pb.HeldPartitions]] = {}

    def message(self, heartbeat: Heartbeat) -> pb.ExecutorMessage:
        """The heartbeat as it is sent."""
        known: dict[str, tuple[HeldPartitions, pb.HeldPartitions]] = {}

        def of_one(held: HeldPartitions) -> pb.HeldPartitions:
            before = self._known.get(held.table)
            if before is None or before[0] is not held:
                before = held, held_to_message(held)
            known[held.table] = before
            return before[1]

        message = heartbeat_to_message(heartbeat, of_one)
        self._known = known
        return message


class HeldReader:
    """Reads and checks the heartbeats of one stream. Not for several threads at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, HeldPartitions]] = {}
        self._last: Held = ()

    def heartbeat(self, message: pb.ExecutorMessage) -> Heartbeat:
        """The heartbeat in the message. Raises `InvalidData` for one that says what no executor of ours says."""
        found = heartbeat_from_message(message, self._held)
        assert found is not None
        return checked_sender(found)

    def _held(self, messages: Iterable[pb.HeldPartitions]) -> Held:
        known: dict[str, tuple[bytes, HeldPartitions]] = {}
        found: list[HeldPartitions] = []
        for message in messages:
            data, before = message.SerializeToString(deterministic=True), self._known.get(message.table)
            if before is None or before[0] != data:
                before = data, checked_held(held_from_message(message))
            known[message.table] = before
            found.append(before[1])
        self._known = known
        if len(found) != len(self._last) or any(
            one is not last for one, last in zip(found, self._last, strict=True)
        ):
            self._last = tuple(found)
        return self._last
