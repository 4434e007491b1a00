"""Without DuckDB the engines say how to install it."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['duckdb'] = None; import ballista_py.engines.{}"


@pytest.mark.parametrize("module", ["duckdb.engine", "duckdb.binder", "duckdb.change", "polars.engine"])
def test_an_engine_without_duckdb_names_the_line_that_installs_it(module):
    said = subprocess.run([sys.executable, "-c", WITHOUT.format(module)], capture_output=True, text=True)
    assert said.returncode == 1
    assert "MissingExtra: duckdb is not installed. Run: pip install 'ballista_py[node]'" in said.stderr
