"""A real Prometheus (Debian's package, which bootstrap.py unpacks into the environment) that scrapes a cluster."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

PATIENCE_S = 90.0


def program() -> str:
    """Where it is; the test is skipped, or fails where all servers have to be there, if it is nowhere."""
    unpacked = Path(sys.prefix) / "prometheus" / "usr" / "bin" / "prometheus"
    found = str(unpacked) if unpacked.exists() else shutil.which("prometheus")
    if found is None:
        message = "Prometheus is not installed, its tests do not run: make test installs it where there is apt"
        if os.environ.get("BALLISTA_REQUIRE_SERVERS") == "1":
            pytest.fail(message)
        warnings.warn(message, stacklevel=2)
        pytest.skip(message)
    return found


class Prometheus:
    """Scrapes these addresses every second, from construction until `close`."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        scrape = {"job_name": "ballista", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML, too
        self._log = (folder / "log").open("wb")
        self._count = len(targets)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [
                program(),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, expression: str) -> list[dict]:
        """The series that an expression gives now."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{urlencode({'query': expression})}"
        with urlopen(url, timeout=30) as reply:
            said = json.load(reply)
        assert said["status"] == "success"
        return said["data"]["result"]

    def values(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """By labels, without those that the scrape adds."""
        return {
            tuple(sorted((k, v) for k, v in one["metric"].items() if k not in ("__name__", "job"))): float(
                one["value"][1]
            )
            for one in self.ask(expression)
        }

    def wait_for_scrapes(self, since_s: float, count: int = 2) -> None:
        """Until each target was scraped so often by scrapes that began after this moment (seconds since 1970)."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                window = max(1, int(time.time() - since_s) - 1)
                found = self.ask(f"count_over_time(up[{window}s]) and up == 1")
                if len(found) == self._count and all(float(one["value"][1]) >= count for one in found):
                    return
            except OSError:
                assert self._process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < until, "it did not scrape in time"
            time.sleep(0.2)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
