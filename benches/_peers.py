"""Peers of a benchmark: each is a process of its own that answers one command a line, measured from outside.

A peer's script reads JSON lines from standard input and answers each with one JSON line; `Peer.ask` times nothing
itself, it trusts the seconds that the script measured around the call, and samples the resident memory of the
peer's whole process tree while it waits.

Resident memory counts a page once for every process that has mapped it, so the code of four like processes counts
four times; the proportional one (PSS) counts it once. A peak is of the resident memory, and beside it stands the
largest proportional one that was seen, looked at less often because it costs the kernel more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

SAMPLE_EVERY_S = 0.02
SAMPLES_A_PROPORTIONAL = 10


class Watch:
    """Processor time and peak resident memory of processes that somebody else started, and of their children."""

    def __init__(self, pids: list[int]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """Seconds of processor so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self._members())

    def reset_peak(self) -> None:
        self.peak_bytes = 0

    def _members(self) -> list[psutil.Process]:
        return [one for root in self._roots for one in (root, *root.children(recursive=True))]

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            self.peak_bytes = max(self.peak_bytes, sum(_resident(process) for process in self._members()))


class Peer:
    """One peer process. `peak_bytes` is the peak since the last `reset_peak`, over the whole tree.

    `peak_pss_bytes` is that of the proportional memory; 0 where the system does not say.
    """

    def __init__(self, name: str, script: str, *arguments: str) -> None:
        self.name = name
        self.peak_bytes = 0
        self.peak_pss_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._done = threading.Event()
        threading.Thread(target=self._sample, daemon=True).start()
        self.ready = self._read()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read()

    def reset_peak(self) -> None:
        self.peak_bytes = 0
        self.peak_pss_bytes = 0

    def close(self) -> None:
        """End the peer and whatever it started."""
        self._done.set()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with code {self._process.wait()}")

    def _sample(self) -> None:
        root = psutil.Process(self._process.pid)
        number = 0
        while not self._done.wait(SAMPLE_EVERY_S):
            try:
                members = [root, *root.children(recursive=True)]
            except psutil.Error:
                return
            self.peak_bytes = max(self.peak_bytes, sum(_resident(process) for process in members))
            if number % SAMPLES_A_PROPORTIONAL == 0:
                self.peak_pss_bytes = max(self.peak_pss_bytes, sum(_proportional(one.pid) for one in members))
            number += 1


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):  # it has ended, or this is no Linux
        return 0


def serve(answer: Any) -> None:
    """The loop of a peer's script: print `{"ready": true}`, then answer each line with `answer(command)`."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        result = answer(json.loads(line)) or {}
        result.setdefault("seconds", time.perf_counter() - started)
        print(json.dumps(result), flush=True)
