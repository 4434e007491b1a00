"""Who gives credentials: the same for all, a role of AWS (moto), an Iceberg REST catalog (a server of our own)."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from ballista_py.coordinator.credentials.assumed_role import AssumeRoleCredentials, session_name, session_policy
from ballista_py.coordinator.credentials.rest_catalog import RestCatalogCredentials
from ballista_py.coordinator.credentials.vendor import StaticCredentials, below
from ballista_py.errors import ConfigError, MissingExtra, SourceUnavailable, SourceUnfit
from ballista_py.logs import configure_logging
from ballista_py.principal import Principal
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret

ROLE = "arn:aws:iam::123456789012:role/reader"
ANNA = Principal("anna@example.org", ["emea"], Secret("token-of-anna"))


def revealed(credentials):
    return {name: value.reveal() for name, value in credentials.values.items()}


# everybody the same


def test_what_everybody_gets_is_for_the_place_and_does_not_expire():
    given = StaticCredentials(values={"s3.access-key-id": Secret("AKIA")}).vend("anna", "s3://b/trips")
    assert (given.location, given.valid_ms, revealed(given)) == (
        "s3://b/trips/",
        None,
        {"s3.access-key-id": "AKIA"},
    )


def test_a_credential_that_is_no_secret_is_refused():
    with pytest.raises(ConfigError, match="'a' is to be given as a Secret") as told:
        StaticCredentials(values={"a": "hunter2"})
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    "location", ["", "/a/b", "s3:///x", "s3://b/a/../c", "s3://b/./c", "s3://b/a?x=1", "s3://b/a#x"]
)
def test_what_is_no_place_or_leads_elsewhere_is_none(location):
    with pytest.raises(ConfigError, match="no location"):
        below(location)


# a role of AWS


@pytest.fixture(scope="module")
def sts():
    """The URL of moto's server, and the forms that were sent to it."""
    pytest.importorskip("moto")
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    application, sent = DomainDispatcherApplication(create_backend_app), []

    def noting(environment, start):
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        sent.append({name: value[0] for name, value in parse_qs(body.decode()).items()})
        environment["wsgi.input"] = io.BytesIO(body)
        return application(environment, start)

    server = make_server("127.0.0.1", 0, noting, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    thread.join()


def role_at(url, **options):
    keys = {"access_key_id": Secret("key"), "secret_access_key": Secret("secret")}
    return AssumeRoleCredentials(role_arn=ROLE, runtime=SystemRuntime(), endpoint=url, **keys, **options)


def test_a_role_is_taken_on_for_the_client_and_cut_down_to_reading_the_table(sts):
    url, sent = sts
    given = role_at(url, duration_s=1_200, external_id=Secret("outside")).vend(ANNA, "s3://lake/ns/trips")
    asked = sent[-1]
    assert (asked["Action"], asked["RoleArn"], asked["RoleSessionName"]) == (
        "AssumeRole",
        ROLE,
        "anna@example.org",
    )
    assert (asked["DurationSeconds"], asked["ExternalId"]) == ("1200", "outside")
    assert json.loads(asked["Policy"])["Statement"] == [
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::lake/ns/trips/*"]},
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": ["arn:aws:s3:::lake"],
            "Condition": {"StringLike": {"s3:prefix": ["ns/trips/*"]}},
        },
    ]
    values = revealed(given)
    assert values["s3.access-key-id"].startswith("ASIA")
    assert all(values[name] for name in ("s3.secret-access-key", "s3.session-token", "s3.region"))
    assert 1_190_000 < given.valid_ms <= 1_200_000
    assert abs(given.expires_at_ms - (time.time() + 1_200) * 1e3) < 5_000
    shown = f"{given!r} {given}"
    assert not any(values[name] in shown for name in ("s3.secret-access-key", "s3.session-token"))


def test_nothing_of_it_is_in_what_a_node_logs_however_much_it_is_to_log(sts):
    url, _ = sts
    before = logging.getLogger().handlers[:], logging.getLogger().level, logging.getLogger("ballista_py").level
    said = io.StringIO()
    try:
        configure_logging("scheduler-1", "DEBUG", said)
        with catalog(speaking({}, {"config": KEYS})) as (rest, _):
            texts = [*revealed(role_at(url).vend(ANNA, "s3://lake/t")).values(), *KEYS.values(), "token-of-anna"]
            rest_at(rest).vend(ANNA, "s3://lake/t")
            logging.getLogger("ballista_py.x").warning("given %s", rest_at(rest).vend(ANNA, "s3://lake/t"))
    finally:
        root = logging.getLogger()
        root.handlers[:], level, ours = before
        root.setLevel(level)
        logging.getLogger("ballista_py").setLevel(ours)
    assert "given" in said.getvalue()
    assert not any(text in said.getvalue() for text in texts if text != "us-east-1")


def test_a_service_that_is_not_there_or_refuses_is_told_apart():
    with pytest.raises(SourceUnavailable, match="STS cannot be asked") as told:
        role_at("http://127.0.0.1:9").vend(ANNA, "s3://lake/t")
    assert "secret" not in str(told.value)
    for status, code, kind in (
        (403, "AccessDenied", SourceUnfit),
        (400, "Throttling", SourceUnavailable),
        (503, "Slow", SourceUnavailable),
    ):
        body = f"<ErrorResponse><Error><Code>{code}</Code><Message>token-of-anna</Message></Error></ErrorResponse>"
        with catalog(lambda asked, status=status, body=body: (status, {}, body.encode())) as (url, _):
            with pytest.raises(kind, match=code) as told:
                role_at(url).vend(ANNA, "s3://lake/t")
            assert "token-of-anna" not in str(told.value)
    for body in (b"token-of-anna", b"<AssumeRoleResponse/>", b""):
        with catalog(lambda asked, body=body: (200, {}, body)) as (url, _):
            with pytest.raises(SourceUnavailable, match="cannot be asked") as told:
                role_at(url).vend(ANNA, "s3://lake/t")
            assert "token-of-anna" not in f"{told.value!r} {told.value.__cause__!r}"


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(MissingExtra, match=r"ballista_py\[s3\]"):
        role_at("http://127.0.0.1:9").vend(ANNA, "s3://lake/t")


def test_signs_that_stand_for_others_in_a_policy_stand_for_themselves():
    policy = json.loads(session_policy("s3://lake/a*b/$c/"))
    assert policy["Statement"][0]["Resource"] == ["arn:aws:s3:::lake/a${*}b/${$}c/*"]
    whole = json.loads(session_policy("s3a://lake/", "aws-cn"))
    assert [one["Resource"] for one in whole["Statement"]] == [
        ["arn:aws-cn:s3:::lake/*"],
        ["arn:aws-cn:s3:::lake"],
    ]
    with pytest.raises(ConfigError, match="too long"):
        session_policy(f"s3://lake/{'x' * 2_000}/")
    with pytest.raises(ConfigError, match="no location of S3"):
        session_policy("gs://lake/t/")


def test_no_two_clients_have_one_session():
    names = [
        "anna",
        "anna ",
        "an/na",
        "an-na",
        "größe",
        session_name("größe"),
        "a",
        "x" * 64,
        "x" * 65,
        "x" * 256,
        "-",
    ]
    sessions = [session_name(name) for name in names]
    assert len(set(sessions)) == len(names)
    assert all(2 <= len(name) <= 64 and name.isascii() and "/" not in name for name in sessions)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"duration_s": 60}, "900 to 43200 seconds"), ({"role_arn": "reader"}, "no role of IAM")],
)
def test_settings_that_the_service_would_not_take_are_refused(options, named):
    with pytest.raises(ConfigError, match=named):
        AssumeRoleCredentials(**{"role_arn": ROLE, "runtime": SystemRuntime(), **options})


# an Iceberg REST catalog


@contextmanager
def catalog(answer):
    """The URL of a server that answers with (status, headers, body) of `answer(handler)`, and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = answer(self)
            if self.close_connection and status == 0:
                return
            self.send_response_only(status)
            for name, value in {"Date": formatdate(usegmt=True), "Content-Length": len(body), **headers}.items():
                if value is not None:
                    self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def speaking(config, table, credentials=None, date=None):
    """A catalog that knows anna's token, and one table."""

    def answer(handler):
        headers = {} if date is None else {"Date": date}
        if handler.headers["Authorization"] != "Bearer token-of-anna":
            return 401, headers, b'{"error": {"message": "token-of-anna", "code": 401}}'
        path = handler.path.partition("?")[0]
        if path == "/v1/config":
            found = config
        elif path.endswith("/credentials") and credentials is not None:
            found = {"storage-credentials": credentials}
        elif path.endswith("/tables/trips"):
            found = table
        else:
            return 404, headers, b"{}"
        return 200, headers, json.dumps(found).encode()

    return answer


def rest_at(url, **options):
    return RestCatalogCredentials(uri=url, table="nyc.taxi.trips", runtime=SystemRuntime(), **options)


KEYS = {"s3.access-key-id": "AKIA1", "s3.secret-access-key": "hunter2"}


def test_a_catalog_is_asked_with_the_token_of_the_client_and_the_longest_prefix_counts():
    table = {
        "config": {"s3.access-key-id": "of the table"},
        "storage-credentials": [
            {"prefix": "s3://lake/", "config": {"s3.access-key-id": "wide"}},
            {"prefix": "s3://lake/ns/trips/", "config": {**KEYS, "polaris.secret": "other"}},
            {"prefix": "s3://lake/ns/trips/deeper/", "config": {"s3.access-key-id": "deep"}},
            {"prefix": 5, "config": {"s3.access-key-id": "odd"}},
        ],
    }
    config = {"defaults": {"prefix": "no"}, "overrides": {"prefix": "my/catalog"}}
    with catalog(speaking(config, table)) as (url, asked):
        vendor = rest_at(url, warehouse="w 1")
        given = vendor.vend(ANNA, "s3://lake/ns/trips")
        assert revealed(given) == KEYS
        assert vendor.vend(ANNA, "s3://lake/ns/trips/deeper/x").values["s3.access-key-id"].reveal() == "deep"
        assert vendor.vend(ANNA, "s3://lake/ns/tripsy").values["s3.access-key-id"].reveal() == "wide"
        assert revealed(vendor.vend(ANNA, "s3://elsewhere/t")) == {"s3.access-key-id": "of the table"}
    paths = [path for path, _ in asked]
    assert paths[:2] == [
        "/v1/config?warehouse=w+1",
        "/v1/my%2Fcatalog/namespaces/nyc%1Ftaxi/tables/trips?snapshots=refs",
    ]
    assert paths.count("/v1/config?warehouse=w+1") == 1
    assert {headers["X-Iceberg-Access-Delegation"] for _, headers in asked} == {"vended-credentials"}
    assert {headers["Authorization"] for _, headers in asked} == {"Bearer token-of-anna"}


def test_a_catalog_that_has_a_place_for_credentials_is_asked_there():
    config = {
        "overrides": {"namespace-separator": "%2E"},
        "endpoints": ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"],
    }
    given = [{"prefix": "s3://lake/", "config": KEYS}]
    with catalog(speaking(config, {}, given)) as (url, asked):
        assert revealed(rest_at(url).vend(ANNA, "s3://lake/t")) == KEYS
    assert asked[-1][0] == "/v1/namespaces/nyc%2Etaxi/tables/trips/credentials"


@pytest.mark.parametrize("ahead_s", [-7_200, 0, 7_200])
def test_clocks_that_differ_by_hours_do_no_harm(ahead_s):
    there = int(time.time()) + ahead_s
    config = {
        **KEYS,
        "s3.session-token-expires-at-ms": str((there + 600) * 1_000),
        "adls.sas-token-expires-at-ms.account": str((there + 900) * 1_000),
    }
    with catalog(speaking({}, {"config": config}, date=formatdate(there, usegmt=True))) as (url, _):
        given = rest_at(url).vend(ANNA, "s3://lake/t")
    assert 595_000 < given.valid_ms <= 600_000
    assert given.expires_at_ms == (there + 600) * 1_000


def test_credentials_without_an_end_are_renewed_all_the_same():
    with catalog(speaking({}, {"config": KEYS})) as (url, _):
        assert 55_000 < rest_at(url, unsaid_ms=60_000).vend(ANNA, "s3://lake/t").valid_ms <= 60_000


@pytest.mark.parametrize("said", ["soon", "", "1" * 20, "-5", "1.5", None])
def test_an_end_that_is_no_time_is_refused(said):
    table = {"config": {**KEYS, "s3.session-token-expires-at-ms": said}}
    with catalog(speaking({}, table)) as (url, _), pytest.raises(SourceUnfit, match="not when"):
        rest_at(url).vend(ANNA, "s3://lake/t")


def test_a_client_whose_token_is_not_known_is_refused_unless_the_cluster_has_one():
    with catalog(speaking({}, {"config": KEYS})) as (url, asked):
        for nobody in ("anna@example.org", Principal("anna@example.org")):
            with pytest.raises(SourceUnfit, match="not in a job"):
                rest_at(url).vend(nobody, "s3://lake/t")
        assert asked == []
        assert revealed(rest_at(url, token=Secret("token-of-anna")).vend("job", "s3://lake/t")) == KEYS


@pytest.mark.parametrize(
    ("answer", "error", "named"),
    [
        ((401, {}, b"token-of-anna"), SourceUnfit, "refuses client 'anna@example.org' .HTTP 401"),
        ((403, {}, b""), SourceUnfit, "HTTP 403"),
        ((429, {}, b""), SourceUnavailable, "busy .HTTP 429"),
        ((503, {}, b"token-of-anna"), SourceUnavailable, "busy .HTTP 503"),
        ((302, {"Location": "http://127.0.0.1:9/steal"}, b""), SourceUnfit, "HTTP 302"),
        ((200, {}, b"token-of-anna"), SourceUnfit, "no JSON"),
        ((200, {}, b"[]"), SourceUnfit, "no JSON"),
        ((200, {}, b"[" * 1_000_000), SourceUnfit, "no JSON"),
        ((200, {}, b" " * (17 << 20)), SourceUnfit, "too much"),
        ((200, {"Content-Length": 50}, b"{}"), SourceUnavailable, "cannot be asked"),
        ((200, {}, b"{}"), SourceUnfit, "no credentials for 's3://lake/t/'"),
        ((200, {}, b'{"config": {"s3.region": "x"}}'), SourceUnfit, "no credentials"),
        ((200, {}, b'{"config": [], "storage-credentials": {}}'), SourceUnfit, "no credentials"),
        ((200, {}, b'{"config": {"s3.access-key-id": 5}}'), ConfigError, "no text"),
        ((200, {}, json.dumps({"config": {f"s3.key{n}": "x" for n in range(99)}}).encode()), ConfigError, "64 values"),
        ((200, {}, json.dumps({"config": {"s3.token": "x" * 20_000}}).encode()), ConfigError, "16,384"),
    ],
)  # fmt: skip
def test_a_catalog_that_refuses_or_answers_nonsense_is_told_without_a_word_of_it(answer, error, named):
    with catalog(lambda handler: answer) as (url, asked), pytest.raises(error, match=named) as told:
        rest_at(url).vend(ANNA, "s3://lake/t")
    assert "token-of-anna" not in f"{told.value!r} {told.value.details}"
    assert all("steal" not in path for path, _ in asked)


def test_a_catalog_that_is_not_there_or_gives_byte_after_byte_is_unavailable(monkeypatch):
    with pytest.raises(SourceUnavailable, match="URLError"):
        rest_at("http://127.0.0.1:9").vend(ANNA, "s3://lake/t")
    monkeypatch.setattr("ballista_py.coordinator.credentials.rest_catalog.READING_MS", 300.0)

    def dripping(handler):
        handler.send_response_only(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        with suppress(OSError):
            for _ in range(40):
                handler.wfile.write(b" ")
                time.sleep(0.05)
        handler.close_connection = True
        return 0, {}, b""

    with catalog(dripping) as (url, _):
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match="TimeoutError"):
            rest_at(url).vend(ANNA, "s3://lake/t")
        assert time.monotonic() - began < 2


def test_a_token_that_no_header_can_hold_is_not_repeated():
    odd = Principal("anna", (), Secret("line\nbreak"))
    with (
        catalog(speaking({}, {"config": KEYS})) as (url, _),
        pytest.raises(SourceUnavailable, match="ValueError") as told,
    ):
        rest_at(url).vend(odd, "s3://lake/t")
    assert "break" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"uri": "http://catalog.example.org"}, "over https"),
        ({"uri": "ftp://localhost"}, "over https"),
        ({"uri": "https://anna:hunter2@catalog.example.org"}, "neither a user"),
        ({"table": "trips"}, "no table"),
        ({"table": "ns..trips"}, "no table"),
    ],
)
def test_an_address_to_which_no_token_is_sent_is_refused(options, named):
    with pytest.raises(ConfigError, match=named) as told:
        RestCatalogCredentials(
            **{"uri": "https://catalog", "table": "ns.trips", "runtime": SystemRuntime(), **options}
        )
    assert "hunter2" not in str(told.value)


def test_the_server_of_these_tests_speaks_so_that_pyiceberg_has_the_same_credentials():
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://lake/ns/trips"
    )
    table = {
        "metadata-location": "s3://lake/ns/trips/metadata/0.json",
        "metadata": json.loads(metadata.model_dump_json()),
        "config": {},
        "storage-credentials": [{"prefix": "s3://lake/ns/trips", "config": KEYS}],
    }
    with catalog(speaking({"defaults": {}, "overrides": {}}, table)) as (url, _):
        theirs = RestCatalog("c", uri=url, token="token-of-anna").load_table("nyc.taxi.trips").io.properties
        ours = revealed(rest_at(url).vend(ANNA, "s3://lake/ns/trips"))
    assert {name: theirs[name] for name in KEYS} == ours == KEYS
