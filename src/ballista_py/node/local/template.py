"""A process that has imported what nodes consist of, and becomes one again and again: a fork takes a fifth of a start.

`python -m ballista_py.node.local.template FD` serves whoever has the other end of the socket `FD`, and ends with it. It
has no thread of Python and no connection of its own, so that a fork of it is as good as a process just started.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
from typing import Any, NoReturn

import orjson

_PR_SET_NAME = 15


def main() -> None:
    """Serve until the other end of the socket is closed."""
    from ballista_py.node.allocators import settle_allocators

    settle_allocators()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    _import_all()
    gc.collect()
    gc.freeze()  # what is shared stays shared
    ended: dict[int, int] = {}
    with socket.socket(fileno=int(sys.argv[1])) as link, link.makefile("rb") as asked:
        link.sendall(b"{}\n")
        for line in asked:
            said = orjson.loads(line)
            answer = {"code": _ended(said["pid"], ended)} if "pid" in said else {"pid": _started(said, link)}
            link.sendall(orjson.dumps(answer) + b"\n")
    os._exit(0)  # what was imported has nothing to finish


def _import_all() -> None:
    import ballista_py.node.__main__
    import ballista_py.node.cli.node_words
    import ballista_py.node.executor.executor
    import ballista_py.node.process
    import ballista_py.node.scheduler.scheduler  # noqa: F401


def _started(said: dict[str, Any], link: socket.socket) -> int:
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        link.detach()
        _become(said, parent_pid)
    return pid


def _become(said: dict[str, Any], parent_pid: int) -> NoReturn:
    """Be the node, from its first line to its last."""
    code = 1
    try:
        os.setsid()
        os.close(int(sys.argv[1]))
        with open(said["log"], "ab") as log, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(said["folder"])
        os.environ["TMPDIR"] = said["temporary"]
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _call_it(said["name"])
        sys.argv = ["ballista-py", *said["arguments"], "--parent-pid", str(parent_pid)]
        from ballista_py.node.__main__ import main as run

        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call_it(name: str) -> None:
    """Let `top` and `ps -o comm` tell it from others."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _ended(pid: int, ended: dict[int, int]) -> int | None:
    """How a process ended that was made here, negative by a signal; None while it runs. The system tells it once."""
    if pid not in ended:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == 0:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


if __name__ == "__main__":
    main()
