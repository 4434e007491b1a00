"""Why Spark failed, in one line: no Java stack, no line noise."""

from __future__ import annotations

import re

from ballista_py.one_line import ends_of

MAX_REASON_CHARACTERS = 500

_CLASS = r"(?:[\w$]+\.)+[\w$]+(?:Exception|Error|Throwable)"
_CAUSE = re.compile(rf"^(?:[ \t]*+Caused by: |: )({_CLASS})(?:: (.*))?$", re.MULTILINE)
_TASK = re.compile(rf"^Job aborted due to stage failure: .*? executor \w+\): (?:{_CLASS}: )?")
_NOISE = re.compile(r"^\[[A-Z_0-9.]+\] | ?SQLSTATE: \w+$")


def reason_of(error: BaseException) -> str:
    """What happened, in one line: the outermost message of Spark and, where it says more, the innermost one.

    >>> reason_of(ValueError("[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03"))
    'Path does not exist: file:/a.'
    """
    text = str(error)
    messages = [_clean(message or kind.rpartition(".")[2]) for kind, message in _CAUSE.findall(text)]
    if not messages:
        messages = [_clean(text.strip().splitlines()[0]) if text.strip() else type(error).__name__]
    outer, inner = messages[0], messages[-1]
    reason = outer if inner in outer else f"{outer.rstrip('. ')}: {inner}"
    return reason if len(reason) <= MAX_REASON_CHARACTERS else reason[: MAX_REASON_CHARACTERS - 1] + "…"


def _clean(message: str) -> str:
    return _NOISE.sub("", _TASK.sub("", ends_of(message))).strip()
