"""What the command line imports before it has anything to do: counted, because times are noise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ballista_py.node.cli.app import Commands, app

HEAVY = {
    "cattrs", "cryptography", "duckdb", "fsspec", "google", "grpc", "litestar", "numpy", "opentelemetry", "polars",
    "prompt_toolkit", "psutil", "pyarrow", "pyspark", "sqlglot", "uvicorn", "yaml",
}  # fmt: skip
PROGRAM = """
import sys, runpy
sys.argv = ["ballista-py", *sys.argv[1:]]
try:
    runpy.run_module("ballista_py.node", run_name="__main__")
except SystemExit:
    pass
print("modules:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
print("ours:", *(name for name in sys.modules if name.startswith("ballista_py.")), file=sys.stderr)
"""


def imported(*words):
    """What `ballista-py` with these words has imported at its end: packages, and modules of ours."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=120)
    packages, ours = (line.split()[1:] for line in done.stderr.splitlines()[-2:])
    return set(packages), set(ours)


def test_help_imports_nothing_that_only_nodes_need():
    packages, ours = imported("--help")
    assert not packages & HEAVY
    assert len(ours) < 20, sorted(ours)


def test_a_client_imports_no_engine_and_nothing_of_nodes():
    packages, ours = imported("sql", "--connect", "127.0.0.1:1", "select 1")
    assert not packages & (HEAVY - {"numpy", "pyarrow"})  # Arrow brings numpy
    assert not [name for name in ours if name.startswith(("ballista_py.coordinator", "ballista_py.owner"))]


@pytest.mark.parametrize("name", sorted(Commands.later))
def test_a_command_that_is_imported_later_says_of_itself_what_the_list_says(name):
    listed = Commands.later[name].help.removesuffix(".")
    assert listed.partition(",")[0] in " ".join((Commands.later[name].load(name).help or "").split())
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0, shown.output


def test_an_unknown_command_is_told_with_the_nearest_there_is():
    runner = CliRunner()
    for typed, meant in (("storag", "storage"), ("nod", "node"), ("memberz", "members")):
        done = runner.invoke(app, [typed])
        assert done.exit_code == 2
        assert f"did you mean '{meant}'?" in done.output
    assert "did you mean" not in runner.invoke(app, ["xyzzy"]).output


def test_a_node_keeps_nothing_of_what_reads_words_for_people():
    program = (
        "import sys\nimport ballista_py.node.process as process\n"
        "process.run_nodes = lambda configs, parent_pid=None: None\n"
        "from ballista_py.node.__main__ import main\n"
        "import ballista_py.node.scheduler.scheduler, ballista_py.node.executor.executor\n"
        "main()\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    words = ["node", "--role", "scheduler", "--node-id", "s-1", "--state-location", "memory://x"]
    run = [sys.executable, "-c", program, *words, "--allow-insecure-connections"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert not {"typer", "pydantic", "rich", "prompt_toolkit"} & set(done.stdout.split())


@pytest.mark.parametrize("module", ["ballista_py", "ballista_py.node"])
def test_it_runs_as_a_module_too(module):
    said = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("ballista-py ")
