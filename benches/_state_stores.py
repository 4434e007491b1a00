"""Get and replace cycles a second on S3, through our store, bare boto3 and bare obstore.

One moto server in a process of its own serves all; each round runs every peer in turn on an object of its own.
Printed are the median cycles a second, the ratio to boto3, and the processor time that a cycle costs in the
client, because the server's own time hides differences that are larger than they look.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3
from botocore.config import Config
from obstore.store import S3Store
from rich.console import Console
from rich.table import Table

from ballista_py.state.stores.obstore import ObstoreStore
from ballista_py.state.stores.store import ConditionalStore, open_store

BUCKET = "bench"
BODY_BYTES = 4_096
Cycle = Callable[[int], None]


def run(rounds: int, cycles: int) -> None:
    """Start the server, time the stores on it and print the table."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_moto_server.py"))], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        store_cycles(f"http://127.0.0.1:{int(server.stdout.readline())}", rounds, cycles)
    finally:
        server.kill()
        server.wait()


def store_cycles(url: str, rounds: int, cycles: int) -> None:
    """Time get+replace through every client, interleaved."""
    peers = {
        "bare boto3": boto3_cycle(url),
        "bare obstore": obstore_cycle(url),
        "S3Store (s3fs)": store_cycle(
            open_store(
                f"s3://{BUCKET}/ours",
                endpoint_url=url,
                key="k",
                secret="s",
                client_kwargs={"region_name": "us-east-1"},
            )
        ),
        "ObstoreStore": store_cycle(ObstoreStore(obstore_client(url, "over-obstore"))),
    }
    wall: dict[str, list[float]] = {name: [] for name in peers}
    processor: dict[str, list[float]] = {name: [] for name in peers}
    number = 0
    for cycle in peers.values():  # warm up: connections, signing keys
        for _ in range(10):
            cycle(number := number + 1)
    for _ in range(rounds):
        for name, cycle in peers.items():
            before, before_cpu = time.perf_counter(), time.process_time()
            for _ in range(cycles):
                cycle(number := number + 1)
            wall[name].append(cycles / (time.perf_counter() - before))
            processor[name].append((time.process_time() - before_cpu) / cycles * 1e3)
    table = Table("get + replace on moto", "cycles/s", "of boto3", "client CPU ms a cycle")
    base = statistics.median(wall["bare boto3"])
    for name in peers:
        rate, cpu_ms = statistics.median(wall[name]), statistics.median(processor[name])
        table.add_row(name, f"{rate:.0f}", f"{rate / base:.2f}", f"{cpu_ms:.2f}")
    Console(width=110).print(table)


def body(number: int) -> bytes:
    """A document that is different every time."""
    return json.dumps({"number": number, "body": "x" * BODY_BYTES}).encode()


def boto3_cycle(url: str) -> Cycle:
    """boto3 used by hand, without repetition of requests."""
    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )
    client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key="boto3", Body=body(0), IfNoneMatch="*")

    def cycle(number: int) -> None:
        found = client.get_object(Bucket=BUCKET, Key="boto3")
        found["Body"].read()
        client.put_object(Bucket=BUCKET, Key="boto3", Body=body(number), IfMatch=found["ETag"])

    return cycle


def obstore_client(url: str, prefix: str) -> S3Store:
    """An obstore store without repetition of requests."""
    return S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=url,
        access_key_id="k",
        secret_access_key="s",
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def obstore_cycle(url: str) -> Cycle:
    """obstore used by hand."""
    store = obstore_client(url, "obstore")
    store.put("object", body(0), mode="create", use_multipart=False)

    def cycle(number: int) -> None:
        found = store.get("object")
        found.bytes()
        store.put("object", body(number), mode={"e_tag": found.meta["e_tag"]}, use_multipart=False)

    return cycle


def store_cycle(store: ConditionalStore) -> Cycle:
    """A store of ours."""
    store.create("object", body(0))

    def cycle(number: int) -> None:
        found = store.get("object")
        store.replace("object", body(number), found.version)

    return cycle
