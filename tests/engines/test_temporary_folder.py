"""An engine without a folder leaves nothing behind, also when nobody closes it."""

import os
import subprocess
import sys

import pytest

MAKE = "from ballista_py.engines.duckdb.engine import DuckDBEngine; engine = DuckDBEngine()"


@pytest.mark.parametrize("end", ["", "; engine.close()", "; engine.close(); engine.close()"])
def test_the_temporary_folder_goes_with_the_process(tmp_path, end):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", MAKE + end], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
