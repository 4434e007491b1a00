"""A standalone cluster of Spark and a server of Spark Connect, as processes of their own on the loopback interface.

They are started from the pyspark package, each with folders that nobody else uses; nothing of the driver's disk is
theirs.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from ballista_py.spark.java import find_java, make_java_home

HOME = Path(pyspark.__file__).parent
START_S = 90.0
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkServer:
    """One process of Spark, started by its class."""

    def __init__(self, folder: Path, kind: str, *words: str, **environment: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.log = folder / "log"
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
        (folder / "tmp").mkdir()
        self.environment = {
            **kept,
            "JAVA_HOME": str(make_java_home(find_java(), folder / "java")),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), kind, *words],
                stdout=out,
                stderr=out,
                cwd=folder,
                env=self.environment,
            )

    def wait_for(self, words: str) -> None:
        """Wait until the log has the words."""
        deadline = time.monotonic() + START_S
        while not re.search(words, self.log.read_text(errors="replace")):
            assert self.process.poll() is None, self.log.read_text()[-2_000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2_000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """End it with all that it has started, at once."""
        if self.process.poll() is None:
            below = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGKILL)
            for child in below:
                try:
                    child.kill()
                except psutil.NoSuchProcess:
                    continue
        self.process.wait()


class Standalone:
    """A master and its workers, of one core and a gigabyte each."""

    def __init__(self, folder: Path, workers: int, **environment: str) -> None:
        self.folder = folder
        self.environment = environment
        self.workers: list[SparkServer] = []
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        self.master = SparkServer(folder / "master", "org.apache.spark.deploy.master.Master", *words)
        self.master.wait_for("Starting Spark master")
        for _ in range(workers):
            self.add()

    def add(self) -> SparkServer:
        """Start one more worker."""
        folder = self.folder / f"worker-{len(self.workers)}"
        kind = "org.apache.spark.deploy.worker.Worker"
        host = ("127.0.0.1", "localhost")[len(self.workers) % 2]  # Spark runs no task twice on one
        words = ("--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir")
        worker = SparkServer(folder, kind, *words, str(folder / "work"), self.url, **self.environment)
        self.workers.append(worker)
        worker.wait_for("Successfully registered with master")
        return worker

    def stop(self) -> None:
        for server in (*self.workers, self.master):
            server.kill()

    def logs(self) -> str:
        """All that master, workers and executors have written."""
        return "\n".join(
            path.read_text(errors="replace")
            for path in self.folder.rglob("*")
            if path.is_file() and path.name in ("log", "stdout", "stderr")
        )


@contextmanager
def standalone(folder: Path, workers: int = 2, **environment: str) -> Iterator[Standalone]:
    """A cluster until the end of the block."""
    cluster = Standalone(folder, workers, **environment)
    try:
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def connect_server(folder: Path, port: int = 0, **conf: str) -> Iterator[tuple[str, SparkServer]]:
    """A server of Spark Connect with two cores, and its URL, until the end of the block."""
    port = port or free_port()
    said = {
        "spark.master": "local[2,4]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **conf,
    }
    words = [word for name, value in said.items() for word in ("--conf", f"{name}={value}")]
    server = SparkServer(
        folder, "org.apache.spark.deploy.SparkSubmit", *words, "--class", _CONNECT, "spark-internal"
    )
    try:
        server.wait_for("Spark Connect server started")
        yield f"sc://127.0.0.1:{port}", server
    finally:
        server.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
