"""What waits to be written to one executor: the newest answer, the newest update of each table, and requests."""

from __future__ import annotations

import asyncio

from attrs import frozen

from ballista_py.errors import TryLater
from ballista_py.state.members.control import Grant, Refusal, UpdatePartitions
from ballista_py.transport.control.codec import ToExecutor, heard_message, to_executor_message
from ballista_py.transport.control.grpc import messages as pb

MAX_TABLES_WAITING = 1_024
MAX_REQUESTS_WAITING = 1_024


@frozen
class Letter:
    """What is to be said, and the same as a message; a bare number says that the heartbeat of it was heard."""

    value: ToExecutor | int
    message: pb.SchedulerMessage

    @classmethod
    def of(cls, value: ToExecutor | int) -> Letter:
        """The letter that says `value`. Takes milliseconds for thousands of partitions: write it off the loop."""
        return cls(value, heard_message(value) if isinstance(value, int) else to_executor_message(value))


class Outbox:
    """Letters for a reader that may be slow. Used on one event loop.

    A newer answer replaces one that was not taken, a newer revision of a table replaces an older one, and an older
    one is dropped: all of them are level-triggered, so the newest says everything. A request that waits already is
    not put in again. So the box is bounded by the number of tables and of requests; above `MAX_TABLES_WAITING` or
    `MAX_REQUESTS_WAITING` putting raises `TryLater`.
    """

    def __init__(self) -> None:
        self._answer: Letter | None = None
        self._updates: dict[str, tuple[UpdatePartitions, Letter]] = {}
        self._requests: dict[ToExecutor, Letter] = {}
        self._filled = asyncio.Event()

    def put(self, letter: Letter) -> None:
        """Leave a letter."""
        value = letter.value
        if isinstance(value, UpdatePartitions):
            self._put_update(value, letter)
        elif not isinstance(value, Grant | Refusal | int):
            self._put_request(value, letter)
        elif self._answer is None or _says_more(value, self._answer.value):
            self._answer = letter
        self._filled.set()

    async def take(self) -> pb.SchedulerMessage:
        """The next message, answers first, then requests; waits for one."""
        while self._answer is None and not self._updates and not self._requests:
            self._filled.clear()
            await self._filled.wait()
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer.message
        if self._requests:
            return self._requests.pop(next(iter(self._requests))).message
        return self._updates.pop(next(iter(self._updates)))[1].message

    def _put_request(self, request: ToExecutor, letter: Letter) -> None:
        if request not in self._requests and len(self._requests) >= MAX_REQUESTS_WAITING:
            raise TryLater(f"the executor reads too slowly: {MAX_REQUESTS_WAITING} requests wait for it")
        self._requests[request] = letter

    def _put_update(self, update: UpdatePartitions, letter: Letter) -> None:
        table = update.table.folder
        if table not in self._updates:
            if len(self._updates) >= MAX_TABLES_WAITING:
                raise TryLater(
                    f"the executor reads too slowly: updates of {MAX_TABLES_WAITING} tables wait for it"
                )
            self._updates[table] = update, letter
            return
        waiting, _ = self._updates[table]
        if waiting.revision <= update.revision or waiting.instance_id != update.instance_id:
            self._updates[table] = update, letter


def _says_more(answer: Grant | Refusal | int, waiting: ToExecutor | int) -> bool:
    if not isinstance(waiting, Grant | Refusal):
        return True
    return not isinstance(answer, int) and answer.sequence >= waiting.sequence
