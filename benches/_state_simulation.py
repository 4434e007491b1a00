"""How many seeds of the simulation fit into a minute of one core, and how far virtual time runs ahead."""

from __future__ import annotations

import time

from _measure import claim, peak_mb
from ballista_py.testing.simulation.simulation import Simulation

SCHEDULERS, EXECUTORS, PARTITIONS, HOURS = 3, 8, 64, 1.0
TIMES_REAL = 1_000


def run(seeds: int) -> None:
    """Run that many seeds in this process and print the speed."""
    begun, virtual_ms, failed = time.process_time(), 0.0, []
    for seed in range(1, seeds + 1):
        result = Simulation(
            seed, schedulers=SCHEDULERS, executors=EXECUTORS, partitions=PARTITIONS, hours=HOURS
        ).run(stop_at_first=True)
        virtual_ms += result.virtual_ms
        failed += [seed] if result.violations else []
    seconds = time.process_time() - begun
    speed = virtual_ms / 1_000 / seconds
    print(
        f"\nsimulation: {SCHEDULERS} schedulers, {EXECUTORS} executors, {PARTITIONS} partitions, {HOURS:g} hour a seed"
    )
    print(
        f"  {seeds} seeds in {seconds:.1f} s of one core: {60 * seeds / seconds:.1f} seeds a minute; failed: {failed}"
    )
    print(f"  peak memory of this process {peak_mb():,.0f} MB")
    claim(f"at least {TIMES_REAL:,} times real time on one core", speed >= TIMES_REAL, f"{speed:,.0f}")
