"""What the HTTP port decides without a socket: statuses, bodies, forms, callers."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ballista_py import errors
from ballista_py.errors import BallistaError, InvalidData, SqlError, Unauthenticated
from ballista_py.node.http.callers import HttpCallers, require_own_site
from ballista_py.node.http.errors import HttpRefused, error_reply
from ballista_py.node.http.forms import FORMS, form_for
from ballista_py.node.http.sql_request import MAX_JSON_BYTES, MAX_TEXT_BYTES, max_body_bytes, read_statement
from ballista_py.node.json_values import json_column
from ballista_py.transport.security.access import Access, Caller
from ballista_py.transport.statuses import status_of


def classes(kind=BallistaError):
    yield kind
    for below in kind.__subclasses__():
        yield from classes(below)


@pytest.mark.parametrize("kind", sorted(set(classes()), key=lambda kind: kind.code))
def test_every_error_of_the_tree_has_a_status_and_one_line(kind):
    reply = error_reply(kind("one\nline of /etc/pki/key.pem"))
    said = json.loads(reply.body)
    assert set(said) == {"error", "code"}
    assert said["code"] == kind.code
    assert "\n" not in said["error"]
    # A 4xx says that the sender has to change something, and 408 would be sent again by clients.
    wrong_of_sender = issubclass(
        kind, (errors.PlanningError, errors.WriteError, errors.ConfigError, InvalidData, Unauthenticated)
    )
    passing = (errors.TimeLimit, errors.PartitionsUnassigned, errors.MissingExtra)
    assert (400 <= status_of(kind("x")).http < 500) or not wrong_of_sender or issubclass(kind, passing)
    assert status_of(kind("x")).http != 408
    assert ("Retry-After" in reply.headers) == (reply.status == 503)
    assert ("WWW-Authenticate" in reply.headers) == (reply.status == 401)


def test_an_error_outside_of_the_tree_tells_its_class_alone(caplog):
    reply = error_reply(RuntimeError("secret"))
    assert (reply.status, json.loads(reply.body)) == (
        500,
        {"error": "internal error (RuntimeError)", "code": "error"},
    )
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("text/*", "text/csv; charset=utf-8; header=present"),
        ("application/json;q=0.2, application/x-ndjson;q=0.9", "application/x-ndjson"),
        ("application/ndjson", "application/x-ndjson"),
        ("application/json;q=0, */*", "application/x-ndjson"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("TEXT/CSV", "text/csv; charset=utf-8; header=present"),
    ],
)
def test_the_form_is_the_one_that_is_wanted_most(accept, wanted):
    assert form_for(accept).media_type == wanted


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "application/json;q=x", "application/json;q=nan"]
)
def test_no_form_is_given_to_who_wants_none_of_them(accept):
    with pytest.raises(HttpRefused, match="application/x-ndjson"):
        form_for(accept)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("sizes", [(), (0,), (2, 0, 1)])
def test_every_form_is_written_a_batch_at_a_time(name, sizes):
    form = FORMS[name]()
    schema = pa.schema({"a": pa.int64(), "s": pa.string()})
    batches = [pa.record_batch({"a": list(range(n)), "s": ["x"] * n}, schema=schema) for n in sizes]
    body = form.begin(schema) + b"".join(map(form.rows, batches)) + form.end()
    wanted = [row for batch in batches for row in batch.to_pylist()]
    if name == "application/json":
        assert json.loads(body) == wanted
    elif name == "application/x-ndjson":
        assert [json.loads(line) for line in body.splitlines()] == wanted
    elif name == "text/csv":
        assert body.decode().splitlines() == ['"a","s"', *(f'{row["a"]},"x"' for row in wanted)]
    else:
        assert pa.ipc.open_stream(body).read_all().to_pylist() == wanted


def test_a_body_is_read_with_all_that_it_says():
    body = {"sql": "select ?", "parameters": [1], "dialect": "spark", "engine": "auto", "timeout": 1.5, "token": "t",
            "atomic": True}  # fmt: skip
    posted = read_statement("application/json; charset=UTF-8", json.dumps(body).encode())
    assert (posted.statement.query, posted.statement.dialect) == ("select ?", "spark")
    assert posted.statement.parameters.to_pylist() == [{"1": 1}]
    assert (posted.engine, posted.timeout_ms, posted.token, posted.atomic) == ("auto", 1_500, "t", True)
    assert "token" not in repr(posted).replace("atomic", "")
    assert (
        max_body_bytes("Text/Plain; x=y") == MAX_TEXT_BYTES < MAX_JSON_BYTES == max_body_bytes("application/json")
    )


@pytest.mark.parametrize("value", [None, True, 0, -(2**63), 2**63 - 1, 0.5, "a", ""])
def test_a_parameter_keeps_its_value(value):
    posted = read_statement(
        "application/json", json.dumps({"sql": "select $a", "parameters": {"a": value}}).encode()
    )
    assert posted.statement.parameters.to_pylist() == [{"$a": value}]


WRONG = {
    "timeout": [[], "x", -1, 0, True],
    "engine": [[], 1, "x" * 2_000],
    "dialect": [{}, 1, "x" * 2_000],
    "token": [[], 1, "x" * 2_000],
    "atomic": ["yes", 1, []],
    "parameters": ["x", 1, True],
    "sql": [[], 1, True],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG.items() for value in values]
)
def test_a_field_of_another_kind_is_named(field, value):
    with pytest.raises((InvalidData, SqlError), match=field):
        read_statement("application/json", json.dumps({"sql": "select 1", field: value}).encode())


class Known:
    def __init__(self, **tokens):
        self.tokens = tokens

    def verify(self, token):
        if token not in self.tokens:
            raise Unauthenticated("nobody")
        return self.tokens[token]


CLIENT, VIEWER = ("client",), ("client", "viewer")


@pytest.mark.parametrize(
    ("clients", "viewers", "who", "token", "wanted"),
    [
        (None, None, VIEWER, "", Caller("h")),
        (None, None, CLIENT, "", Caller("h")),
        (None, Known(), CLIENT, "", Caller("h")),
        (None, Known(), VIEWER, "c", None),
        (None, Known(), ("anyone",), "", Caller("h", "anyone")),
        (Known(c="ada"), Known(c="ada", v="eye"), CLIENT, "c", Caller("ada", "client")),
        (Known(c="ada"), Known(c="ada", v="eye"), VIEWER, "c", Caller("ada", "client")),
        (Known(c="ada"), Known(c="ada", v="eye"), VIEWER, "v", Caller("viewer eye", "viewer")),
        (Known(c="ada"), Known(c="ada", v="eye"), CLIENT, "v", Caller("viewer eye", "viewer")),
        (Known(c="ada"), Known(c="ada", v="eye"), CLIENT, "", None),
        (Known(c="ada"), Known(c="ada"), VIEWER, "x", None),
    ],
)
def test_who_asks_is_known_by_the_token_that_the_verb_needs(clients, viewers, who, token, wanted):
    callers = HttpCallers(clients, viewers)
    if wanted is None:
        with pytest.raises(Unauthenticated):
            callers.caller(who, f"Bearer {token}", "h")
        return
    found = callers.caller(who, f"Bearer {token}" if token else "", "h")
    assert found == wanted
    if found.kind == "viewer" and who == CLIENT:
        with pytest.raises(Unauthenticated):
            Access("http", {"POST /v1/sql": CLIENT}).check("POST /v1/sql", found)


OWN, OTHER = "http://10.0.0.7:8090", "http://evil.example"


@pytest.mark.parametrize(
    ("origin", "fetched", "host", "is_proved", "is_answered"),
    [
        ("", "", "node.example:8090", False, True),
        (OWN, "same-origin", "10.0.0.7:8090", False, True),
        ("", "same-origin", "localhost:8090", False, True),
        ("", "none", "[::1]:8090", False, True),
        (OTHER, "cross-site", "10.0.0.7:8090", False, False),
        (OTHER, "", "10.0.0.7:8090", True, False),
        ("null", "", "10.0.0.7:8090", False, False),
        ("", "cross-site", "10.0.0.7:8090", True, False),
        # A page whose own name is now that of the node's address.
        ("http://evil.example:8090", "same-origin", "evil.example:8090", False, False),
        ("", "same-origin", "evil.example:8090", False, False),
        ("https://node.example:8090", "same-origin", "node.example:8090", True, True),
    ],
)
def test_pages_of_other_sites_are_not_answered(origin, fetched, host, is_proved, is_answered):
    if is_answered:
        require_own_site(origin, fetched, host, is_proved)
    else:
        with pytest.raises(HttpRefused) as refused:
            require_own_site(origin, fetched, host, is_proved)
        assert refused.value.status == 403


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_the_ends_of_time_are_texts_that_read_back(unit, zone):
    numbers = pa.array([2**63 - 1, None, -(2**63 - 1), 0], pa.int64())
    column = pa.Array.from_buffers(pa.timestamp(unit, zone), 4, numbers.buffers())
    *ends, epoch = json_column(column)
    assert ends == ["infinity", None, "-infinity"]
    assert epoch.startswith("1970-01-01T00:00:00")
    assert epoch.endswith("Z") == (zone is not None)
    assert json_column(pa.array([2**31 - 1, 1 - 2**31], pa.int32()).cast(pa.date32())) == ["infinity", "-infinity"]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_moment_beyond_what_arrow_can_write_is_refused_with_and_without_a_zone(zone):
    far = pa.Array.from_buffers(pa.timestamp("us", zone), 1, pa.array([6 * 10**18], pa.int64()).buffers())
    with pytest.raises(SqlError, match="CAST it to VARCHAR"):
        json_column(far)


def test_what_is_said_of_a_long_name_is_short():
    said = error_reply(SqlError("there is no table '" + "x" * 500_000 + "'"))
    assert said.status == 400
    assert len(said.body) < 1_100
