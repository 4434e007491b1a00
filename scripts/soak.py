"""Let a cluster live through kills under load, count every row, and write the report down."""

from __future__ import annotations

import argparse
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ballista_py import LocalCluster
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.store import open_store
from ballista_py.testing.faults.clocks import JumpingClocks
from ballista_py.testing.soak.mischief import REPLACED, REPLACED_SCHEMA
from ballista_py.testing.soak.soak import SCHEMA, Load, Soak
from ballista_py.testing.soak.soak_report import SoakReport

SCHEDULERS, EXECUTORS, TTL_MS = 2, 3, 1_500


def soak(load: Load, replicas: int = 1) -> SoakReport:
    """One run on a fresh local cluster."""
    options = {"replicas": str(replicas)}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clocks = None if load.mischief_lease_ms is None else JumpingClocks(Path(folder))
        cluster = stack.enter_context(
            LocalCluster(
                schedulers=SCHEDULERS,
                executors=EXECUTORS,
                ttl_ms=TTL_MS,
                node_options=options,
                node_environment=None if clocks is None else clocks.environment,
            )
        )
        cluster.create_table("soaked", schema=SCHEMA, partition_by=["bucket(6, id)"])
        if load.mischief_lease_ms is not None:
            cluster.create_table(REPLACED, schema=REPLACED_SCHEMA, partition_by=["bucket(3, id)"])

        def run_all(functions):
            with ThreadPoolExecutor(len(functions)) as pool:
                for running in [pool.submit(function) for function in functions]:
                    running.result()

        store = open_store(cluster.state_location)
        jump = None if clocks is None else clocks.jump
        return Soak(cluster, store, "soaked", load, SystemRuntime(), run_all, jump).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=2, help="executors that hold each partition")
    parser.add_argument("--kills-only", action="store_true", help="no stops, tables, replacements and refreshes")
    parser.add_argument("--write", type=Path, help="put the report into this document, between its marks")
    arguments = parser.parse_args()
    lease_ms = None if arguments.kills_only else TTL_MS
    load = Load(duration_ms=arguments.minutes * 60_000, seed=arguments.seed, mischief_lease_ms=lease_ms)
    report = soak(load, arguments.replicas)
    print(report.text())
    for code, message in report.said.items():
        print(f"  {code}: {message}")
    for wrong in report.wrong:
        print(f"  WRONG: {wrong}")
    if arguments.write is not None:
        how = (
            f"{SCHEDULERS} schedulers, {EXECUTORS} executors, partitions held {arguments.replicas} times, "
            f"{os.cpu_count()} cores, seed {arguments.seed}"
        )
        report.write(arguments.write, how)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
