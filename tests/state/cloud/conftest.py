"""Real servers for the object stores, one of each a test run, and stores under a fresh prefix for every test.

A server that is not installed is skipped with a warning; with BALLISTA_REQUIRE_SERVERS=1 it is a failure.
`scripts/bootstrap.py dev` installs them all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from attrs import field, frozen

from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.obstore import ObstoreStore
from ballista_py.state.stores.store import open_store

pytest.register_assert_rewrite("ballista_py.testing.store_contract")

BUCKET = "bucket"
S3_KEYS = {"key": "testing", "secret": "s3cr3t-of-s3"}
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = 60.0
_NUMBERS = itertools.count()


@frozen
class Endpoint:
    """Where a server listens, and how to open a store on it, directly or through something in between."""

    kind: str
    host: str
    port: int
    keys: dict[str, str] = field(default=S3_KEYS)

    def url(self, port: int | None = None) -> str:
        return f"http://{self.host}:{port or self.port}"

    def connection(self, port: int | None = None) -> str:
        """The connection string of an Azure server."""
        return (
            "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
            f"AccountKey={AZURE_KEY};BlobEndpoint={self.url(port)}/devstoreaccount1;"
        )

    def open(self, prefix: str, *, port: int | None = None, **options):
        """The store below `prefix`, reached at `port` instead where one is given."""
        url = self.url(port)
        if self.kind == "s3":
            region = {"client_kwargs": {"region_name": "us-east-1"}}
            return open_store(f"s3://{BUCKET}/{prefix}", endpoint_url=url, **self.keys, **region, **options)
        if self.kind == "gcs":
            return open_store(f"gs://{BUCKET}/{prefix}", endpoint_url=url, token="anon", **options)
        if self.kind == "azure":
            return open_store(f"abfs://{BUCKET}/{prefix}", connection_string=self.connection(port), **options)
        from obstore.store import S3Store

        return ObstoreStore(
            S3Store(
                BUCKET,
                prefix=prefix,
                endpoint=url,
                access_key_id=S3_KEYS["key"],
                secret_access_key=S3_KEYS["secret"],
                region="us-east-1",
                client_options={"allow_http": True, "timeout": "10s"},
                retry_config={"max_retries": 0},
            )
        )


@pytest.fixture
def store_at():
    """A store of that kind, whatever listens at the port."""
    return lambda kind, port: Endpoint(kind, "127.0.0.1", port).open("p")


@pytest.fixture
def prefix() -> str:
    """A folder of the bucket that no other test uses."""
    return f"tests/{os.getpid()}-{next(_NUMBERS)}"


@pytest.fixture
def endpoint(request) -> Endpoint:
    """The server named by the test's parameter: s3, gcs, azure or obstore (on the server of s3)."""
    name = request.param
    server = request.getfixturevalue({"obstore": "s3_server"}.get(name, f"{name}_server"))
    return Endpoint(name, server.host, server.port)


@pytest.fixture(scope="session")
def s3_server():
    """moto; its requests one at a time, because its check and its write are not one step."""
    if importlib.util.find_spec("moto") is None:
        _not_there("moto")
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environment, start):
        with lock:
            return list(application(environment, start))

    class PromptHandler(WSGIRequestHandler):
        disable_nagle_algorithm = True  # else every reply in parts waits 40 ms

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=PromptHandler)
    with _served(server):
        found = Endpoint("s3", "127.0.0.1", server.server_port)
        boto3.client(
            "s3",
            endpoint_url=found.url(),
            aws_access_key_id=S3_KEYS["key"],
            aws_secret_access_key=S3_KEYS["secret"],
            region_name="us-east-1",
        ).create_bucket(Bucket=BUCKET)
        yield found


@pytest.fixture(scope="session")
def gcs_server():
    """Our stand-in; see `gcs_server.py`."""
    spec = importlib.util.spec_from_file_location("gcs_server", Path(__file__).with_name("gcs_server.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Server(BUCKET)
    with _served(server):
        yield Endpoint("gcs", "127.0.0.1", server.server_port)


@pytest.fixture(scope="session")
def azure_server():
    """Azurite."""
    from azure.storage.blob import BlobServiceClient

    program = _program("node/node_modules/.bin/azurite-blob", "azurite")
    flags = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with _running(lambda port: [program, *flags, "--blobHost", "127.0.0.1", "--blobPort", str(port)]) as port:
        found = Endpoint("azure", "127.0.0.1", port)
        with BlobServiceClient.from_connection_string(found.connection()) as client:
            client.create_container(BUCKET)
        yield found


@pytest.fixture(scope="session")
def careless_s3_server(tmp_path_factory):
    """s3rver, which ignores the conditions of writes."""
    program = _program("node/node_modules/.bin/s3rver", "s3rver")
    folder = tmp_path_factory.mktemp("s3rver")

    def command(port: int) -> list[str]:
        names = ["--allow-mismatched-signatures", "--no-vhost-buckets", "--configure-bucket", BUCKET]
        return [program, "-d", str(folder), "-a", "127.0.0.1", "-p", str(port), "-s", *names]

    with _running(command) as port:
        yield Endpoint("s3", "127.0.0.1", port, {"key": "S3RVER", "secret": "S3RVER"})


@pytest.fixture(scope="session")
def careless_gcs_server():
    """gcp-storage-emulator, which ignores the conditions of writes."""
    program = _program("servers/bin/gcp-storage-emulator", "gcp-storage-emulator")

    def command(port: int) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(port), "--in-memory", "--default-bucket", BUCKET]
        return [program, "start", *where]

    with _running(command) as port:
        yield Endpoint("gcs", "127.0.0.1", port)


@pytest.fixture
def runtime() -> SystemRuntime:
    return SystemRuntime()


@pytest.fixture
def spawn():
    """Runs a function in a thread that ends with the tests."""
    return lambda run: threading.Thread(target=run, daemon=True).start()


@contextlib.contextmanager
def _served(server):
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def _running(command):
    """A server as a process of its own on a free port; yields the port once it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"  # node may be one of ours
    process = subprocess.Popen(
        command(port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": path},
    )
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, f"{command(port)[0]} ended with code {process.returncode}"
            assert time.monotonic() < deadline, f"{command(port)[0]} does not listen"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _program(path: str, name: str) -> str:
    program = Path(sys.prefix) / path
    if not program.exists():
        _not_there(name)
    return str(program)


def _not_there(name: str) -> None:
    message = f"the server {name} is not installed, its tests do not run: make test installs it"
    if os.environ.get("BALLISTA_REQUIRE_SERVERS") == "1":
        pytest.fail(message)
    warnings.warn(message, stacklevel=2)
    pytest.skip(message)
