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


LATER = """
import sys
from ballista_py.spared import without
def found():
    try:
        import colorsys
    except ModuleNotFoundError:
        return False
    return True
"""


def test_a_package_is_absent_for_a_moment_whether_it_was_loaded_or_not() -> None:
    asked = "with without('colorsys'):\n    print(found())\nprint(found())\n"
    assert _said(LATER + asked + asked) == ["False", "True", "False", "True"]
    assert _said(LATER + "try:\n    with without('colorsys'):\n        1 / 0\nexcept ZeroDivisionError:\n"
                 "    print(found(), 'colorsys' in sys.modules)\n") == ["True True"]  # fmt: skip


def test_the_framework_of_the_http_ports_brings_nothing_that_no_route_needs() -> None:
    """Its plugin for pydantic would be 6 MB of every node, for the command line loads pydantic itself."""
    code = """
import sys
from types import SimpleNamespace
import pydantic
import ballista_py.node.cli.app
from ballista_py.node.http.app import HttpApp
HttpApp(SimpleNamespace(access=SimpleNamespace(check_registered=len), guard=lambda *_: None), [], 1)
print(*("litestar" in sys.modules, "pydantic" in sys.modules, "litestar.plugins.pydantic" in sys.modules))
print("pydantic.v1" in sys.modules, "rich" in sys.modules)
"""
    assert _said(code) == ["True True False", "False False"]
