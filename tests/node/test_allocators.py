"""A node's process gives back what it does not use. Each check is a process: allocators are settled once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="allocators of Linux are settled")

SETTLED = "from ballista_py.node.allocators import settle_allocators\nsettle_allocators()\n"
BACKEND = "import pyarrow as pa\nprint(pa.default_memory_pool().backend_name)\n"
# A query takes tens of megabytes and is over; nobody asks anything else.
QUERIED = """
import os, time
import duckdb

def anonymous_mb():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3

connection = duckdb.connect(config={"threads": 1})
connection.execute("set enable_progress_bar = false")
connection.execute("select 1").fetchall()
before = anonymous_mb()
connection.execute("select count(*) from (select distinct range % 700_000 from range(1_500_000))").fetchall()
left = anonymous_mb() - before
until = time.monotonic() + 10
while left > 20 and time.monotonic() < until:
    time.sleep(0.1)
    left = anonymous_mb() - before
print("given back" if left <= 20 else f"kept {left:.0f} MB")
"""
# Eight threads take memory at the same moment; the C library says in how many arenas it lies.
ARENAS = """
import ctypes, sys, threading

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fdopen.restype = ctypes.c_void_p, ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
all_here = threading.Barrier(8)

def take():
    libc.malloc(1000)
    all_here.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


def _said(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "ARROW" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_query_took_goes_back_to_the_system_though_nothing_follows() -> None:
    assert _said(SETTLED + QUERIED) == "given back\n"


def test_threads_share_two_arenas_of_the_c_library() -> None:
    assert 1 <= _said(SETTLED + ARENAS).count("<heap nr=") <= 2
    assert _said(SETTLED + ARENAS, MALLOC_ARENA_MAX="4").count("<heap nr=") > 2


def test_what_the_user_has_set_stays() -> None:
    assert _said(SETTLED + BACKEND) == "jemalloc\n"
    assert _said(SETTLED + BACKEND, ARROW_DEFAULT_MEMORY_POOL="system") == "system\n"


def test_a_node_settles_its_allocators_before_anything_allocates() -> None:
    started = "import sys\nimport ballista_py.node.__main__\n"
    assert _said(started + "print({'duckdb', 'numpy', 'pyarrow'} & set(sys.modules))") == "set()\n"


def test_the_command_starts_where_the_allocators_are_settled() -> None:
    scripts = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    assert 'ballista-py = "ballista_py.node.__main__:main"' in scripts


def test_an_executor_that_only_reads_and_a_client_have_no_parser_loaded() -> None:
    """It would be 30 MB in each of them."""
    modules = ("engines.duckdb.engine", "node.executor.executor", "node.local.cluster")
    started = "import sys\n" + "\n".join(f"import ballista_py.{module}" for module in modules)
    assert (
        _said(started + "\n" + "print({'sqlglot', 'polars', 'pandas', 'pyspark'} & set(sys.modules))") == "set()\n"
    )
