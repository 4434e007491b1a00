"""How a node's process gives memory back that it does not use any more.

Three allocators work in a node: DuckDB's, Arrow's and that of the C library, from which gRPC takes what it receives. As
they come each keeps what it has once taken, on the guess that it is wanted again, and a node that lives for
weeks is as large as its largest moment. `docs/design/092-memory-of-a-node.md` has the numbers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable

from attrs import define, field, frozen

from ballista_py.runtime import Runtime

_ENVIRONMENT = {
    # Arrow's own default keeps what its threads have freed until they end, and they never do.
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
    # DuckDB writes its pages off after a second, and then only while somebody asks it for memory.
    "DUCKDB_JE_MALLOC_CONF": "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0",
}
# Of mallopt(3): its number of an option, the variable by which a user sets it, and our value. A fixed threshold
# also ends that glibc raises its own whenever something large is freed, up to 64 MiB an arena.
_MALLOC = (
    (-8, "MALLOC_ARENA_MAX", 2),
    (-3, "MALLOC_MMAP_THRESHOLD_", 8 << 20),
    (-1, "MALLOC_TRIM_THRESHOLD_", 8 << 20),
)


def settle_allocators() -> None:
    """Let every allocator of this process give back within moments what is free; on Linux, elsewhere nothing is done.

    To be called before pyarrow and duckdb are imported, and before a thread is started. What the user has set in the
    environment stays.
    """
    if not sys.platform.startswith("linux"):
        return
    for name, said in _ENVIRONMENT.items():
        os.environ.setdefault(name, said)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    for option, variable, value in _MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(option, value)


FREE_BYTES = 64 << 20
GREW_BYTES = 64 << 20
MUCH_BYTES = 512 << 20
AGAIN_MS = 30_000.0


@frozen
class Taken:
    """What a process takes, how much of it the C library holds free, and when that was."""

    own_bytes: int = 0
    free_bytes: int = 0
    at_ms: float = 0.0


@define
class GivesBack:
    """Gives back to the system what is free between what is used. Call `tick` every few seconds.

    The C library does so by itself only at the end of what it has; after many answers at once, what is left of
    them holds that end where it was. What is kept by nothing but errors that name each other is let go before.
    `own_bytes` is what the process takes.
    """

    own_bytes: Callable[[], int]
    runtime: Runtime
    _left: Taken = field(init=False, factory=Taken)  # after the last time

    def tick(self) -> None:
        """Look, and give back what is worth it."""
        library = _library()
        if library is None:
            return
        if is_worth_it(self._taken(library), self._left):
            gc.collect()
            library.malloc_trim(0)
            self._left = self._taken(library)

    def _taken(self, library: ctypes.CDLL) -> Taken:
        return Taken(self.own_bytes(), int(library.mallinfo2().fordblks), self.runtime.monotonic_ms())


def is_worth_it(now: Taken, left: Taken) -> bool:
    """Whether there may be much to give back `now`, when `left` was what remained the last time.

    >>> left = Taken(300 << 20, 100 << 20, 0.0)
    >>> is_worth_it(Taken(310 << 20, 110 << 20, 9e3), left), is_worth_it(Taken(310 << 20, 200 << 20, 9e3), left)
    (False, True)
    """
    grew = now.own_bytes > left.own_bytes + GREW_BYTES or now.free_bytes > left.free_bytes + FREE_BYTES
    return grew or (now.own_bytes > MUCH_BYTES and now.at_ms > left.at_ms + AGAIN_MS)


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def _library() -> ctypes.CDLL | None:
    """The C library, if it is one that can be asked."""
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallinfo2") and hasattr(library, "malloc_trim")):
        return None
    library.mallinfo2.restype = _Mallinfo
    return library
