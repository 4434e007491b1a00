"""Measuring side by side: every candidate in turn, several rounds, the median of each and ratios between them."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved(candidates: Mapping[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Median seconds of each candidate; one warm-up each, then `rounds` rounds in which each runs once."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate in candidates.values():
        candidate()
    for _ in range(rounds):
        for name, candidate in candidates.items():
            gc.collect()
            start = time.perf_counter()
            candidate()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def show(title: str, medians: Mapping[str, float], rows: int, base: str) -> None:
    """Print one line per candidate: milliseconds, million rows a second, and how many times `base`'s speed."""
    print(f"\n{title}")
    for name, seconds in medians.items():
        speed = medians[base] / seconds
        print(f"  {name:<34}{seconds * 1e3:>12.3f} ms{rows / seconds / 1e6:>10.1f} M/s{speed:>9.2f}x {base}")


def claim(text: str, holds: bool, measured: str) -> None:
    """Print an aim, what this run got, and whether it is reached."""
    print(f"  aim {text}: got {measured} ({'reached' if holds else 'MISSED'})")


def peak_mb() -> float:
    """The peak memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
