"""The page's files and its events at a real port: what is sent, to whom, how many, and when it ends."""

from __future__ import annotations

import http.client
import json
import re
import time
from importlib.resources import files

import pytest

from ballista_py.errors import StoreError
from ballista_py.node.http import live_streams, routes_page
from ballista_py.node.http.feed import Feed, Part
from ballista_py.node.http.routes_page import HEADERS, TYPES, PageShows
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.access import HTTP
from ballista_py.transport.security.tokens import AnyOf, StaticTokens
from ballista_py.work import current_client

ADA, BOB, EYE = "ada-ada-ada-ada-ada-1", "bob-bob-bob-bob-bob-1", "eye-eye-eye-eye-eye-1"
PATIENCE_S = 30.0
PAGE = sorted(entry.name for entry in files("ballista_py.node.http").joinpath("page").iterdir())


class Events:
    """A stream of events that is read as it comes."""

    def __init__(self, port, token="", **headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        said = {"authorization": f"Bearer {token}"} if token else {}
        self.connection.request("GET", "/v1/events", headers={**said, **headers})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status

    def next(self, name):
        """The data of the next event of that name."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and (line := self.reply.readline()):
            if line == f"event: {name}\n".encode():
                return json.loads(self.reply.readline().removeprefix(b"data: "))
        raise AssertionError(f"no {name} came")

    def rest(self):
        """All that still comes; raises if it has no end. After an event comes its empty line."""
        return self.reply.read().strip()

    def close(self):
        self.connection.close()


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "clients").write_text(f"ada {ADA}\nbob {BOB}\n")
    (tmp_path / "viewers").write_text(f"eye {EYE}\n")
    runtime = SystemRuntime()
    clients = StaticTokens(
        str(tmp_path / "clients"),
        runtime,
    )
    return tmp_path, clients, AnyOf([clients, StaticTokens(str(tmp_path / "viewers"), runtime)])


def page_of(*parts):
    shows = PageShows(node_id="n1", role="scheduler", parts=parts)
    return lambda door: routes_page.routes(shows, door, SystemRuntime())


def asked(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    return reply.status, dict(reply.getheaders()), reply.read()


def test_the_files_of_the_page_come_to_anybody_with_strict_headers_and_nothing_of_the_cluster(serve, tokens):
    _, clients, viewers = tokens
    port = serve({}, HTTP, verifier=clients, viewers=viewers, more=page_of()).port
    for path in ("/", *(f"/page/{name}" for name in PAGE)):
        status, headers, body = asked(port, path)
        assert (status, body != b"") == (200, True), path
        kind = TYPES[path.rpartition(".")[2] if "." in path else "html"]
        assert headers["content-type"] == (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= headers.items()
        assert headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    for path in (
        "/page/none.js",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page/__init__.py",
        "/page/",
        "/app.py",
    ):
        assert asked(port, path)[0] == 404, path


def test_the_page_asks_nobody_else_and_makes_no_markup_of_texts():
    for name in PAGE:
        text = files("ballista_py.node.http").joinpath("page", name).read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        ), name
        assert not re.findall(r"localStorage|document\.cookie", text), name
    index = files("ballista_py.node.http").joinpath("page", "index.html").read_text()
    assert not re.findall(r"<style|style=|\son\w+=|<script(?![^>]*src=)", index)


@pytest.mark.turn(3)
def test_what_changes_is_sent_as_it_changes_and_nothing_else(serve):
    value = {"n": 1}
    part = Part(name="figures", every_ms=0, make=lambda _: value)
    events = Events(serve({}, HTTP, more=page_of(part)).port)
    assert events.status == 200
    hello = events.next("hello")
    assert (hello["node_id"], hello["role"], hello["parts"], hello["kind"]) == (
        "n1",
        "scheduler",
        ["figures"],
        None,
    )
    assert events.next("figures") == {"n": 1}
    value["n"] = 2
    assert events.next("figures") == {"n": 2}
    assert events.next("same") == {}
    events.close()


@pytest.mark.turn(3)
def test_nobody_gets_events_without_a_token_and_each_only_what_is_his(serve, tokens):
    _, clients, viewers = tokens
    parts = (
        Part(name="all", every_ms=0, make=lambda _: "for all"),
        Part(name="own", every_ms=60_000, make=lambda _: f"of {current_client()}", of_client=True),
    )
    port = serve({}, HTTP, verifier=clients, viewers=viewers, more=page_of(*parts)).port
    assert [Events(port, token).status for token in ("", "wrong-wrong-wrong-wrong")] == [401, 401]
    ada, bob, eye = (Events(port, token) for token in (ADA, BOB, EYE))
    assert (ada.next("own"), bob.next("own")) == ("of ada", "of bob")
    assert (ada.next("same"), eye.next("hello")["kind"], eye.next("all")) == ({}, "viewer", "for all")
    eye.connection.sock.settimeout(3)
    assert eye.next("same") == {}
    for one in (ada, bob, eye):
        one.close()


def test_a_stream_ends_when_its_token_does(serve, tokens):
    folder, clients, viewers = tokens
    events = Events(serve({}, HTTP, verifier=clients, viewers=viewers, more=page_of()).port, ADA)
    assert events.next("hello")["client"] == "ada"
    (folder / "clients").write_text(f"bob {BOB}\n")
    assert events.next("bye")["code"] == "transport.unauthenticated"
    assert events.rest() == b""  # to its proper end
    events.close()


def test_a_page_of_another_site_gets_nothing(serve):
    port = serve({}, HTTP, more=page_of()).port
    assert Events(port, origin="http://evil.example").status == 403
    assert Events(port, **{"sec-fetch-site": "cross-site"}).status == 403


def test_there_are_only_so_many_streams_and_who_closes_one_makes_room(serve, monkeypatch):
    monkeypatch.setattr(live_streams, "MAX_STREAMS_OF_ONE", 2)
    port = serve({}, HTTP, more=page_of()).port
    first, second = Events(port), Events(port)
    assert [first.status, second.status] == [200, 200]
    third = Events(port)
    assert third.status == 503
    assert "close one" in json.loads(third.rest())["error"]
    first.close()
    deadline = time.monotonic() + 20
    while (again := Events(port)).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    again.close()
    second.close()


def test_streams_end_with_the_node_that_stops(serve):
    port = serve({}, HTTP, more=page_of())
    events = Events(port.port)
    events.next("hello")
    port.door.close()
    assert events.rest() == b""  # to its proper end
    assert Events(port.port).status == 503


def test_a_part_that_cannot_be_made_says_why_and_the_others_are_shown(serve):
    def fail():
        raise StoreError("the store is away")

    parts = Part(name="bad", every_ms=0, make=lambda _: fail()), Part(name="good", every_ms=0, make=lambda _: [1])
    events = Events(serve({}, HTTP, more=page_of(*parts)).port)
    assert events.next("bad") == {"error": "the store is away", "code": "store"}
    assert events.next("good") == [1]
    events.close()


def test_a_part_is_made_once_for_all_who_look_and_as_often_as_it_may_change():
    made = []
    runtime = SystemRuntime()
    often = Part(name="often", every_ms=0, make=lambda _: made.append("often") or 1)
    seldom = Part(name="seldom", every_ms=60_000, make=lambda _: made.append("seldom") or 1)
    own = Part(name="own", every_ms=60_000, make=lambda _: made.append("own") or 1, of_client=True)
    feed = Feed((often, seldom, own), runtime)
    for client in ("ada", "ada", "bob", None):
        found = feed.look(client)
        assert set(found) == ({"often", "seldom"} if client is None else {"often", "seldom", "own"})
    assert (made.count("often"), made.count("seldom"), made.count("own")) == (4, 1, 2)
