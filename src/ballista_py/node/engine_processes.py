"""The processes of a node's engine: started with nothing of the node's but a socket, ended when they must be."""

from __future__ import annotations

import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress

import psutil

from ballista_py.engines.apart.frames import Frames
from ballista_py.engines.apart.shares import BESIDE
from ballista_py.engines.apart.workers import Options, Workers
from ballista_py.errors import ConfigError
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.config import NodeConfig
from ballista_py.runtime import Runtime

WATCH_MS = 100.0
GIVE_BACK_MS = 3_000.0
DEFAULT_MEMORY = "80%"
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(%|[kmgt]i?b|bytes?|b)", re.ASCII | re.IGNORECASE)
SPILLED = ("spill*", "engine/spill*", "worker-*")  # of schedulers, of executors, of processes of either
MODULE = "ballista_py.engines.apart.worker"
# What else is in a node's environment may be a secret.
_KEPT = (
    "ARROW_DEFAULT_MEMORY_POOL",
    "DUCKDB_JE_MALLOC_CONF",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "TZ",
)
_ARENAS = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(8 << 20),
    # In KiB. Arrow's allocator would reserve 1 GiB at its first value, which counts toward what the system allows.
    "MIMALLOC_ARENA_RESERVE": str(32 << 10),
}


class EngineProcess:
    """One process, from its construction until `kill`. Its temporary files lie in a folder of its own in `folder`.

    It gets no file descriptors but its socket and a pipe: when this process ends, however, the pipe is closed by the
    system, and that ends the other one.
    """

    def __init__(self, folder: str | None, runtime: Runtime) -> None:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)  # whoever tidied up need not have known it
        self._home = tempfile.mkdtemp(prefix="worker-", dir=folder)
        ours, theirs = socket.socketpair()
        life, held = os.pipe()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-m", MODULE, str(theirs.fileno()), str(life)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), life),
                env={**environment, **_ARENAS, "TMPDIR": self._home, "HOME": self._home},
                start_new_session=True,
                cwd=self._home,
            )
        except BaseException:
            ours.close()
            os.close(held)
            shutil.rmtree(self._home, ignore_errors=True)
            raise
        finally:
            theirs.close()
            os.close(life)
        self._held = held
        self._seen = psutil.Process(self._process.pid)
        self.frames = Frames(ours, runtime)

    def own_bytes(self) -> int:
        """See `Process.own_bytes`."""
        return _own_bytes(self._seen)

    def kill(self) -> None:
        """See `Process.kill`."""
        self._process.kill()

    def step_back(self) -> None:
        """See `Process.step_back`. On Linux each thread has a niceness of its own."""
        with suppress(OSError, psutil.Error):
            each = self._seen.threads() if sys.platform.startswith("linux") else ()
            for number in {self._process.pid, *(thread.id for thread in each)}:
                os.setpriority(os.PRIO_PROCESS, number, BESIDE)

    def returncode(self) -> int | None:
        """See `Process.returncode`."""
        return self._process.poll()

    def remove(self) -> None:
        """See `Process.remove`."""
        self.frames.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        shutil.rmtree(self._home, ignore_errors=True)


def own_bytes() -> int:
    """The resident memory of this process that it shares with no other."""
    return _own_bytes(_SELF)


def _own_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        memory = process.memory_info()
        return int(memory.rss - getattr(memory, "shared", 0))
    return 0


_SELF = psutil.Process()


def node_memory(config: NodeConfig) -> int:
    """What all that a node does at once may take."""
    return int(config.max_merge_bytes) if config.node_role == "scheduler" else memory_bytes(config.memory_limit)


def workers_folder(folder: str) -> str:
    """The folder for what the processes write, empty. Raises `ConfigError` where none can be made."""
    home = os.path.join(folder, "workers")
    shutil.rmtree(home, ignore_errors=True)  # of a process that was killed with its node
    try:
        os.makedirs(home, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"folder '{home}' cannot be used: {error.strerror}") from error
    return home


def engine_workers(
    config: NodeConfig, folder: str | None, runtime: Runtime, budget: MemoryBudget | None = None
) -> Workers:
    """The processes of a node's engine, which together with the node take what it may have, as its `budget` says."""
    is_scheduler = config.node_role == "scheduler"
    home = None if folder is None else workers_folder(folder)
    return Workers(
        start=lambda: EngineProcess(home, runtime),
        max_bytes=node_memory(config),
        **({} if budget is None else {"budget": budget}),
        own_bytes=own_bytes,
        runtime=runtime,
        options=Options(
            kind="duckdb" if is_scheduler else config.engine,
            threads=config.threads,
            max_spill_bytes=int(config.max_spill_bytes),
            keeps_order=is_scheduler,
        ),
    )


def require_amount(limit: str) -> str:
    """The limit itself. Raises `ConfigError` for one that is no amount of memory."""
    if _AMOUNT.fullmatch(limit.strip()) is None:
        raise ConfigError(f"'{limit[:60]}' is no amount of memory: write it as '4GB' or '25%'")
    return limit


def memory_bytes(limit: str | None) -> int:
    """The bytes of a `memory_limit` as DuckDB understands it; what it refuses counts as its default.

    >>> memory_bytes("160MB"), memory_bytes("1.5 GiB")
    (160000000, 1610612736)
    """
    found = _AMOUNT.fullmatch((limit or DEFAULT_MEMORY).strip())
    if found is None:
        return memory_bytes(None)
    number, unit = float(found[1]), found[2].lower()
    if unit == "%":
        return int(number / 100 * psutil.virtual_memory().total)
    return int(number * (1024 if "i" in unit else 1000) ** " kmgt".index(unit[0] if unit[0] != "b" else " "))


def spilled_bytes(folder: str | None) -> int:
    """Bytes of what the engine of a node and its processes have spilled below the node's folder; 0 without one."""
    found = 0
    for pattern in SPILLED if folder is not None else ():
        for path in glob.glob(os.path.join(glob.escape(folder or ""), pattern, "**"), recursive=True):
            with suppress(OSError):  # gone meanwhile
                found += os.stat(path).st_size if os.path.isfile(path) else 0
    return found
