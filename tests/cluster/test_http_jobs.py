"""Jobs over HTTP, at a real cluster: queued, shown, fetched in each form, ended; each client's own alone."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
TOKENS = {"ada": "ada-ada-ada-ada-ada-1", "bob": "bob-bob-bob-bob-bob-1"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("".join(f"{name}: {token}\n" for name, token in TOKENS.items()))
    return file


@pytest.fixture(scope="module")
def cluster(tokens):
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=2, executors=1, token=TOKENS["ada"], node_options=options) as found:
        yield found


def asked(cluster, method, path, body=None, client="ada", node="scheduler-1", **headers):
    """Status and bytes of an answer."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {} if body is None else {"content-type": "application/json"}
    said = {
        "authorization": f"Bearer {TOKENS[client]}",
        **kind,
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    request = urllib.request.Request(cluster.http_url(node) + path, data, said, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ended(cluster, job_id, **more):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status, body = asked(cluster, "GET", f"/v1/jobs/{job_id}", **more)
        assert status == 200, body
        if json.loads(body)["state"] not in ("PENDING", "RUNNING"):
            return json.loads(body)
        time.sleep(0.1)
    raise AssertionError("it does not end")


def test_a_job_is_queued_shown_and_fetched_at_any_scheduler_in_each_form(cluster):
    status, body = asked(
        cluster, "POST", "/v1/jobs", {"sql": "select ? + 1 as n", "parameters": [41], "name": "sum"}
    )
    assert status == 202, body
    job_id = json.loads(body)["job_id"]
    shown = ended(cluster, job_id, node="scheduler-2")
    assert (shown["state"], shown["chunks"], shown["name"]) == ("SUCCEEDED", 1, "sum")
    path = f"/v1/jobs/{job_id}/results"
    assert json.loads(asked(cluster, "GET", path)[1]) == [{"n": 42}]
    assert json.loads(asked(cluster, "GET", f"{path}?chunk=0", node="scheduler-2")[1]) == [{"n": 42}]
    arrow = asked(cluster, "GET", path, accept="application/vnd.apache.arrow.stream")[1]
    assert pa.ipc.open_stream(arrow).read_all().to_pylist() == [{"n": 42}]
    assert asked(cluster, "GET", path, accept="text/csv")[1] == b'"n"\r\n42\r\n'
    assert job_id in {row["job_id"] for row in json.loads(asked(cluster, "GET", "/v1/jobs?state=SUCCEEDED")[1])}
    assert json.loads(asked(cluster, "DELETE", f"/v1/jobs/{job_id}")[1])["state"] == "CLOSED"
    assert asked(cluster, "GET", path)[0] == 409


def test_a_job_is_cancelled_and_posted_again_is_the_same(cluster):
    slow = {"sql": "select count(*) from range(60000) a, range(60000) b where (a.range * b.range) % 7 = 3"}
    first = json.loads(
        asked(cluster, "POST", "/v1/jobs", {**slow, "job_id": "67e55044-10b1-426f-9247-bb680e5fe0c8"})[1]
    )
    again = asked(cluster, "POST", "/v1/jobs", {**slow, "job_id": first["job_id"]}, node="scheduler-2")
    assert json.loads(again[1])["job_id"] == first["job_id"]
    assert asked(cluster, "POST", "/v1/jobs", {"sql": "select 1", "job_id": first["job_id"]})[0] == 409
    assert json.loads(asked(cluster, "DELETE", f"/v1/jobs/{first['job_id']}")[1])["state"] == "CANCELLED"
    assert asked(cluster, "GET", f"/v1/jobs/{first['job_id']}/results")[0] == 409


def test_another_client_finds_no_such_job(cluster):
    job_id = json.loads(asked(cluster, "POST", "/v1/jobs", b"select 'secret' as s", content_type="text/plain")[1])[
        "job_id"
    ]
    ended(cluster, job_id)
    for method, path in (("GET", ""), ("GET", "/results"), ("DELETE", "")):
        assert asked(cluster, method, f"/v1/jobs/{job_id}{path}", client="bob")[0] == 404
    assert json.loads(asked(cluster, "GET", "/v1/jobs", client="bob")[1]) == []


def test_the_table_of_jobs_has_those_of_the_client_that_asks(cluster):
    submitted = {"sql": "select 'secret' as s", "name": "of ada", "priority": 7}
    job_id = json.loads(asked(cluster, "POST", "/v1/jobs", submitted)[1])["job_id"]
    failed = json.loads(asked(cluster, "POST", "/v1/jobs", {"sql": "select error('no') as s"})[1])["job_id"]
    shown = ended(cluster, job_id)
    ended(cluster, failed)

    def rows(client, node):
        said = {
            "sql": "select * from runtime.jobs where job_id in (?, ?) order by sql",
            "parameters": [job_id, failed],
        }
        return json.loads(asked(cluster, "POST", "/v1/sql", said, client=client, node=node)[1])

    for node in ("scheduler-1", "scheduler-2"):
        row, other = rows("ada", node)
        assert (row["job_id"], row["name"], row["state"], row["priority"]) == (job_id, "of ada", "SUCCEEDED", 7)
        same = "sql", "scheduler", "attempt", "chunks", "rows", "bytes"
        assert {name: row[name] for name in same} == {name: shown[name] for name in same}
        assert (row["error_code"], row["error_message"], row["dialect"]) == (None, None, None)
        assert row["submitted_at"] <= row["started_at"] <= row["ended_at"]
        assert (other["state"], other["chunks"]) == ("FAILED", 0)
        assert (other["error_code"], "no" in other["error_message"]) == ("planning.sql", True)
        assert rows("bob", node) == []
    assert cluster.sql(f"select state from runtime.jobs where job_id = '{job_id}'").to_pylist() == [
        {"state": "SUCCEEDED"}
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"), [
        ("POST", "/v1/jobs", {"sql": "selekt"}, 400), ("POST", "/v1/jobs", {"sql": ""}, 400),
        ("POST", "/v1/jobs", {}, 400), ("POST", "/v1/jobs", {"sql": "select 1", "odd": 1}, 400),
        ("POST", "/v1/jobs", {"sql": "select 1", "priority": 10}, 400), ("POST", "/v1/jobs", b"{", 400),
        ("POST", "/v1/jobs", {"sql": "select 1", "job_id": "1"}, 400), ("GET", "/v1/jobs?state=odd", None, 400),
        ("GET", "/v1/jobs/1", None, 400), ("GET", f"/v1/jobs/{'0' * 32}", None, 404),
        ("GET", f"/v1/jobs/{'0' * 32}/results?chunk=-1", None, 400),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_status(cluster, method, path, body, status):
    found, said = asked(cluster, method, path, body)
    assert (found, set(json.loads(said)) >= {"error"}) == (status, True), said


def test_a_job_ends_when_its_clients_token_is_taken_away(cluster, tokens):
    slow = {"sql": "select count(*) from range(60000) a, range(60000) b where (a.range * b.range) % 7 = 3"}
    job_id = json.loads(asked(cluster, "POST", "/v1/jobs", slow, client="bob")[1])["job_id"]
    deadline, before = time.monotonic() + 60, tokens.read_text()
    while json.loads(asked(cluster, "GET", f"/v1/jobs/{job_id}", client="bob")[1])["state"] != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    tokens.write_text("".join(line for line in before.splitlines(True) if "bob" not in line))
    try:
        while asked(cluster, "GET", f"/v1/jobs/{job_id}", client="bob")[0] != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(5)
    finally:
        tokens.write_text(before)
    while asked(cluster, "GET", f"/v1/jobs/{job_id}", client="bob")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    found = ended(cluster, job_id, client="bob")
    assert found["state"] == "FAILED", found
    assert "its tokens were taken away" in json.dumps(found)
