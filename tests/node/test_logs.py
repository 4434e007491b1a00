"""Log lines: one event, one line, the node's id in each."""

import io
import logging
import re

import pytest

from ballista_py.logs import configure_logging, log_event


@pytest.fixture
def stream():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    configure_logging("executor-7", "INFO", written)
    yield written
    root.handlers[:], root.level = handlers, level


def test_an_event_is_one_line_with_time_level_node_and_fields(stream):
    log_event(logging.getLogger("x"), "loaded", table="orders", path="a b", note='say "hi"\nthere')
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO executor-7 loaded table=orders ", line)
    assert 'path="a b" note="say \\"hi\\"\\nthere"' in line


def test_an_exception_stays_on_the_line_of_its_event(stream):
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("x").exception("tick_crashed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: boom" in stream.getvalue()
