"""What gRPC sends at the beginning of a connection, without what the client was told already by the front."""

from __future__ import annotations

from ballista_py.transport.front.http2 import ACK, HEAD_BYTES, SETTINGS, Head


class ServerReader:
    """Takes out the first settings of a server and the first answer to those of the client; the rest is passed on.

    `settled` says that the settings have come, `done` that nothing more is taken out.
    """

    def __init__(self) -> None:
        self.settled = False
        self.done = False
        self._answered = False
        self._held = bytearray()

    def feed(self, data: memoryview) -> bytes:
        """Take in what has come; returns what the client is sent of it.

        >>> reader = ServerReader()
        >>> reader.feed(memoryview(bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]) * 2)).hex(), reader.settled, reader.done
        ('000000040000000000', True, False)
        """
        self._held += data
        out = bytearray()
        while not self.done and len(self._held) >= HEAD_BYTES:
            head = Head.of(self._held)
            size = HEAD_BYTES + head.length
            if len(self._held) < size:
                break
            if not self._taken_out(head):
                out += self._held[:size]
            del self._held[:size]
            self.done = self.settled and self._answered
        if self.done:
            out += self._held
            self._held.clear()
        return bytes(out)

    def _taken_out(self, head: Head) -> bool:
        if head.kind != SETTINGS:
            return False
        if head.flags & ACK:
            taken, self._answered = not self._answered, True
        else:
            taken, self.settled = not self.settled, True
        return taken
