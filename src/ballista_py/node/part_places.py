"""Who may have how many parts of read jobs open at once, at whatever server gives them."""

from __future__ import annotations

import os
from typing import Any

from attrs import define, field

from ballista_py.runtime import Runtime
from ballista_py.transport.table_read.exchange import OnHold, TooBusy

# More at once take memory and are no faster. One whose rows nobody takes holds up its client, and nobody else.
PROCESSED_OF_CLIENT = max(4, 2 * (os.cpu_count() or 1))
PROCESSED_IN_ALL = OPEN_OF_CLIENT = 4 * PROCESSED_OF_CLIENT
RETRY_AFTER_MS = 200
ROOM_MS = 1_000.0  # to wait for room in the memory of the node


@define
class PartPlaces:
    """The places of exchanges. Safe to share between threads.

    At most `PROCESSED_OF_CLIENT` of one client, `PROCESSED_IN_ALL` of all, are processed at once; of one client at most
    `OPEN_OF_CLIENT` are open.
    """

    runtime: Runtime
    _lock: Any = field(init=False)
    _opened: dict[object, tuple[str, bool]] = field(init=False, factory=dict)  # whose, and whether processed

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def take(self, place: object, client: str, process: bool) -> TooBusy | OnHold | None:
        """Take the place of an exchange until it is `left`, or say why there is none."""
        with self._lock:
            opened = self._opened.values()
            own = [processed for other, processed in opened if other == client]
            if len(own) >= OPEN_OF_CLIENT:
                return OnHold(RETRY_AFTER_MS)
            everybody = sum(processed for _, processed in opened)
            if process and (sum(own) >= PROCESSED_OF_CLIENT or everybody >= PROCESSED_IN_ALL):
                return TooBusy()
            self._opened[place] = (client, process)
        return None

    def leave(self, place: object) -> None:
        """Give a place up. Harmless for one that was given up."""
        with self._lock:
            self._opened.pop(place, None)
