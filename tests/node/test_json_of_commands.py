"""Every command that prints a result prints it as JSON, too, and then its errors are JSON whatever they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from ballista_py.node.cli.app import app

NO_RESULT = {  # and why
    "shell": "for people alone",
    "demo": "shows itself to people; its exit code says whether all was right",
    "node": "runs until it is stopped; its log is JSON with --log-format json",
    "sim": "its own command line, with figures of its own",
    "app schema": "prints nothing but JSON",
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(group, "list_commands"):
        yield " ".join(path), group
        return
    context = typer.Context(group)
    for name in group.list_commands(context):
        later = getattr(group, "later", {}).get(name)
        found = group.get_command(context, name) if later is None else later.load(name)
        yield from commands(found, (*path, name))


TREE = dict(commands(typer.main.get_command(app)))


def test_every_command_with_a_result_takes_json():
    assert set(TREE) > set(NO_RESULT)
    lacking = {name for name, one in TREE.items() if "--json" not in {o for p in one.params for o in p.opts}}
    assert lacking == set(NO_RESULT)


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ballista_py.node", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tables", "--jsn", "--json"), "No such option: --jsn"),
        (("storage", "verify", "--json"), "Missing argument 'URL'"),
        (("tabls", "--json"), "did you mean 'tables'?"),
        (("cluster", "tls", "add", "n1", "--role", "boss", "--json"), "boss"),
    ],
)
def test_wrong_usage_is_told_as_json_with_the_same_exit_code(arguments, said):
    found, plain = run(*arguments), run(*(word for word in arguments if word != "--json"))
    told = json.loads(found.stderr)
    assert (found.returncode, plain.returncode, found.stdout) == (2, 2, b"")
    assert told["code"] == "usage"
    assert said in told["error"]


def test_certificates_are_told_as_json(tmp_path):
    folder = str(tmp_path / "tls")

    def asked(*arguments: str) -> Any:
        found = run(*arguments, "--json")
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    assert asked("cluster", "tls", "init", "--folder", folder)["ca_file"].endswith("ca.pem")
    made = asked("cluster", "tls", "add", "n1", "--role", "executor", "--folder", folder)
    assert (made["node_id"], made["role"], made["removed"]) == ("n1", "executor", False)
    assert asked("cluster", "tls", "remove", "n1", "--folder", folder)["node_id"] == "n1"
    shown = {row["node_id"]: row for row in asked("cluster", "tls", "show", "--folder", folder)}
    assert shown["n1"]["removed"] is True
