"""Table servers as processes of their own, and an S3 server for them."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSECURE = "--allow-insecure-connections"


class TableServer:
    """One process, from its construction until `stop`; `said` is what it printed once it answered."""

    def __init__(self, location: str, *words: str, listen: str = "127.0.0.1:0", **environment: str) -> None:
        command = [
            sys.executable,
            "-m",
            "ballista_py.node",
            "table-server",
            location,
            "--listen",
            listen,
            "--json",
        ]
        self.process = subprocess.Popen(
            [*command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"no table server: {self.process.communicate()[1][-2_000:]}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.said = json.loads(line)
        self.url = self.said["url"]

    def stop(self) -> int:
        """Tell it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(location: str | Path, *words: str, **options: str) -> Iterator[TableServer]:
    """A table server until the end of the block."""
    server = TableServer(str(location), *(words or (INSECURE,)), **options)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """The URL of moto's server with a bucket; its requests one at a time."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Prompt(WSGIRequestHandler):
        disable_nagle_algorithm = True

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environment, start):
        with lock:
            return list(application(environment, start))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Prompt)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        client(f"http://127.0.0.1:{server.server_port}").create_bucket(Bucket=bucket)
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def client(url: str):
    """A client of that server."""
    import boto3

    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=url, **keys)
