"""Mutated Arrow messages at every door: `python -m ballista_py.testing.hostile.wire_fuzz --seconds 3600`.

Valid messages of every type are changed in a few places, headers and bodies alike, and sent to a process of their
own: as bytes inside another message (`bytes`), to a port as a client or node sends rows (`exchange`, `bind`,
`ingest`), and as the answer that a client reads (`answer`). The process uses what it accepts as a node would. It must
live, and what it gives back must not hold the canary that its memory is full of. Every case is a function of its
seed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import grpc
from attrs import evolve

from ballista_py.runtime import SystemRuntime, seeded_chance
from ballista_py.testing.hostile.raw_flight import Data, RawFlight, ipc_messages, stream_of
from ballista_py.testing.hostile.tally import Find, Tally
from ballista_py.testing.hostile.wire_fuzz_child import CANARY, LOST_MARK, READY
from ballista_py.testing.hostile.wire_seeds import SEEDS, rows_of
from ballista_py.testing.hostile_client import bind, ingest, own_ingest

DOORS = ("bytes", "answer", "exchange", "bind", "ingest")
CASES_PER_CHILD = {"bytes": 2_000, "answer": 400, "exchange": 200, "bind": 200, "ingest": 200}
ANSWER_S = 20.0
_NUMBERS = (0, 1, 2, 7, 8, -1, 127, 128, 255, 256, 65_535, 1 << 31, (1 << 31) - 1, -(1 << 31), 100_000_000,
            -100_000_000, (1 << 32) - 1, 1 << 62, -(1 << 63), (1 << 63) - 1)  # fmt: skip


def messages_of(seed: int) -> list[Data]:
    """The mutated messages of one case."""
    chance = seeded_chance(seed)
    names = sorted(SEEDS)
    compression = (None, None, "lz4", "zstd")[chance.randrange(4)]
    found = ipc_messages(rows_of(names[chance.randrange(len(names))]), compression)
    for _ in range((1, 1, 1, 2, 3, 8)[chance.randrange(6)]):
        _mutate(found, chance)
    return found


def fuzz(first_seed: int, seconds: float, doors: tuple[str, ...] = DOORS, *, unchecked: bool = False) -> Tally:
    """Try the cases from `first_seed` on at all doors in turn, for about so many seconds.

    `unchecked` leaves the doors open, to prove that what they keep out is found; it ends with the first find.
    """
    tally, runtime = Tally("taken"), SystemRuntime()
    until_ms = runtime.monotonic_ms() + seconds * 1e3
    seed = first_seed
    while not (unchecked and tally.finds):
        for door in doors:
            _run(door, seed, seconds * 1e3 / len(doors), tally, runtime, unchecked)
        seed += max(CASES_PER_CHILD.values())
        if runtime.monotonic_ms() >= until_ms:
            break
    return tally


def _run(door: str, first: int, for_ms: float, tally: Tally, runtime: SystemRuntime, unchecked: bool) -> None:
    """One process and its share of cases, one at least; it is started again where it died."""
    seed, last, used_ms = first, first + CASES_PER_CHILD[door], 0.0
    while seed < last and used_ms < for_ms:
        with _Child(door, unchecked) as child:
            started_ms = runtime.monotonic_ms()
            while seed < last and used_ms < for_ms and child.lives():
                try:
                    taken = child.attempt(messages_of(seed))
                except _Found as found:
                    tally.finds.append(Find(door, seed, str(found)))
                    if unchecked:
                        return
                    print(tally.finds[-1], flush=True)
                    taken = False
                tally.cases[door] += 1
                tally.counted[door] += taken
                seed += 1
                used_ms = max(used_ms, runtime.monotonic_ms() - started_ms)


class _Found(Exception):
    pass


class _Child:
    """A process that takes messages by one door. `attempt` says whether it used what it was sent."""

    def __init__(self, door: str, unchecked: bool) -> None:
        self._door = door
        command = [sys.executable, "-m", "ballista_py.testing.hostile.wire_fuzz_child", door]
        command += ["unchecked"] * unchecked
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        said = self._line()
        if not said.startswith(READY):
            raise RuntimeError(f"the process for the door '{door}' did not start")
        self._port = said.removeprefix(READY).strip().decode()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def lives(self) -> bool:
        return self._process.poll() is None

    def attempt(self, messages: list[Data]) -> bool:
        if self._door in ("bytes", "answer"):
            return self._written(messages)
        send = {"exchange": own_ingest, "bind": bind, "ingest": ingest}[self._door]
        with RawFlight(f"ballista://127.0.0.1:{self._port}", answer_s=ANSWER_S) as flight:
            try:
                came = b"".join(send(messages, flight))
            except grpc.RpcError as error:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.5 if error.code() is grpc.StatusCode.UNAVAILABLE else 0)
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise _Found("no answer") from None
                if CANARY in str(error.details()).encode():
                    raise _Found("memory came back in an error") from None
                came = b""
                refused = True
            else:
                refused = False
        if not self.lives():
            raise _Found(f"the process ended with {self._process.returncode}")
        if CANARY in came:
            raise _Found("memory came back that was never sent")
        return not refused

    def _written(self, messages: list[Data]) -> bool:
        parts = [stream_of(messages)] if self._door == "bytes" else [data.encoded() for data in messages]
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            for part in [len(parts).to_bytes(4, "little"), *(len(p).to_bytes(4, "little") + p for p in parts)]:
                self._process.stdin.write(part)
            self._process.stdin.flush()
        said = self._line()
        if not said:
            self._process.wait()
            raise _Found(f"the process ended with {self._process.returncode}")
        if LOST_MARK in said:
            raise _Found("memory came back that was never sent")
        return b"taken" in said

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def _mutate(messages: list[Data], chance: Any) -> None:
    number = chance.randrange(len(messages))
    in_header = chance.random() < 0.4 or not messages[number].body
    data = bytearray(messages[number].header if in_header else messages[number].body)
    if data:
        _mutate_bytes(data, chance)
    messages[number] = evolve(messages[number], **{"header" if in_header else "body": bytes(data)})


def _mutate_bytes(data: bytearray, chance: Any) -> None:
    kind = chance.random()
    wide = (1, 2, 4, 8)[chance.randrange(4)]
    place = chance.randrange(max(1, len(data) - wide + 1))
    if kind < 0.8:
        place -= place % wide
    mask = (1 << 8 * wide) - 1
    if kind < 0.4:
        data[place : place + wide] = (_NUMBERS[chance.randrange(len(_NUMBERS))] & mask).to_bytes(wide, "little")
    elif kind < 0.6:
        step = (-8, -1, 1, 2, 8, 64)[chance.randrange(6)]
        now = int.from_bytes(data[place : place + wide], "little")
        data[place : place + wide] = (now + step & mask).to_bytes(wide, "little")
    elif kind < 0.85:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind < 0.95:
        start = chance.randrange(len(data))
        piece = data[start : start + 1 + chance.randrange(64)]
        data[place : place + len(piece)] = piece
    else:
        del data[place:]


def main() -> int:
    """Fuzz as long as the command line says; status 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--first-seed", type=int, default=int(os.environ.get("BALLISTA_WIRE_FIRST_SEED", "0")))
    parser.add_argument("--doors", default=",".join(DOORS))
    options = parser.parse_args()
    tally = fuzz(options.first_seed, options.seconds, tuple(options.doors.split(",")))
    print(tally)
    return 1 if tally.finds else 0


if __name__ == "__main__":
    sys.exit(main())
