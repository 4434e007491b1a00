"""Log lines: one event, one line, the node's id in each."""

import io
import logging
import re
from contextlib import suppress

import pytest

from ballista_py.errors import SqlError
from ballista_py.logs import configure_logging, log_event
from ballista_py.sql.parse.parsing import SqlglotError, parsed_one


@pytest.fixture
def stream():
    root, ours = logging.getLogger(), logging.getLogger("ballista_py")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    written = io.StringIO()
    configure_logging("executor-7", "INFO", written)
    yield written
    root.handlers[:] = handlers
    for logger, level in zip((root, ours), levels, strict=True):
        logger.setLevel(level)


def test_an_event_is_one_line_with_time_level_node_and_fields(stream):
    log_event(logging.getLogger("ballista_py.x"), "loaded", table="orders", path="a b", note='say "hi"\nthere')
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO executor-7 loaded table=orders ", line)
    assert 'path="a b" note="say \\"hi\\"\\nthere"' in line


def test_no_terminal_obeys_a_line(stream):
    log_event(logging.getLogger("ballista_py.x"), "refused", reason="\x1b[2Jgone\x9b31m", table="a\u202eb")
    logging.getLogger("ballista_py.x").warning("peer said %s", "\x1b]0;title\x07hello\r\n")
    lines = stream.getvalue().split("\n")[:-1]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "2J" not in lines[0]
    assert lines[1].rstrip().endswith("peer said hello")


def test_what_a_client_wrote_is_not_in_the_log_of_a_node(stream):
    """The parser warns with the text of a statement that it does not know, whole and as it is."""
    with suppress(SqlError, SqlglotError):
        parsed_one(
            "truncate t returning a, '\n2026-11-24T08:00:00.000Z ERROR scheduler-1 forged \x1b[31m' || repeat"
        )
    assert stream.getvalue() == ""


def test_an_exception_stays_on_the_line_of_its_event(stream):
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("ballista_py.x").exception("tick_crashed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: boom" in stream.getvalue()


def test_an_error_that_comes_again_and_again_leaves_one_traceback_and_short_lines(stream):
    for number in range(200):
        try:
            raise ValueError("boom" * 100_000 + str(number))
        except ValueError:
            logging.getLogger("ballista_py.x").exception("call_failed")
    lines = stream.getvalue().splitlines()
    assert [("Traceback" in line or "…" in line) for line in lines] == [True] + [False] * 199
    assert max(map(len, lines)) < 40_000
    assert lines[-1].endswith("call_failed exception=ValueError")


def test_errors_of_other_places_and_of_later_minutes_have_their_tracebacks(stream):
    def fail(kind):
        raise kind("boom")

    def tell(kind, later_s):
        try:
            fail(kind)
        except kind as error:
            record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), (kind, error, error.__traceback__))
            record.created += later_s
            logging.getLogger().handle(record)

    for kind, later_s in ((ValueError, 0), (KeyError, 0), (ValueError, 30), (ValueError, 61)):
        tell(kind, later_s)
    assert ["Traceback" in line for line in stream.getvalue().splitlines()] == [True, True, False, True]


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR"])
def test_libraries_do_not_write_down_what_goes_over_the_wire(stream, level):
    configure_logging("scheduler-1", level, stream)
    for name in ("hpack.hpack", "urllib3.connectionpool", "botocore.auth", "asyncio"):
        for quiet in (logging.DEBUG, logging.INFO):
            logging.getLogger(name).log(quiet, "authorization: Bearer hunter2")
    logging.getLogger("hpack.hpack").error("it broke")
    logging.getLogger("ballista_py.x").debug("of our own")
    assert "hunter2" not in stream.getvalue()
    assert "it broke" in stream.getvalue()
    assert ("of our own" in stream.getvalue()) == (level == "DEBUG")
