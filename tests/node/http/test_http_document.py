"""What the OpenAPI document and the guide say of a scheduler, asked of a scheduler that asks for no token."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import urllib.request
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
GUIDE = Path(__file__).parents[3] / "docs" / "guide-http.md"
EXAMPLES = 10  # of each path
SEED = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", "0"))
SAID_FAULTS = (503, 504)  # a node that is busy, and a time limit that the request itself may have set


def no_fault(_context, response, case):
    """The check for errors of the server, but for those that the guide says to a client."""
    return None if response.status_code in SAID_FAULTS else not_a_server_error(_context, response, case)


CHECKS = [no_fault, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as made:
        yield made


@pytest.fixture(scope="module")
def document(cluster):
    return schemathesis.openapi.from_url(f"{cluster.http_url()}/openapi.json")


def test_generated_requests_are_answered_as_the_document_says(document, cluster):
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) >= 9
    for operation in operations:

        @seed(SEED)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case):
            response = case.call(timeout=60)
            case.validate_response(response, checks=CHECKS)

        given(case=operation.as_strategy())(ask)()
    assert cluster.shown("scheduler-1", "/health")["healthy"]
    assert "internal error" not in cluster.log("scheduler-1")


def test_the_commands_of_the_guide_print_what_it_says_and_its_program_runs(cluster, capsys):
    text = GUIDE.read_text().replace("http://127.0.0.1:8090", cluster.http_url())
    told = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        told += [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    assert len(told) >= 9
    for command, _, wanted in told:
        ran = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=120, check=True)
        assert ran.stdout.replace("\r\n", "\n").strip() == wanted.strip(), command
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, str(GUIDE), "exec"), {"urllib": urllib})
    assert capsys.readouterr().out == "1\n"
