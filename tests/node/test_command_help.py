"""What the command line says of itself: help of 80 columns with defaults, and what was meant by a typo."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ballista_py.node.cli.app import Commands, app
from ballista_py.node.cli.node_words import OPTIONS

RUNNER = CliRunner()


def helped(words):
    """The help of a command, as a terminal of 80 columns gets it."""
    done = RUNNER.invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}, prog_name="ballista-py")
    assert done.exit_code == 0, done.output
    return done.output


def walk(words=()):
    """The words of every command, and of every group of them."""
    yield words
    if words == ("sim",):
        return  # the testing kit's own, and no part of a node
    text = helped(words)
    listed = text.partition("\nCommands:\n")[2]
    for name in re.findall(r"^  ([\w-]+)", listed, re.MULTILINE):
        yield from walk((*words, name))


ALL = list(walk())


def test_the_walk_meets_all_there_is():
    assert len(ALL) > 30
    assert {words[0] for words in ALL if words} >= {"sql", "shell", "node", *Commands.later}
    assert ("cluster", "tls", "add") in ALL


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "ballista-py")
def test_help_fits_80_columns_and_is_cut_nowhere(words):
    text = helped(words)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("COMMAND [ARGS]...", "")
    assert not re.search(r"--[a-z-]+…", text)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "ballista-py")
def test_an_option_with_a_value_says_what_it_is_without_it(words):
    text = helped(words).partition("\nOptions:\n")[2].partition("\nCommands:\n")[0]
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=  -)", "\n" + text) if entry.strip()]
    for entry in entries:
        name, *rest = re.sub(r"^-\w, ", "", entry).split(" ", 2)
        takes_value = bool(rest) and (rest[0].isupper() or rest[0].startswith("["))
        if takes_value and "[required]" not in entry and not (words == ("node",) and no_default(name)):
            assert "default" in entry or "env var" in entry or "instead" in entry, entry


def no_default(name):
    """Whether a field of a node is nothing without its option, or must be given."""
    from attrs import NOTHING, fields_dict

    from ballista_py.node.config import NodeConfig

    known = fields_dict(NodeConfig).get(name.removeprefix("--").replace("-", "_"))
    return known is None or known.default in (NOTHING, None, ())


def test_every_field_of_a_node_is_in_its_help_by_its_whole_name():
    text = helped(("node",))
    for name in OPTIONS:
        assert re.search(rf"--{name.replace('_', '-')}\b(?!-)", text), name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memberz"], "did you mean 'members'?"),
        (["jobs", "lits"], "'list'"),
        (["cluster", "tls", "ad"], "'add'"),
        (["sql", "--conect", "x", "select 1"], "--connect"),
        (["node", "--roll", "x"], "--role"),
        (
            ["sql", "--engine", "sparc", "select 1"],
            "'--engine': 'sparc' is none of spark, auto; did you mean 'spark'?",
        ),
        (["jobs", "list", "--state", "runing"], "'--state': 'runing' is none of PENDING,"),
        (["jobs", "list", "--state", "runing"], "did you mean 'RUNNING'?"),
        (["cluster", "tls", "add", "a", "--role", "executer"], "did you mean 'executor'?"),
        (["jobs", "submit", "--priority", "12", "select 1"], "'--priority'"),
        (["jobs", "wait", "--timeout", "soon", "x"], "'--timeout'"),
    ],
)
def test_a_typo_is_wrong_usage_and_told_with_the_nearest_there_is(words, said):
    done = RUNNER.invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            ("--role", "schedular"),
            "--role: 'schedular' is none of scheduler, executor, both (did you mean scheduler?)",
        ),
        (("--log-format", "jsn"), "--log-format: 'jsn' is none of text, json (did you mean json?)"),
        (("--http-port", "x"), "--http-port: 'x' is no whole number"),
        (("--http-port", "70000"), "--http-port: "),
        (("--ttl-ms", "5q"), "--ttl-ms: '5q' is no time"),
    ],
)
def test_what_is_wrong_with_a_node_is_said_in_the_word_of_its_option(option, said, tmp_path):
    words = ("--role", "scheduler", "--node-id", "s", "--state-location", tmp_path.as_uri(), *option)
    done = RUNNER.invoke(app, ["node", *words])
    assert str(done.exception).startswith(said)


def test_what_a_file_says_of_a_node_is_told_with_its_place_and_not_as_an_option(tmp_path):
    file = tmp_path / "node.yaml"
    file.write_text("role: scheduler\nhttp_port: x\n")
    done = RUNNER.invoke(app, ["node", "--config", str(file)])
    assert "node.yaml:2:12: http_port" in str(done.exception)
    assert "--http-port" not in str(done.exception)


def test_help_needs_neither_a_console_nor_a_tenth_of_what_a_node_imports():
    program = (
        "import sys, runpy\nsys.argv = ['ballista-py', '--help']\n"
        "try:\n    runpy.run_module('ballista_py.node', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        "print(len(sys.modules), 'rich' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    count, rich = done.stderr.split()
    assert rich == "False"
    assert int(count) < 350
