"""Traces: what a caller may say of one, and that nothing is done for those that nobody wants."""

from __future__ import annotations

import json
import logging
from io import StringIO
from threading import Thread

import pytest

from ballista_py.errors import ConfigError
from ballista_py.logs import configure_logging, log_event
from ballista_py.node.config_values import check_endpoint
from ballista_py.node.status.tasks import MAX_TEXT_CHARS, shown_text
from ballista_py.runtime import SystemRuntime
from ballista_py.traces import (
    PlainTracer,
    TraceContext,
    current_span,
    current_trace_id,
    each_within,
    read_parent,
    spanned,
    told_parent,
    within,
)
from ballista_py.work import carried

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_what_a_parent_says_is_read_and_written_the_same():
    for sampled in (True, False):
        context = TraceContext(TRACE, SPAN, sampled)
        assert read_parent(context.header()) == context
    assert read_parent(f"cc-{TRACE}-{SPAN}-01-what-later-versions-add") == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "text",
    [
        "", "00", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-01-more", f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n", f"cc-{TRACE}-{SPAN}-01-{'x' * 300}", "' or 1 = 1 --", "\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_no_parent_is_none(text):
    assert read_parent(text) is None


def test_without_a_recorder_a_span_has_ids_and_no_children():
    tracer = PlainTracer(SystemRuntime().new_id)
    span = tracer.begin("statement", TraceContext(TRACE, SPAN, True))
    assert (span.context.trace_id, span.context.sampled, span.recorded) == (TRACE, True, False)
    assert span.context.span_id != SPAN
    assert span.child("x") is span
    with within(span), spanned("store.get") as none:
        assert none is None
        assert current_span() is span
        assert told_parent() == span.context.header()
    assert told_parent() == ""


def test_rows_are_made_in_their_span_and_read_outside_of_it():
    span = PlainTracer(SystemRuntime().new_id).begin("statement")
    seen = []

    def rows():
        for number in range(2):
            seen.append(current_trace_id())
            yield number

    for _ in each_within(span, rows()):
        assert current_span() is None
    assert seen == [span.context.trace_id] * 2


def test_what_is_carried_to_another_thread_is_done_in_the_same_span():
    span, seen = PlainTracer(SystemRuntime().new_id).begin("statement"), []
    with within(span):
        call = carried(lambda _item: seen.append(current_span()))
    thread = Thread(target=call, args=(1,))
    thread.start()
    thread.join()
    assert seen == [span]


def test_a_line_of_the_log_is_an_object_with_the_trace_that_it_belongs_to():
    stream, root = StringIO(), logging.getLogger()
    before, level = root.handlers[:], root.level
    span = PlainTracer(SystemRuntime().new_id).begin("statement")
    try:
        configure_logging("s1", "INFO", stream, "json")
        log_event(logging.getLogger("ballista_py.t"), "alone", table="a\n\x1b[2Jb", count=3, event="taken")
        with within(span):
            log_event(logging.getLogger("ballista_py.t"), "traced")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    alone, traced = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (alone["event"], alone["node_id"], alone["level"], alone["count"]) == ("alone", "s1", "INFO", 3)
    assert alone["table"] == "a b"
    assert alone["fields"] == {"event": "taken"}
    assert "trace_id" not in alone
    assert traced["trace_id"] == span.context.trace_id


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("select 1", "select 1"),
        ("set s3_secret_access_key='AKIA'", "set s3_secret_access_key='***'"),
        (
            "create secret (type s3, secret 'a''b', key_id 'k')",
            "create secret (type s3, secret '***', key_id 'k')",
        ),
        ('with (password = "p w")', "with (password = '***')"),
        ("{'password': 'x', 'n': 'y'}", "{'password': '***', 'n': 'y'}"),
        ("where o_orderkey = 'a' and keyword = 'b'", "where o_orderkey = 'a' and keyword = 'b'"),
        ("password = 'cut off in the mid", "password = '***'"),
        ("from 's3://b/f?X-Amz-Signature=abc&v=1'", "from 's3://b/f?X-Amz-Signature=***&v=1'"),
        ("jdbc:postgresql://u:p@h/db", "jdbc:postgresql://***@h/db"),
    ],
)
def test_what_looks_like_a_secret_is_replaced(text, shown):
    assert shown_text(text) == shown


@pytest.mark.parametrize(
    "text", ["token" * 20_000, "a" * 100_000, "password " * 9_000, "x://" * 20_000, "?sig=" * 9_000]
)
def test_a_text_that_would_keep_patterns_busy_is_cut_first(text):
    began = SystemRuntime().monotonic_ms()
    assert len(shown_text(text)) <= MAX_TEXT_CHARS
    assert SystemRuntime().monotonic_ms() - began < 5_000


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "127.0.0.1:4317",
        "ftp://h:1",
        "http://h",
        "http://h:x",
        "http://u:p@h:1",
        "http://h:1/path",
        "http://h:1?a=b",
    ],
)
def test_an_endpoint_that_is_none_of_grpc_is_refused(endpoint):
    with pytest.raises(ConfigError, match="otlp_endpoint: write http://host:4317"):
        check_endpoint(endpoint)
