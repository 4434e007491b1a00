"""The process of an engine that may be ended: it runs one statement after the other for the node that started it.

It holds no tables, credentials or files. What a statement reads comes from the node, batch by batch when the statement
asks for it, and what it gives goes back. It ends when the node does, at once and whatever it is doing.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pyarrow as pa

from ballista_py.engines.apart.frames import FAILED, TOO_LARGE, Frames, packed, unpacked
from ballista_py.engines.apart.shares import BESIDE, MAX_TRIAL_S
from ballista_py.engines.apart.trial import Trial
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.duckdb.change import run_change
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, MergeTooLarge, TransportError, to_wire
from ballista_py.logs import configure_logging
from ballista_py.runtime import SystemRuntime
from ballista_py.spared import spare_pandas

SPARE_BYTES = 256 << 20  # of address space, beyond what the engine counts: its threads, vectors, Arrow's buffers


def main(arguments: list[str]) -> None:
    """Serve the node at the other end of the first file descriptor for as long as it keeps the second one open."""
    connected, life = (int(argument) for argument in arguments)
    _end_with(life)
    spare_pandas()
    configure_logging(f"engine-{os.getpid()}", "WARNING")
    Worker(socket.socket(fileno=connected)).serve()


class Worker:
    """What answers the commands of a node, one after the other."""

    def __init__(self, connected: socket.socket) -> None:
        self._runtime = SystemRuntime()
        self._frames = Frames(connected, self._runtime)
        self._asking = self._runtime.lock()
        self._readers: list[RowsOfNode] = []
        self._binder = Binder(self._runtime)
        self._engine: tuple[Mapping[str, Any], Engine] | None = None
        self._commands: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "describe": self._describe,
            "plan": self._plan,
            "types": self._types,
            "described": self._described,
            "declared": self._declared,
            "bind_change": self._bind_change,
            "query": self._query,
            "change": self._change,
            "try": self._try,
        }
        self._beside = False
        self._trial: Trial | None = None

    def serve(self) -> None:
        """Answer until the node hangs up."""
        with suppress(EOFError):
            self._frames.send({"ready": True})
            while True:
                command = self._frames.receive()
                assert isinstance(command, dict)
                try:
                    _bound_memory(command["max_bytes"])
                    if command["do"] != "try":
                        self._step_back()
                    self._commands[command["do"]](command)
                    self._frames.send({"end": True})
                except EOFError:
                    raise
                except (MemoryError, pa.ArrowMemoryError):
                    self._fail(MergeTooLarge(TOO_LARGE))
                except Exception as error:
                    self._fail(error if isinstance(error, BallistaError) else BallistaError(FAILED))
                self._readers.clear()

    def _fail(self, error: BallistaError) -> None:
        """Tell that a statement failed, once no thread of it can ask for rows: they would be those of the next one."""
        for reader in self._readers:
            reader.end()
        if self._readers and self._engine is not None:
            self._engine[1].close()
            self._engine = None
        self._frames.send({"error": to_wire(error)})

    def _step_back(self) -> None:
        """Be below the node from now on, with all threads that are begun later."""
        if not self._beside:
            self._beside = True
            os.nice(BESIDE)

    def _try(self, command: Mapping[str, Any]) -> None:
        with _bounded_time(MAX_TRIAL_S):
            if self._trial is None:
                self._trial = Trial(self._binder, self._runtime)
            parameters = command["parameters"]
            understood = self._trial.run(
                command["sql"],
                command["dialect"],
                _schemas(command["schemas"]),
                None if parameters is None else unpacked(parameters),
            )
        self._frames.send({"understood": understood})

    def _describe(self, command: Mapping[str, Any]) -> None:
        found = self._binder.describe(command["sql"], _schemas(command["schemas"]))
        self._frames.send({"schema": packed(found)})

    def _plan(self, command: Mapping[str, Any]) -> None:
        self._frames.send({"plan": self._binder.plan(command["sql"], _schemas(command["schemas"]))})

    def _types(self, command: Mapping[str, Any]) -> None:
        self._frames.send({"types": self._binder.types(command["sql"], _schemas(command["schemas"]))})

    def _described(self, command: Mapping[str, Any]) -> None:
        found = self._binder.described(command["sql"], _schemas(command["schemas"]), command["keys"])
        self._frames.send({"columns": found})

    def _declared(self, command: Mapping[str, Any]) -> None:
        self._frames.send({"types": self._binder.declared(command["sql"])})

    def _bind_change(self, command: Mapping[str, Any]) -> None:
        is_same = self._binder.bind_change(command["sql"], _schemas(command["schemas"]), command["same"])
        self._frames.send({"is_same": is_same})

    def _query(self, command: Mapping[str, Any]) -> None:
        relations = {name: self._relation(name, one) for name, one in command["relations"].items()}
        running = self._engine_for(command["options"]).query(command["sql"], streams=relations)
        self._frames.send({"schema": packed(running.schema)})
        for batch in running.batches():
            self._frames.send_rows(batch)

    def _change(self, command: Mapping[str, Any]) -> None:
        relations = {name: self._reader(name, unpacked(one)) for name, one in command["relations"].items()}
        rows = relations.pop(command["table"])
        options = command["options"]
        with run_change(
            command["sql"],
            command["table"],
            rows,
            relations,
            memory_limit=options["memory_limit"],
            key=command["key"],
            returning=command["returning"],
        ) as changed:
            returned = changed.returned
            shown = None if returned is None else packed(returned.schema)
            self._frames.send(
                {"affected": changed.affected, "come": packed(changed.come.schema), "returned": shown}
            )
            for batch in pa.table({"gone": changed.gone}).to_batches():
                self._frames.send_rows(batch)
            self._frames.send({"gone": True})
            for batch in changed.come.to_batches():
                self._frames.send_rows(batch)
            self._frames.send({"came": True})
            if returned is not None:
                for batch in returned.to_batches():
                    self._frames.send_rows(batch)
                self._frames.send({"gave": True})
            while isinstance(asked := self._frames.receive(), dict) and "kept" in asked:
                reader = changed.kept([(low, high) for low, high in asked["kept"]])
                self._frames.send({"schema": packed(reader.schema)})
                for batch in reader:
                    self._frames.send_rows(batch)
                self._frames.send({"kept": True})

    def _engine_for(self, options: Mapping[str, Any]) -> Engine:
        """The engine with these options; that of the statement before, if they are the same."""
        if self._engine is not None and self._engine[0] == options:
            return self._engine[1]
        if self._engine is not None:
            self._engine[1].close()
        made: Engine
        if options["kind"] == "polars":
            from ballista_py.engines.polars.engine import PolarsEngine

            made = PolarsEngine(runtime=self._runtime)
        else:
            made = DuckDBEngine(
                threads=options["threads"],
                memory_limit=options["memory_limit"],
                max_spill_bytes=options["max_spill_bytes"],
                keeps_order=options["keeps_order"],
                runtime=self._runtime,
            )
        self._engine = options, made
        return made

    def _relation(self, name: str, one: Mapping[str, Any]) -> pa.RecordBatchReader | pa.Table:
        reader = self._reader(name, unpacked(one["schema"]))
        return reader.read_all() if one["whole"] else reader

    def _reader(self, name: str, schema: pa.Schema) -> pa.RecordBatchReader:
        rows = RowsOfNode(name, self._frames, self._asking)
        self._readers.append(rows)
        return pa.RecordBatchReader.from_batches(schema, rows.batches())


class RowsOfNode:
    """The rows of a relation, asked for one batch after the other; the engine may ask from several threads."""

    def __init__(self, name: str, frames: Frames, asking: AbstractContextManager[object]) -> None:
        self._name = name
        self._frames = frames
        self._asking = asking
        self._ended = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What is left of them. Raises `TransportError` when the node cannot read on, and after `end`."""
        while True:
            with self._asking:
                if self._ended:
                    raise TransportError("the statement is over")
                self._frames.send({"need": self._name})
                answer = self._frames.receive()
            if isinstance(answer, pa.RecordBatch):
                yield answer
            elif answer.get("failed"):
                raise TransportError("what the statement reads has failed")
            else:
                return

    def end(self) -> None:
        """From the return of this on nothing is asked for; what is asked for now is waited for."""
        with self._asking:
            self._ended = True


def _schemas(found: Mapping[str, str]) -> dict[str, pa.Schema]:
    return {name: unpacked(text) for name, text in found.items()}


def _bound_memory(max_bytes: int) -> None:
    """Let the system refuse what goes beyond: an allocation that fails is an error of the statement alone."""
    if not sys.platform.startswith("linux"):
        return
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[5]) * resource.getpagesize()
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (used + max_bytes + SPARE_BYTES, hard))


@contextmanager
def _bounded_time(seconds: int) -> Iterator[None]:
    """Let the system end this process when the block computes for longer, even amid compiled code."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + seconds + 1
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (until, hard))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def _end_with(life: int) -> None:
    """End this process when the other end of the pipe `life` is closed, even amid something that cannot be stopped."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # which would hold rows of clients
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:  # it was closed before
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
