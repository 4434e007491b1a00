"""What waits to be written to one executor: the newest answer and the newest update of each table, no more."""

from __future__ import annotations

import asyncio

from ballista_py.errors import TryLater
from ballista_py.state.control import Grant, Refusal, UpdatePartitions

MAX_TABLES_WAITING = 1_024


class Outbox:
    """Messages for a reader that may be slow. Used on one event loop.

    A newer answer replaces one that was not taken, a newer revision of a table replaces an older one, and an older
    one is dropped: all of them are level-triggered, so the newest says everything. So the box is bounded by the
    number of tables; above `MAX_TABLES_WAITING` putting raises `TryLater`.
    """

    def __init__(self) -> None:
        self._answer: Grant | Refusal | int | None = None
        self._updates: dict[str, UpdatePartitions] = {}
        self._filled = asyncio.Event()

    def put(self, message: Grant | Refusal | UpdatePartitions | int) -> None:
        """Leave a message; a bare number acknowledges the heartbeat of that sequence."""
        if isinstance(message, UpdatePartitions):
            waiting = self._updates.get(message.table.name)
            if waiting is None and len(self._updates) >= MAX_TABLES_WAITING:
                raise TryLater(
                    f"the executor reads too slowly: updates of {MAX_TABLES_WAITING} tables wait for it"
                )
            if (
                waiting is None
                or waiting.revision <= message.revision
                or waiting.instance_id != message.instance_id
            ):
                self._updates[message.table.name] = message
        elif self._says_more_than_what_waits(message):
            self._answer = message
        self._filled.set()

    async def take(self) -> Grant | Refusal | UpdatePartitions | int:
        """The next message, answers first; waits for one."""
        while self._answer is None and not self._updates:
            self._filled.clear()
            await self._filled.wait()
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        return self._updates.pop(next(iter(self._updates)))

    def _says_more_than_what_waits(self, answer: Grant | Refusal | int) -> bool:
        waiting = self._answer
        if waiting is None or isinstance(waiting, int):
            return True
        return not isinstance(answer, int) and answer.sequence >= waiting.sequence
