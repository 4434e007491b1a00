"""Writing into a named pipe that nobody may read: it ends with its time, though whoever writes cannot be interrupted.

What is written goes into a pipe of our own first, and from there into the one that was named, as fast as that is read.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ballista_py.errors import ConfigError, TimeLimit
from ballista_py.runtime import Runtime
from ballista_py.threads import spawn

PIECE_BYTES = 64 << 10
LOOK_MS = 50.0


def is_pipe(path: str) -> bool:
    """Whether the path leads to a pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


@contextmanager
def relayed(
    path: str, runtime: Runtime, timeout: float | None, failed: Callable[[BaseException], None]
) -> Iterator[str]:
    """Another pipe, of the same name, whose bytes end up in the one at `path`; within `timeout` seconds from now.

    `failed` is told at once why they do not: what is written from then on goes nowhere. The block ends once all is
    written, or raises `TimeLimit` when the time is over, and `ConfigError` where the reader went away.
    """
    with tempfile.TemporaryDirectory(prefix="copy-") as folder:
        own = os.path.join(folder, os.path.basename(path))  # whose ending may say how it is packed
        os.mkfifo(own, 0o600)
        source = os.open(own, os.O_RDONLY | os.O_NONBLOCK)
        held = os.open(own, os.O_WRONLY)  # so that it has no end before all is written
        relay = _Relay(path, source, runtime, timeout, failed)
        spawn(relay.run)
        try:
            yield own
        finally:
            os.close(held)
            relay.wait()
        if relay.error is not None:
            raise relay.error


class _Relay:
    def __init__(
        self,
        path: str,
        source: int,
        runtime: Runtime,
        timeout: float | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.error: BaseException | None = None
        self._path, self._source, self._runtime, self._failed = path, source, runtime, failed
        self._timeout = timeout
        self._until_ms = None if timeout is None else runtime.monotonic_ms() + timeout * 1e3
        self._over = False
        self._changed = runtime.condition()

    def run(self) -> None:
        """Carry all bytes over. Those that nobody takes are thrown away, so that whoever writes them ends."""
        target = -1
        try:
            target = self._opened()
            while piece := self._read():
                self._write(target, piece)
        except BaseException as error:
            said = error.strerror if isinstance(error, OSError) else ""
            self.error = ConfigError(f"file '{self._path}' cannot be written: {said}") if said else error
            self._failed(self.error)
            while self._read(late=True):
                pass
        finally:
            for one in (target, self._source):
                if one >= 0:
                    os.close(one)
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def wait(self) -> None:
        """Until all is carried over, or thrown away."""
        try:
            with self._changed:
                while not self._over:
                    self._changed.wait(LOOK_MS)
        except BaseException:  # somebody pressed a key
            self._until_ms = 0.0
            raise

    def _opened(self) -> int:
        while True:
            self._check()
            try:
                return os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:  # else nobody has opened it for reading yet
                    raise
            self._runtime.sleep_ms(LOOK_MS)

    def _read(self, *, late: bool = False) -> bytes:
        while True:
            if not late:
                self._check()
            if _ready(self._source, select.POLLIN):
                return os.read(self._source, PIECE_BYTES)

    def _write(self, target: int, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            self._check()
            if _ready(target, select.POLLOUT):
                try:
                    left = left[os.write(target, left) :]
                except BlockingIOError:
                    self._runtime.sleep_ms(LOOK_MS)

    def _check(self) -> None:
        if self._until_ms is not None and self._runtime.monotonic_ms() >= self._until_ms:
            raise TimeLimit(
                f"the answer was not read out of the pipe '{self._path}' within {self._timeout or 0:g} s: let "
                "something read it, or allow more time"
            )


def _ready(descriptor: int, event: int) -> bool:
    """Whether something can be done with it by now, or never can; waits a moment for it."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(LOOK_MS))
