"""Node processes out of a template: asked for here, made there (`template.py`). Linux only."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from attrs import define, field

from ballista_py.runtime import SystemRuntime

# Of coverage, which begins with a process: each node is a start of its own then.
_OF_STARTS = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COV_CORE_SOURCE")
_OF_THE_MOMENT = ("PYTEST_CURRENT_TEST", "PWD", "OLDPWD")  # nothing that is imported reads them


@define(eq=False)
class Template:
    """The template of this process, started with the first node. Safe to share between threads."""

    _lock: Any = field(factory=lambda: SystemRuntime().lock(), init=False)
    _process: Any = field(default=None, init=False)
    _link: socket.socket | None = field(default=None, init=False)
    _answers: Any = field(default=None, init=False)
    _environment: Mapping[str, str] = field(factory=dict, init=False)
    _of: tuple[int, int] = field(default=(0, 0), init=False)  # this process, and the template

    def start(self, name: str, arguments: Sequence[str], log: Path, temporary: Path) -> ForkedNode | None:
        """A node of these arguments; None where one is to be started anew instead.

        That is so where a fork would not be the same, as under other variables than the template was started with, and
        where the template does not answer.
        """
        if not sys.platform.startswith("linux") or any(name in os.environ for name in _OF_STARTS):
            return None
        with self._lock:
            asked = {
                "name": name,
                "arguments": list(arguments),
                "log": str(log.absolute()),
                "folder": os.getcwd(),
                "temporary": str(temporary.absolute()),
            }
            try:
                if not self._is_there():
                    return None
                return ForkedNode(self, self._said(asked)["pid"], self._of[1])
            except (OSError, ValueError, KeyError):
                self._let_go()
                return None

    def ended(self, pid: int, template: int) -> int | None:
        """How a node of that template ended; None while it runs. One whose template has gone was killed with it."""
        with self._lock:
            if template == self._of[1] and os.getpid() == self._of[0]:
                with suppress(OSError, ValueError):
                    code: int | None = self._said({"pid": pid})["code"]
                    return code
        return -signal.SIGKILL if has_ended(pid, 0.0) else None

    def _is_there(self) -> bool:
        """Have a template; whether it has the variables that there are now. Raises `OSError` and `ValueError`.

        It is never exchanged for another one: its nodes end with it.
        """
        now = {name: value for name, value in os.environ.items() if name not in _OF_THE_MOMENT}
        if self._link is not None and self._of[0] == os.getpid():
            return self._environment == now
        self._let_go()
        mine, its = socket.socketpair()
        with its:
            command = [sys.executable, "-m", "ballista_py.node.local.template", str(its.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(its.fileno(),)
            )
        self._link, self._answers, self._environment = mine, mine.makefile("rb"), now
        self._of = os.getpid(), self._process.pid
        orjson.loads(self._answers.readline())
        return True

    def _said(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._link is not None
        self._link.sendall(orjson.dumps(asked) + b"\n")
        answer: dict[str, Any] = orjson.loads(self._answers.readline())
        return answer

    def _let_go(self) -> None:
        """The template ends with its socket, and its nodes with it."""
        if self._link is not None:
            self._answers.close()
            self._link.close()
        self._link = None


TEMPLATE = Template()


@define(eq=False)
class ForkedNode:
    """A process as `subprocess.Popen` shows one."""

    _template: Template
    pid: int
    _made_by: int
    returncode: int | None = field(default=None, init=False)

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        if self.returncode is None:
            self.returncode = self._template.ended(self.pid, self._made_by)
        return self.returncode

    def kill(self) -> None:
        """`kill -9`, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, once it has. Raises `subprocess.TimeoutExpired`."""
        if self.poll() is None and not has_ended(self.pid, timeout):
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code


def has_ended(pid: int, within_s: float | None) -> bool:
    """Whether a process ends in time (None: whenever it does), though nobody has asked how it did."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)
