"""How a node's process gives memory back that it does not use any more.

Three allocators work in a node: DuckDB's, Arrow's and that of the C library, from which gRPC takes what it receives. As
they come each keeps what it has once taken, on the guess that it is wanted again, and a node that lives for
weeks is as large as its largest moment. `docs/design/092-memory-of-a-node.md` has the numbers.
"""

from __future__ import annotations

import ctypes
import os
import sys

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
