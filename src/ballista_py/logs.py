"""Structured logs on standard `logging`: one line an event, `key=value` pairs, the node's id in each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_FIELDS = "ballista_fields"


def log_event(logger: logging.Logger, name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log the event `name` with `fields`.

    >>> log_event(logging.getLogger("ballista_py.doc"), "partitions_assigned", table="orders", moves=16)
    """
    logger.log(level, name, extra={_FIELDS: fields})


class EventFormatter(logging.Formatter):
    """`2026-11-20T21:43:27.123Z INFO scheduler-1 partitions_assigned table=orders moves=16`."""

    def __init__(self, node_id: str) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        words = [self.formatTime(record), record.levelname, self._node_id, record.getMessage().replace("\n", " ")]
        words += [f"{key}={_word(value)}" for key, value in fields.items()]
        if record.exc_info and record.exc_info[0] is not None:
            words.append(f"exception={_word(self.formatException(record.exc_info))}")
        return " ".join(words)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def configure_logging(node_id: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (standard error) in the form of `EventFormatter`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(EventFormatter(node_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _word(value: Any) -> str:
    text = str(value)
    return text if text and not any(c in ' "=\n' for c in text) else json.dumps(text, ensure_ascii=False)
