"""The process before a port for clients: started with its sockets and nothing else of the node's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

MODULE = "ballista_py.transport.front.process"
# What else is in a node's environment may be a secret.
_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ")
_ARENAS = {"MALLOC_ARENA_MAX": "1"}


class FrontProcess:
    """One process, from its construction until `kill`. It ends when the node's end of the first socket is closed."""

    def __init__(self, connected: socket.socket, listeners: Sequence[socket.socket]) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-m", MODULE, str(connected.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[connected.fileno(), *(one.fileno() for one in listeners)],
            env={**environment, **_ARENAS},
            start_new_session=True,
            cwd="/",
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def returncode(self) -> int | None:
        """See `transport.front.front.StartedFront`."""
        return self._process.poll()

    def kill(self) -> None:
        """See `transport.front.front.StartedFront`."""
        self._process.kill()
        self._process.wait()
