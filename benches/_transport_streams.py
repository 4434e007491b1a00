"""One result stream between two processes: ours and bare pyarrow.flight, plain and with mTLS."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from _measure import claim, interleaved
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.server import FlightServer, StreamResult
from ballista_py.transport.security.access import Access
from ballista_py.transport.security.callers import Nodes
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls

BATCH_ROWS = 65_536
COLUMNS = 8
BENCH = Access("bench", {"DoExchange None": ("anyone",)})


def batch() -> pa.RecordBatch:
    """64 k rows of eight numeric columns: 4 MiB."""
    numbers = np.arange(BATCH_ROWS, dtype=np.int64)
    return pa.record_batch({f"c{n}": numbers + n for n in range(COLUMNS)})


class Ours:
    """Answers with `count` batches."""

    verbs = ()

    def stream(self, command: Any, _context: Any) -> StreamResult:
        one = batch()
        return StreamResult(schema=one.schema, batches=(one for _ in range(command["count"])))


class Bare(flight.FlightServerBase):
    """The same with nothing of ours."""

    def do_exchange(self, _context: Any, descriptor: Any, _reader: Any, writer: Any) -> None:
        one = batch()
        writer.begin(one.schema)
        for _ in range(int(descriptor.command)):
            writer.write_batch(one)


def serve(kind: str, *files: str) -> None:
    """Be the server process: say the port, and go on until standard input ends."""
    from ballista_py.threads import spawn

    tls = Tls(ca_file=files[0], certificate_file=files[1], key_file=files[2]) if files else None
    if kind == "ours":
        callers = None if tls is None else Nodes()
        options: dict[str, Any] = {"callers": callers, "tls": tls, "ask_client": tls is not None, "spawn": spawn}
        server: Any = FlightServer("127.0.0.1:0", Ours(), SystemRuntime(), access=BENCH, **options)  # type: ignore[arg-type]
    elif tls is None:
        server = Bare("grpc://127.0.0.1:0")
    else:
        pems = tls.read()
        server = Bare(
            "grpc+tls://127.0.0.1:0", tls_certificates=[pems.pair()], verify_client=True, root_certificates=pems.ca
        )
    print(server.port, flush=True)
    sys.stdin.read()


def run(rounds: int, gigabytes: float) -> None:
    """Measure and print."""
    one = batch()
    count = max(1, int(gigabytes * 1e9 / one.nbytes))
    folder = CertificateFolder(Path(tempfile.mkdtemp()) / "tls", SystemRuntime())
    folder.init()
    folder.add("server", "executor")
    folder.add("client", "scheduler")
    processes, candidates = [], {}
    for secure in (False, True):
        files = folder.tls("server") if secure else None
        for kind in ("bare", "ours"):
            words = [] if files is None else [files.ca_file, files.certificate_file, files.key_file]
            process = subprocess.Popen(
                [sys.executable, __file__, kind, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            processes.append(process)
            assert process.stdout is not None
            port = int(process.stdout.readline())
            read = _read_ours if kind == "ours" else _read_bare
            candidates[f"{kind} {'mTLS' if secure else 'plain'}"] = read(
                port, folder.tls("client") if secure else None, count
            )
    medians = interleaved(candidates, rounds)
    print(f"\none stream of {count * one.nbytes / 1e9:.2f} GB in batches of {one.nbytes / 1e6:.1f} MB")
    for name, seconds in medians.items():
        print(f"  {name:<12}{count * one.nbytes / seconds / 1e9:>8.2f} GB/s")
    for secure in ("plain", "mTLS"):
        ratio = medians[f"bare {secure}"] / medians[f"ours {secure}"]
        claim(f"{secure}: at least 0.9x bare pyarrow.flight", ratio >= 0.9, f"{ratio:.2f}x")
    for process in processes:
        process.kill()


def _read_ours(port: int, tls: Tls | None, count: int) -> Callable[[], None]:
    pool = FlightPool(SystemRuntime(), tls=tls, node_id="client")

    def read() -> None:
        stream = pool.open_stream(f"127.0.0.1:{port}", {"count": count})
        assert sum(found.num_rows for found in stream.batches()) == count * BATCH_ROWS

    return read


def _read_bare(port: int, tls: Tls | None, count: int) -> Callable[[], None]:
    options: dict[str, Any] = {}
    if tls is not None:
        pems = tls.read()
        options = {"tls_root_certs": pems.ca, "cert_chain": pems.certificate, "private_key": pems.key}
    client = flight.FlightClient(f"grpc{'' if tls is None else '+tls'}://127.0.0.1:{port}", **options)

    def read() -> None:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(str(count).encode()))
        rows = 0
        while True:
            try:
                found = reader.read_chunk().data  # kept while the next one comes, as by any reader
                rows += found.num_rows
            except StopIteration:
                break
        writer.close()
        assert rows == count * BATCH_ROWS

    return read


if __name__ == "__main__":
    serve(*sys.argv[1:])
