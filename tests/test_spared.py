"""pyarrow leaves pandas alone in a node, and nobody who wants it misses it. Each check is a process of its own."""

from __future__ import annotations

import subprocess
import sys

SPARED = """
import sys
import pyarrow as pa
from ballista_py.spared import spare_pandas
spare_pandas()
"""
USED = "pa.array([1, 2]), pa.table({'n': [1]}).to_pylist()\nprint('pandas' in sys.modules)\n"


def _said(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pyarrow_loads_no_pandas() -> None:
    assert _said(SPARED + USED) == ["False"]


def test_whoever_wants_pandas_has_it() -> None:
    assert _said(SPARED + "import pandas\nprint(pa.array(pandas.Series([1, 2])).to_pylist())") == ["[1, 2]"]
    assert _said(SPARED + USED + "print(pa.table({'n': [1]}).to_pandas()['n'].sum())") == ["False", "1"]
