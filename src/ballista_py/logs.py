"""Structured logs on standard `logging`: one line an event, `key=value` pairs, the node's id in each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from ballista_py.one_line import printable

_FIELDS = "ballista_fields"
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
        if record.exc_info and record.exc_info[0] is not None:
            raised = record.exc_info[0].__name__
            if self._is_new(_place(record.exc_info[1]), record.created):
                raised = self.formatException(record.exc_info)
                raised = raised if len(raised) <= TRACEBACK_CHARS else "…" + raised[-TRACEBACK_CHARS:]
            words.append(f"exception={_word(raised)}")
        return printable(" ".join(words))

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


def configure_logging(node_id: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (standard error) in the form of `EventFormatter`.

    Libraries that say in theirs what a client wrote say nothing: it may be long, and forge what it likes.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(EventFormatter(node_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUOTE_CLIENTS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _place(error: BaseException | None) -> tuple[str, str, int]:
    """What was raised and where: the same for each call that fails for the same reason."""
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return type(error).__name__, *where


def _word(value: Any) -> str:
    text = str(value)
    return text if text and not any(c in ' "=\n' for c in text) else json.dumps(text, ensure_ascii=False)
