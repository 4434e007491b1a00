"""Standard output that takes no more ends a command with 1 and one line; nothing is cut without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

RUN = [sys.executable, "-m", "ballista_py.node"]
COMMANDS = (["app", "schema"], ["--help"], ["jobs", "--help"], ["--version"])


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_is_told_in_one_line(arguments):
    with open("/dev/full", "wb") as full:
        found = subprocess.run([*RUN, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (
        1,
        b"error: standard output cannot be written: No space left on device\n",
    )


def test_a_full_disk_is_told_as_json_where_json_was_asked_for(tmp_path):
    arguments = ["store", "check", tmp_path.as_uri(), "--quick", "--json"]
    with open("/dev/full", "wb") as full:
        found = subprocess.run([*RUN, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert found.returncode == 1
    assert json.loads(found.stderr)["error"] == "standard output cannot be written: No space left on device"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_a_command_quietly(unbuffered):
    # More than a pipe holds: whoever writes it sees that nobody reads.
    code = "from ballista_py.node.cli import app; app.app = lambda **_: app.print_json(['x' * 1000] * 5000); app.main()"
    run = [sys.executable, "-c", code]
    with subprocess.Popen(
        run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"["
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_a_closed_standard_output_is_none():
    found = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *RUN, "app", "schema"], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert (found.returncode, found.stderr) == (0, b"")
