"""Why Spark failed, in one line: no Java stack, no line noise."""

from __future__ import annotations

import re

from ballista_py.one_line import ends_of

MAX_REASON_CHARACTERS = 500

_CLASS = r"(?:[\w$]+\.)+[\w$]+(?:Exception|Error|Throwable)"
# What a parser says begins on the next line.
_CAUSE = re.compile(rf"^(?:[ \t]*+Caused by: |: )({_CLASS})(?::[ \t]*+\n?(.*))?$", re.MULTILINE)
_TASK = re.compile(rf"^Job aborted due to stage failure: .*? executor \w+\): (?:{_CLASS}: )?")
_STOPPED = re.compile(
    r"SparkContext was shut down|stopped SparkContext|SparkContext\.\w+\(\)\" is null|Answer from Java side is empty|"
    r"OutOfMemoryError"
)
_LOST_SERVER = re.compile(
    r"INVALID_HANDLE\.SESSION|SESSION_(?:NOT_FOUND|CLOSED|CHANGED)|StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|"
    r"failed to connect to all addresses|Socket closed"
)
_MISSING_PART = re.compile(
    r"No suitable driver|ClassNotFoundException|NoClassDefFoundError|DATA_SOURCE_NOT_FOUND|"
    r"Failed to find the data source"
)
_TOO_DEEP = re.compile(r"StackOverflowError|maximum recursion depth")
_NOISE = re.compile(r"^\[[A-Z_0-9.]+\] | ?SQLSTATE: \w+$")


def reason_of(error: BaseException) -> str:
    """What happened, in one line: the outermost message of Spark and, where it says more, the innermost one.

    >>> reason_of(ValueError("[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03"))
    'Path does not exist: file:/a.'
    """
    text = _text_of(error) or ""
    messages = [_clean(message or kind.rpartition(".")[2]) for kind, message in _CAUSE.findall(text)]
    if not messages:
        messages = [_clean(text.strip().splitlines()[0]) if text.strip() else type(error).__name__]
    outer, inner = messages[0], messages[-1]
    reason = outer if inner in outer else f"{outer.rstrip('. ')}: {inner}"
    return reason if len(reason) <= MAX_REASON_CHARACTERS else reason[: MAX_REASON_CHARACTERS - 1] + "…"


def is_of_a_lost_spark(error: BaseException) -> bool:
    """Whether Spark ended, or is on its way out, and the error says no more than that.

    >>> is_of_a_lost_spark(ConnectionRefusedError(111, "Connection refused")), is_of_a_lost_spark(ValueError("x"))
    (True, False)
    """
    text = _text_of(error)
    lost = isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError"
    return lost or text is None or _STOPPED.search(ends_of(text)) is not None


def is_of_a_lost_server(error: BaseException) -> bool:
    """Whether a server of Spark Connect is gone, or no longer knows the session.

    >>> is_of_a_lost_server(ValueError("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle 7 is invalid."))
    True
    """
    if type(error).__name__ in ("_InactiveRpcError", "_MultiThreadedRendezvous", "RetriesExceeded"):
        return True
    return isinstance(error, ConnectionError) or _LOST_SERVER.search(ends_of(_text_of(error) or "")) is not None


def is_of_a_missing_part(error: BaseException) -> bool:
    """Whether Spark lacks the driver, the format or the filesystem that a source needs.

    >>> is_of_a_missing_part(ValueError("java.sql.SQLException: No suitable driver"))
    True
    """
    return _MISSING_PART.search(ends_of(_text_of(error) or "")) is not None


def is_of_too_deep_a_type(error: BaseException) -> bool:
    """Whether Spark, or its Python, gave up at the nesting of a column."""
    return _TOO_DEEP.search(ends_of(_text_of(error) or "")) is not None


def _text_of(error: BaseException) -> str | None:
    """The text of an error; None for one of Java whose JVM is gone, which would have to be asked for it."""
    try:
        return str(error)
    except Exception:  # whatever py4j meets on its way to nobody
        return None


def _clean(message: str) -> str:
    return _NOISE.sub("", _TASK.sub("", ends_of(message))).strip()
