"""What a Client and a Server of Table Read say to each other about one grant, as values.

The messages of the wire carry these, the tickets and the rows; whoever takes them in checks their shape first.
Every answer names the attempt that it is about: a Client that has asked elsewhere since can tell that it is not
meant.
"""

from __future__ import annotations

from zlib import crc32

from attrs import frozen

from ballista_py.transport.table_read.tokens.positions import Position

CREDITS = 2  # chunks of one exchange that may be under way
CHUNK_ROWS = 65_536  # rows of the input that one chunk moves on by, at most
MAX_ANCESTORS = 64  # of a grant that are named; what was superseded before them was told to Servers long ago


@frozen(kw_only=True)
class OpenRead:
    """A Client begins to read under a grant, or goes on.

    `job` is what the ticket vouches for, never a word of the Client alone: tokens count within it. `attempt` numbers
    the opens of a grant from 1, over all locations. With `needs_order` only rows in the order of the manifest are of
    use; a Server that has none at hand reads them from the files, or rejects. Without it all of the partition is read.
    """

    job: str
    token: str
    ancestors: tuple[str, ...]
    partition: int
    snapshot: str
    attempt: int
    start: Position
    wants_plan: bool
    needs_order: bool = True


@frozen
class ReadAccepted:
    """It is served. `applies_plan` says whether the Server runs the slice plan, or the Client has to.

    Without `in_order` its rows come in an order of its own, and positions only count them: nobody can go on elsewhere.
    Never said to a request that `needs_order`.
    """

    attempt: int
    applies_plan: bool
    in_order: bool = True


@frozen
class ReadRefused:
    """Too busy to run the plan; would give the columns as they are."""

    attempt: int


@frozen
class ReadRejected:
    """Not served here, or not any more."""

    attempt: int


@frozen
class ReadOnHold:
    """Too much is read here: ask elsewhere, or here after `retry_after_ms`."""

    attempt: int
    retry_after_ms: float


@frozen
class ReadPreempted:
    """The grant was superseded."""

    attempt: int


@frozen
class ReadSnapshotGone:
    """The snapshot is pinned by nobody any more."""

    attempt: int


@frozen
class StaleAttempt:
    """A later attempt of the grant was here before this one."""

    attempt: int


@frozen
class ReadClosed:
    """The exchange is over, or there is none, and no trailer was seen."""

    attempt: int


@frozen(kw_only=True)
class ReadChunk:
    """Some rows: those of the input from `start` to `end`.

    `rows` and `nbytes` are what came of them and `crc32` that of these bytes, all as whoever holds the bytes
    counted them; with the plan applied there may be fewer rows than the input had.
    """

    attempt: int
    start: Position
    end: Position
    rows: int
    nbytes: int
    crc32: int


@frozen(kw_only=True)
class ReadTrailer:
    """All up to `end` was sent by this attempt: the sums of its chunks, and `chained` over their checksums."""

    attempt: int
    end: Position
    rows: int
    nbytes: int
    crc32: int


@frozen(kw_only=True)
class ReadCredit:
    """A Server may send `chunks` of an attempt in all, and no row behind `until` (None: to the partition's end).

    The number counts from the attempt's first chunk, so a credit that comes twice allows nothing more; of several
    `until` the earliest counts. Where that is reached the Server sends its trailer.
    """

    token: str
    attempt: int
    chunks: int
    until: Position | None


ReadReply = (
    ReadAccepted | ReadRefused | ReadRejected | ReadOnHold | ReadPreempted | ReadSnapshotGone | StaleAttempt
)


def chained(before: int, of_chunk: int) -> int:
    """The checksum of a stream: of the checksums of its chunks in their order. It starts with 0.

    >>> chained(chained(0, 1), 2) == chained(chained(0, 2), 1)
    False
    """
    return crc32(of_chunk.to_bytes(4, "big"), before)
