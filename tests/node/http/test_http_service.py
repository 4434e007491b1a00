"""A scheduler asked over HTTP: real processes, real sockets, and Flight beside it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import TransportError
from ballista_py.transport.client.client import connect

pytestmark = pytest.mark.cluster
ADA, BOB, EYE = "ada-token-0123456789", "bob-token-0123456789", "eye-token-0123456789"
ARROW = "application/vnd.apache.arrow.stream"
ENDLESS = "select count(*) from range(3000000000) a(i), range(1000) b(j) where i % 7 = j % 5"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "clients").write_text(f"ada {ADA}\nbob {BOB}\n")
    (folder / "viewers").write_text(f"eye {EYE}\n")
    options = {
        "flight-tokens-file": str(folder / "clients"),
        "status-tokens-file": str(folder / "viewers"),
        "max-calls-per-client": "3",
    }
    with LocalCluster(schedulers=1, executors=1, node_options=options, token=ADA) as made:
        made.sql("create table t (id bigint, s varchar) partitioned by (bucket(2, id))")
        made.sql("insert into t select i, 'row ' || i from range(100) r(i)")
        yield made


@pytest.fixture
def link(cluster):
    """A connection to the scheduler."""
    place = urlsplit(cluster.http_url())
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=120)) as made:
        yield made


@pytest.fixture
def raw(cluster):
    """A socket to the scheduler."""
    place = urlsplit(cluster.http_url())
    with socket.create_connection((place.hostname, place.port), timeout=120) as made:
        yield made


def ask(link, method, path, body=None, token=ADA, **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["Authorization"] = f"Bearer {token}"
    link.request(method, path, body, sent)
    reply = link.getresponse()
    return reply.status, reply.headers, reply.read()


def sql(link, statement, accept="application/json", token=ADA):
    body, kind = (
        (statement, "text/plain") if isinstance(statement, str) else (json.dumps(statement), "application/json")
    )
    return ask(link, "POST", "/v1/sql", body, token, content_type=kind, accept=accept)


def rows(link, statement):
    status, _, body = sql(link, statement)
    assert status == 200, body
    return json.loads(body)


def post(statement, token=ADA, accept="application/json"):
    """The bytes of a request."""
    body = statement.encode()
    head = f"POST /v1/sql HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\n"
    return f"{head}Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def running(cluster, text):
    """What runs with this text, as somebody sees it who may see everything."""
    place = urlsplit(cluster.http_url())
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=120)) as made:
        tasks = json.loads(ask(made, "GET", "/v1/tasks", token=EYE)[2])
    return [task for task in tasks if task["outcome"] == "running" and text in task["text"]]


def wait_until(condition, seconds=60):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)
    return found


@pytest.mark.turn(3)
def test_every_kind_of_statement_is_answered(link):
    assert rows(link, "select count(*) as n from t") == [{"n": 100}]
    assert rows(link, "create table k (id bigint, v varchar) partitioned by (bucket(2, id))") == [{"affected": 0}]
    insert = {"sql": "insert into k values ($id, $v)", "parameters": {"id": 7, "v": "x'y"}, "token": "one word"}
    assert rows(link, insert) == rows(link, insert) == [{"affected": 1}]
    assert rows(link, {"sql": "select v from k where id = ?", "parameters": [7]}) == [{"v": "x'y"}]
    change = {"sql": "update k set v = ? where id = ? returning id, v", "parameters": ["z", 7], "atomic": True}
    assert rows(link, change) == [{"id": 7, "v": "z"}]
    assert "1 of" in json.dumps(rows(link, "explain select * from t where id = 7"))
    assert {row["column_name"] for row in rows(link, "describe k")} == {"id", "v"}
    assert {"k", "t"} <= {row["name"] for row in rows(link, "show tables")}
    quoted = {"sql": "select `a b` from (select 1 as `a b`)", "dialect": "spark"}
    assert rows(link, quoted) == [{"a b": 1}]
    assert rows(link, "delete from k") == [{"affected": 1}]
    assert rows(link, "select * from k") == []


TYPES = """
select 9007199254740993::bigint as big, 18446744073709551615::ubigint as ubig,
  99999999999999999999999999999999999999::hugeint as huge, 12.50::decimal(10,2) as dec,
  0.0000001::decimal(18,7) as small, 0.1::float as f, 0.1::double as d, 'NaN'::double as nan,
  '-Infinity'::float as inf, date '2024-02-29' as day, timestamp '2024-02-29 12:00:00.5' as at,
  timestamptz '2024-02-29 12:00:00+01' as tz, time '23:59:59.000001' as clock, interval '1 month 2 days' as span,
  '\\xAA\\x00'::blob as bytes, true as yes, null as nothing, '' as empty, 'a"b,' || chr(10) || 'c' as odd,
  [1, null, 3] as list, {'a': 1, 'b': [date '2024-01-01']} as obj, map {'k': 1.5::double} as dict,
  uuid '00010203-0405-0607-0809-0a0b0c0d0e0f' as id"""
SAID = {
    "big": 9007199254740993, "ubig": 18446744073709551615, "huge": "99999999999999999999999999999999999999",
    "dec": "12.50", "small": "0.0000001", "f": 0.1, "d": 0.1, "nan": "NaN", "inf": "-Infinity", "day": "2024-02-29",
    "at": "2024-02-29T12:00:00.500000", "tz": "2024-02-29T11:00:00.000000Z", "clock": "23:59:59.000001",
    "span": "P1M2DT0S", "bytes": "qgA=", "yes": True, "nothing": None, "empty": "", "odd": 'a"b,\nc',
    "list": [1, None, 3], "obj": {"a": 1, "b": ["2024-01-01"]}, "dict": [{"key": "k", "value": 1.5}],
    "id": "00010203-0405-0607-0809-0a0b0c0d0e0f",
}  # fmt: skip


def test_every_type_is_said_exactly_in_every_form(link, cluster):
    assert rows(link, TYPES) == [SAID]
    status, headers, body = sql(link, TYPES, "application/x-ndjson")
    assert (status, headers["content-type"], json.loads(body)) == (200, "application/x-ndjson", SAID)
    _, headers, body = sql(link, TYPES, "text/csv")
    assert headers["content-type"].startswith("text/csv")
    head, _, _ = body.partition(b"\r\n")
    assert head.decode().replace('"', "").split(",") == list(SAID)
    texts = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in SAID}, strings_can_be_null=True,
                                       null_values=[""], quoted_strings_can_be_null=False)  # fmt: skip
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    read = pyarrow.csv.read_csv(pa.BufferReader(body), convert_options=texts, parse_options=parse).to_pylist()
    kept = {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in SAID.items()}
    compact = {
        n: v.replace(", ", ",").replace(": ", ":") if n in ("list", "obj", "dict") else v for n, v in kept.items()
    }
    assert read == [{n: v if v is None or isinstance(v, str) else str(v).lower() for n, v in compact.items()}]
    _, headers, body = sql(link, TYPES, ARROW)
    assert headers["content-type"] == ARROW
    found, wanted = pa.ipc.open_stream(body).read_all(), cluster.sql(TYPES)
    assert found.schema.equals(wanted.schema)
    assert found.drop_columns("nan").equals(wanted.drop_columns("nan"))  # NaN equals nothing


GUIDE = Path(__file__).parents[3] / "docs" / "guide-http.md"


def test_the_guide_says_to_the_letter_how_each_value_is_written(link):
    told = [
        [cell.strip().removeprefix("`").removesuffix("`") for cell in row.split(" | ")]
        for row in re.findall(r"^\| (`.*) \|$", GUIDE.read_text().partition("To the letter:")[2], re.MULTILINE)
        if row.count(" | ") == 2
    ]
    told = told[: [row[0] for row in told].index("map {'k': 1}") + 1]
    assert len(told) > 30
    statement = "select " + ", ".join(f"{row[0]} as c{place}" for place, row in enumerate(told))
    said = ",".join(f'"c{place}":{row[1]}' for place, row in enumerate(told))
    assert sql(link, statement, "application/x-ndjson")[2].decode() == f"{{{said}}}\n"
    _, _, rest = sql(link, statement, "text/csv")[2].decode().partition("\r\n")
    assert rest == ",".join(row[2] for row in told) + "\r\n"


def test_what_json_cannot_say_is_refused_and_arrow_can(link):
    for statement in (
        "select 1 as a, 2 as a",
        "select timestamp '200000-01-01 00:00:00' as a",
        "select timestamptz '200000-01-01 00:00:00+00' as a",
    ):
        status, _, body = sql(link, statement)
        assert (status, json.loads(body)["code"]) == (400, "planning.sql")
        assert sql(link, statement, ARROW)[0] == 200
    assert sql(link, "select 1 as a, 2 as a", "text/csv")[2] == b'"a","a"\r\n1,2\r\n'


def test_a_large_answer_is_that_of_flight(link, cluster):
    statement = "select i, i * 0.5 as d, md5(i::varchar) as s from range(2000000) r(i)"
    _, headers, body = sql(link, statement, ARROW)
    assert headers["transfer-encoding"] == "chunked"
    assert len(body) > 90 << 20
    assert pa.ipc.open_stream(body).read_all().equals(cluster.sql(statement))


def test_a_large_answer_is_not_held(cluster, raw):
    """Nothing of it is read: what waits is a few messages, and other clients are answered."""
    statement = "select i, md5(i::varchar) as s from range(20000000) r(i)"
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    raw.sendall(post(statement, accept=ARROW))
    wait_until(lambda: running(cluster, "20000000"))
    assert raw.recv(12) == b"HTTP/1.1 200"
    time.sleep(1)
    (task,) = running(cluster, "20000000")
    assert task["rows"] < 10_000_000
    assert cluster.sql("select count(*) as n from t").to_pylist() == [{"n": 100}]


def test_a_client_that_goes_away_ends_its_statement(cluster, raw):
    raw.sendall(post(ENDLESS))
    wait_until(lambda: running(cluster, "3000000000"))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    wait_until(lambda: not running(cluster, "3000000000"), 30)


def test_one_that_pipelines_and_goes_away_amid_its_answer_ends_it_too(cluster, raw):
    raw.sendall(post(ENDLESS) + post("select 1"))
    wait_until(lambda: running(cluster, "3000000000"))
    raw.close()
    wait_until(lambda: not running(cluster, "3000000000"), 30)


def test_a_client_cancels_its_own_statements_and_no_others(cluster, link, raw):
    raw.sendall(post(ENDLESS))
    (task,) = wait_until(lambda: running(cluster, "3000000000"))
    path = f"/v1/tasks/{task['task_id']}"
    assert ask(link, "DELETE", path, token=BOB)[0] == 404
    assert ask(link, "DELETE", path, token=EYE)[0] == 403
    assert running(cluster, "3000000000")
    status, _, body = ask(link, "DELETE", path)
    assert (status, json.loads(body)) == (202, {"task_id": task["task_id"]})
    reply = b""
    while not reply.endswith(b"}"):
        reply += raw.recv(1 << 16)
    assert reply.startswith(b"HTTP/1.1 400")
    assert b"the statement was cancelled" in reply
    assert ask(link, "DELETE", path)[0] == 404


def test_limits_are_shared_with_flight(cluster, link):
    host = urlsplit(cluster.http_url())
    held = []
    for _ in range(2):
        made = socket.create_connection((host.hostname, host.port), timeout=120)
        made.sendall(post(ENDLESS, BOB))
        held.append(made)
    with connect(cluster.addresses()[0], token=BOB) as client:
        wait_until(lambda: len(running(cluster, "3000000000")) == 2)
        stream = client.stream("select i, md5(i::varchar) as s from range(20000000) r(i)")
        batches = stream.batches()  # kept: one that is forgotten is cancelled
        next(batches)
        status, headers, body = sql(link, "select 1", token=BOB)
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(body)["code"] == "transport.try_later"
        assert sql(link, "select 1")[0] == 200
        stream.cancel()
    for made in held:
        made.close()
    wait_until(lambda: not running(cluster, "3000000000"), 30)


def test_an_error_amid_an_answer_is_seen_in_every_form(link, cluster):
    late = "select i, case when i = 1990000 then error('far')::bigint else i end as x from range(2000000) r(i)"
    for accept in ("application/json", "application/x-ndjson", "text/csv", ARROW):
        link.close()
        link.request(
            "POST",
            "/v1/sql",
            late,
            {"Authorization": f"Bearer {ADA}", "Content-Type": "text/plain", "Accept": accept},
        )
        reply = link.getresponse()
        assert reply.status == 200
        with pytest.raises(http.client.IncompleteRead) as broken:
            reply.read()
        end = broken.value.partial[-200:]
        if accept == "application/x-ndjson":
            assert json.loads(end.splitlines()[-1])["code"].startswith("planning")
        assert not end.endswith((b"]\n", b"\xff\xff\xff\xff\0\0\0\0"))


def test_a_statement_has_the_time_that_it_is_given(link):
    status, _, body = sql(link, {"sql": ENDLESS, "timeout": 0.5})
    assert (status, json.loads(body)["code"]) == (504, "planning.time_limit")


def test_a_token_opens_what_it_is_for(link):
    assert sql(link, "select 1", token="")[0] == 401
    assert sql(link, "select 1", token="nobody-0123456789")[0] == 401
    status, _, body = sql(link, "select 1", token=EYE)
    assert (status, json.loads(body)["code"]) == (403, "transport.unauthenticated")
    assert json.loads(body)["error"] == "this is not for a viewer: it takes the token of a client"
    assert ask(link, "POST", "/v1/sql", "select 1", token="")[1]["www-authenticate"] == "Bearer"
    for path in ("/status", "/tasks", "/v1/status", "/v1/tasks", "/v1/nodes", "/v1/datasets", "/openapi.json"):
        assert [ask(link, "GET", path, token=token)[0] for token in ("", EYE, ADA)] == [401, 200, 200], path
    for path in ("/health", "/ready"):
        assert ask(link, "GET", path, token="")[0] == 200


def test_every_path_of_the_document_asks_for_a_token_but_the_probes(link):
    document = json.loads(ask(link, "GET", "/openapi.json")[2])
    for path, methods in document["paths"].items():
        for method in methods:
            wanted = 200 if path in ("/health", "/ready") else 401
            assert ask(link, method.upper(), path.replace("{", "").replace("}", ""), token="")[0] == wanted, path


def test_the_state_of_the_cluster_is_shown(link):
    tables = {table["name"]: table for table in json.loads(ask(link, "GET", "/v1/datasets")[2])}
    assert tables["t"]["partition_by"] == ["bucket(2, id)"]
    assert tables["t"]["columns"][0] == {"name": "id", "type": "int64"}
    roles = [node["role"] for node in json.loads(ask(link, "GET", "/v1/nodes")[2])]
    assert roles == ["scheduler", "executor"]
    sql(link, "select 'find me'")
    assert "select 'find me'" in [task["text"] for task in json.loads(ask(link, "GET", "/v1/tasks")[2])]
    status, _, body = ask(link, "POST", "/v1/datasets/t/acceleration/refresh")
    assert (status, json.loads(body)) == (202, {"executors": 1})
    assert ask(link, "POST", "/v1/datasets/none/acceleration/refresh")[0] == 404
    assert ask(link, "POST", "/v1/datasets/t/acceleration/refresh", b'{"a":1}')[0] == 400


DEEP = b'{"sql": ' + b"[" * 200_000
HOSTILE = {
    "not UTF-8": (b"select '\xff'", "text/plain", 400),
    "not UTF-8 in JSON": (b'{"sql": "\xff"}', "application/json", 400),
    "another charset": (b"select 1", "text/plain; charset=utf-16", 400),
    "deep": (DEEP, "application/json", 400),
    "deep and whole": (
        b'{"sql": "select 1", "parameters": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        "application/json",
        400,
    ),
    "many values": (b'{"sql": "select 1", "parameters": [' + b"1," * 200_000 + b"1]}", "application/json", 400),
    "a huge number": (b'{"sql": "select ?", "parameters": [' + b"9" * 5_000 + b"]}", "application/json", 400),
    "beyond 64 bits": (b'{"sql": "select ?", "parameters": [9223372036854775808]}', "application/json", 400),
    "no number": (b'{"sql": "select ?", "parameters": [NaN]}', "application/json", 400),
    "a parameter beyond DOUBLE": (b'{"sql": "select ?", "parameters": [1e400]}', "application/json", 400),
    "half of a surrogate pair": (b'{"sql": "select \'\\ud800\'"}', "application/json", 400),
    "half of one in a parameter": (
        b'{"sql": "select $a", "parameters": {"a\\udc00": 1}}',
        "application/json",
        400,
    ),
    "too large a float": (b'{"sql": "select 1", "timeout": 1e999}', "application/json", 400),
    "no object": (b"[1]", "application/json", 400),
    "an unknown field": (b'{"sql": "select 1", "sqll": 1}', "application/json", 400),
    "a field twice": (b'{"sql": "select 1", "sql": "select 2"}', "application/json", 400),
    "another type": (b'{"sql": 1}', "application/json", 400),
    "nested parameter": (b'{"sql": "select ?", "parameters": [[1]]}', "application/json", 400),
    "empty": (b"", "text/plain", 400),
    "blank": (b" \n", "application/sql", 400),
    "no sql": (b"{}", "application/json", 400),
    "2 MB of text": (b"x" * 2_000_000, "text/plain", 413),
    "5 MB of JSON": (b'"' + b"x" * 5_000_000 + b'"', "application/json", 413),
    "a form": (b"sql=select+1", "application/x-www-form-urlencoded", 415),
    "no type": (b"select 1", "", 415),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_body_is_one_clear_error(link, case):
    body, kind, wanted = HOSTILE[case]
    status, _, said = ask(link, "POST", "/v1/sql", body, content_type=kind)
    assert status == wanted, said
    told = json.loads(said)
    assert set(told) == {"error", "code"}
    assert "\n" not in told["error"]
    assert sql(link, "select 1")[0] == 200


def test_what_a_client_writes_nobody_else_sees_and_values_of_parameters_stand_in_no_text(link, cluster):
    posted = {"sql": "select ? as hidden, count(*) from t", "parameters": ["value of ada"]}
    assert sql(link, posted)[0] == 200
    assert sql(link, "select nonsense_of_ada from t")[0] == 400
    job = json.loads(
        ask(link, "POST", "/v1/jobs", "select 'job of ada' as hidden, id from t", content_type="text/plain")[2]
    )
    until = time.monotonic() + 60
    while json.loads(ask(link, "GET", f"/v1/jobs/{job['job_id']}")[2])["state"] != "SUCCEEDED":
        assert time.monotonic() < until
    tables = ("runtime.task_history", "runtime.local_task_history")
    histories = [(f"select * from {name}", token) for name in tables for token in (ADA, BOB)]
    found = {one: sql(link, one[0], token=one[1])[2].decode() for one in histories}
    for token in (ADA, BOB, EYE):
        for path in ("/v1/tasks", "/tasks"):
            found[path, token] = ask(link, "GET", path, token=token)[2].decode()
    for (_, token), text in found.items():
        assert ("select ? as hidden" in text) == (token != BOB)
        assert ("nonsense_of_ada" in text) == (token != BOB)
        assert ("job of ada" in text) == (token == ADA)
        assert (job["job_id"] in text) == (token == ADA)
        assert '"ada"' in text  # that somebody worked may be known
    for text in (found["/v1/tasks", ADA], found["/v1/tasks", EYE]):
        assert "value of ada" not in text
    ran = next(t for t in json.loads(found["/v1/tasks", ADA]) if t["text"].startswith("select ? as hidden"))
    path = f"/v1/tasks/{ran['task_id']}/plan"
    plans = [ask(link, "GET", path, token=token) for token in (ADA, EYE, BOB)]
    assert [status for status, _, _ in plans] == [200, 200, 404]
    assert ["value of ada" in body.decode() for _, _, body in plans] == [True, False, False]
    told = [events(cluster, token) for token in (ADA, EYE, BOB)]
    assert ["job of ada" in text for text in told] == [True, False, False]
    assert not any("value of ada" in text for text in told)
    ended = [json.loads(ended_line(text)) for text in told]
    assert [next(t["planned"] for t in one if t["task_id"] == ran["task_id"]) for one in ended] == [
        True,
        True,
        False,
    ]
    of_job = [t["task_id"] for t in json.loads(found["/v1/tasks", ADA]) if t["job_id"]]
    assert of_job
    for task_id in of_job:
        assert ask(link, "GET", f"/v1/tasks/{task_id}/plan", token=EYE)[0] == 404
        assert not any(t["planned"] for t in ended[1] if t["task_id"] == task_id)


def events(cluster, token):
    """The first second of what fills the page."""
    place = urlsplit(cluster.http_url())
    with socket.create_connection((place.hostname, place.port), timeout=60) as link:
        head = f"GET /v1/events HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        link.sendall(head.encode())
        found = b""
        while b"event: ended" not in found or not found.endswith(b"\n\n\r\n"):
            found += link.recv(1 << 16)
    return found.decode()


def ended_line(text):
    return re.search(r"event: ended\ndata: (.*)\n", text)[1]


@pytest.mark.turn(3)
def test_bodies_that_never_end_count_among_the_calls_of_their_client_alone(link, cluster):
    place = urlsplit(cluster.http_url())
    head = (
        f"POST /v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BOB}\r\n"
        "Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{"
    )
    with ExitStack() as stack:
        begun = [stack.enter_context(socket.create_connection((place.hostname, place.port), 60)) for _ in range(7)]
        for one in begun:
            one.sendall(head.encode())
        answers = []
        for one in begun:
            one.settimeout(2)
            with suppress(TimeoutError):
                answers.append(one.recv(200))
        assert len(answers) == 1  # twice as many as may be answered are read
        assert b" 503 " in answers[0]
        assert sql(link, "select 1")[0] == 200
        assert sql(link, "select 1", token=BOB)[0] == 503
        begun[0].close()
        until = time.monotonic() + 30
        while sql(link, "select 1", token=BOB)[0] != 200:
            assert time.monotonic() < until


@pytest.mark.parametrize("path", ["/v1/sql", "/v1/jobs"])
def test_a_body_that_says_it_is_encoded_is_not_read(link, path):
    """`gzip` on a plain body was passed over."""
    for encoding, status in (("gzip", 415), ("br, gzip", 415), ("identity", None)):
        found = ask(link, "POST", path, "select 1", content_type="text/plain", content_encoding=encoding)
        assert found[0] == (status or (200 if path == "/v1/sql" else 202)), found[2]


def test_query_parameters_that_are_not_known_are_refused_by_name(link, cluster):
    job = json.loads(ask(link, "POST", "/v1/jobs", "select 1 as n", content_type="text/plain")[2])["job_id"]
    with cluster.client() as client:
        client.job(job).wait(60)
    results = f"/v1/jobs/{job}/results"
    for chunk in ("0.0", "-0", "1e0", "null", "", "+0", "0x0", "%D9%A0", "0&chunk=0"):
        status, _, body = ask(link, "GET", f"{results}?chunk={chunk}")
        assert status == 400, chunk
        assert b"chunk" in body or b"twice" in body
    for path, said in (
        (f"{results}?chunck=0", "no query parameter 'chunck' here: did you mean 'chunk'?"),
        ("/v1/jobs?sate=RUNNING", "did you mean 'state'?"),
        ("/v1/tasks?limit=1", "no query parameter 'limit' here"),
        ("/v1/nodes?%1b[31mred=1", "no query parameter 'red' here"),
        ("/v1/status?a=%ff", "the query of the address cannot be read"),
    ):
        status, _, body = ask(link, "GET", path)
        assert (status, said in json.loads(body)["error"]) == (400, True), body
    assert json.loads(ask(link, "GET", f"{results}?chunk=0")[2]) == [{"n": 1}]
    assert ask(link, "GET", "/v1/jobs?state=RUNNING")[0] == 200
    assert ask(link, "GET", "/health?from=a-balancer")[0] == 200


def test_a_job_of_a_copy_is_refused_when_it_is_submitted(link):
    for text in ("copy t from 'a.csv'", "copy (select 1) to 'a.csv'"):
        status, _, body = ask(link, "POST", "/v1/jobs", text, content_type="text/plain")
        assert (status, "COPY" in json.loads(body)["error"]) == (400, True), body


def test_a_body_that_breaks_off_is_no_fault_of_the_node(cluster):
    place = urlsplit(cluster.http_url())
    for rest in ("", "select 1", "5\r\nselec"):
        framing = "Transfer-Encoding: chunked" if rest.startswith("5") else "Content-Length: 4000"
        with socket.create_connection((place.hostname, place.port), timeout=60) as raw:
            head = (
                f"POST /v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADA}\r\nContent-Type: text/plain\r\n"
            )
            raw.sendall(f"{head}{framing}\r\n\r\n{rest}".encode())
            time.sleep(0.2)
    with cluster.client() as client:
        assert client.sql("select 1 as n").num_rows == 1
    time.sleep(0.5)
    assert "a request failed for a reason that its client is not told" not in cluster.log("scheduler-1")


def test_methods_that_are_not_answered_say_which_are(link):
    for method in ("PUT", "PATCH", "DELETE", "GET", "BREW"):
        status, headers, body = ask(link, method, "/v1/sql")
        assert status == 405, body
        assert "POST" in headers["allow"]
    status, headers, body = ask(link, "OPTIONS", "/v1/sql")
    assert (status, body) == (204, b"")
    assert not [name for name in headers if name.lower().startswith("access-control")]
    status, headers, body = ask(link, "HEAD", "/v1/nodes")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 10
    assert ask(link, "GET", "/nothing")[0] == 404


def test_a_connection_is_used_again_and_requests_may_come_ahead(raw):
    raw.sendall(post("select 1 as a") + post("selec") + post("select 2 as a"))
    said = b""
    while said.count(b"HTTP/1.1") < 3 or not said.endswith(b"0\r\n\r\n"):
        piece = raw.recv(1 << 16)
        assert piece
        said += piece
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [
        b"200",
        b"400",
        b"200",
    ]
    assert said.index(b'{"a":1}') < said.index(b'{"a":2}')


def test_http_1_0_is_refused_an_answer_that_could_look_whole(raw):
    raw.sendall(post("select 1").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert raw.recv(1 << 16).startswith(b"HTTP/1.1 505")


def test_an_executor_answers_no_statements(cluster):
    place = urlsplit(cluster.http_url("executor-1"))
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=60)) as link:
        status, _, body = ask(link, "POST", "/v1/sql", "select 1", content_type="text/plain")
        assert (status, "/v1/sql" in json.loads(body)["paths"]) == (404, False)
        assert ask(link, "GET", "/status")[0] == 200


def test_shown_still_reads_what_nodes_show(cluster):
    assert cluster.shown("scheduler-1", "/ready")["ready"]
    assert "node_tasks_active" in cluster.shown("scheduler-1", "/metrics")
    with pytest.raises(TransportError, match="404"):
        cluster.shown("executor-1", "/nothing")


def test_a_page_of_another_site_is_not_answered(link):
    status, _, body = ask(
        link, "POST", "/v1/sql", "select 1", content_type="text/plain", Origin="http://evil.example"
    )
    assert (status, json.loads(body)["code"]) == (403, "transport.unauthenticated")
