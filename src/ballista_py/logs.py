"""Structured logs on standard `logging`: one line an event, `key=value` pairs or an object, the node's id in each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from ballista_py.one_line import printable
from ballista_py.traces import current_trace_id

_FIELDS = "ballista_fields"
OURS = "ballista_py"
QUOTE_CLIENTS = ("sqlglot",)
TRACEBACK_EVERY_S = 60.0
TRACEBACK_CHARS = 16_000
TRACEBACK_PLACES = 64


def log_event(logger: logging.Logger, name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log the event `name` with `fields`.

    >>> log_event(logging.getLogger("ballista_py.doc"), "partitions_assigned", table="orders", moves=16)
    """
    logger.log(level, name, extra={_FIELDS: fields})


class EventFormatter(logging.Formatter):
    """`2026-11-20T21:43:27.123Z INFO scheduler-1 partitions_assigned table=orders moves=16`.

    The traceback of an error comes once a minute for each place that raises it: whoever can provoke one must not fill
    the disk with it. In between the line has the class of the error alone.
    """

    def __init__(self, node_id: str) -> None:
        super().__init__()
        self._node_id = node_id
        self._told_s: dict[tuple[str, str, int], float] = {}

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        words = [self.formatTime(record), record.levelname, self._node_id, record.getMessage().replace("\n", " ")]
        words += [f"{key}={_word(value)}" for key, value in fields.items()]
        raised = self._raised(record)
        if raised:
            words.append(f"exception={_word(raised)}")
        return printable(" ".join(words))

    def _raised(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        if not self._is_new(_place(record.exc_info[1]), record.created):
            return record.exc_info[0].__name__
        raised = self.formatException(record.exc_info)
        return raised if len(raised) <= TRACEBACK_CHARS else "…" + raised[-TRACEBACK_CHARS:]

    def _is_new(self, place: tuple[str, str, int], now_s: float) -> bool:
        told_s = self._told_s.get(place)
        if told_s is not None and now_s - told_s < TRACEBACK_EVERY_S:
            return False
        if len(self._told_s) >= TRACEBACK_PLACES:
            self._told_s = {one: at for one, at in self._told_s.items() if now_s - at < TRACEBACK_EVERY_S}
        if len(self._told_s) >= TRACEBACK_PLACES:
            return False
        self._told_s[place] = now_s
        return True

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class JsonFormatter(EventFormatter):
    """Each line an object: `time`, `level`, `node_id`, `event`, the event's own fields, `trace_id` if there is one.

    A field of the event that is called as one of these stands under `fields`, which is there for nothing else.
    """

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "node_id": self._node_id,
            "event": printable(record.getMessage()),
        }
        trace_id = current_trace_id()
        if trace_id:
            said["trace_id"] = trace_id
        raised = self._raised(record)
        if raised:
            said["exception"] = raised
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        taken = {key: _plain(value) for key, value in fields.items() if key in said}
        said |= {key: _plain(value) for key, value in fields.items() if key not in said}
        return json.dumps({**said, "fields": taken} if taken else said, ensure_ascii=True)


def configure_logging(
    node_id: str, level: str = "INFO", stream: TextIO | None = None, form: Literal["text", "json"] = "text"
) -> None:
    """Send every log line of this process to `stream` (standard error), as `EventFormatter` or `JsonFormatter`.

    `level` is that of our own lines. Libraries say warnings and errors alone: below that they write down what goes over
    the wire, such as the headers with the tokens of clients.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter((JsonFormatter if form == "json" else EventFormatter)(node_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.getLogger(OURS).setLevel(level.upper())
    root.setLevel(max(logging.getLogger(OURS).level, logging.WARNING))
    for name in QUOTE_CLIENTS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _place(error: BaseException | None) -> tuple[str, str, int]:
    """What was raised and where: the same for each call that fails for the same reason."""
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return type(error).__name__, *where


def _plain(value: Any) -> Any:
    """A number as itself, all else as a text of one line."""
    return value if isinstance(value, bool | int | float) or value is None else printable(str(value))


def _word(value: Any) -> str:
    text = str(value)
    return text if text and not any(c in ' "=\n' for c in text) else json.dumps(text, ensure_ascii=False)
