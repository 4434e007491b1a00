"""Scenes with real processes and real stores: each is tried, counted, and reported in one line.

python scripts/scenarios [NAME …] [--quick] [--list] [--write docs/guarantees.md]
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import clients
import definitions
import documents
import restarts
import signals
import sizes
import stores
from outcome import Outcome, write_rows

SCENARIOS: dict[str, Callable[[bool], Outcome]] = {
    "rolling-restart": restarts.rolling_restart,
    "other-ports": restarts.other_ports,
    "killed-create": definitions.killed_create,
    "killed-create-as": definitions.killed_create_as,
    "killed-drop": definitions.killed_drop,
    "two-clusters": stores.two_clusters,
    "killed-s3": stores.killed_s3,
    "older-manifest": documents.older_manifest,
    "lost-documents": documents.lost_documents,
    "vanishing-clients": clients.vanishing_clients,
    "stopped-scheduler": signals.stopped_scheduler,
    "killed-executors": signals.killed_executors,
    "many-partitions": sizes.many_partitions,
    "many-tables": sizes.many_tables,
    "many-columns": sizes.many_columns,
    "many-clients": sizes.many_clients,
    "large-partition": sizes.large_partition,
}


def run(name: str, quick: bool) -> Outcome:
    """One of the scenarios; whatever it raises is wrong."""
    began = time.monotonic()
    try:
        outcome = SCENARIOS[name](quick)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(wrong=[f"{type(error).__name__}: {error}"])
    outcome.seconds = time.monotonic() - began
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, as the tests run them")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--write", type=Path, help="put the rows into this document, between its marks")
    arguments = parser.parse_args()
    if arguments.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name}: {scenario.__doc__}")
        return 0
    unknown = set(arguments.names) - SCENARIOS.keys()
    if unknown:
        parser.error(f"there is no scenario {min(unknown)}; there are {', '.join(SCENARIOS)}")
    outcomes = {}
    for name in arguments.names or SCENARIOS:
        outcomes[name] = run(name, arguments.quick)
        print(outcomes[name].line(name), flush=True)
        for code, message in outcomes[name].said.items():
            print(f"  {code}: {message}", flush=True)
        if arguments.write is not None:
            write_rows(arguments.write, {name: outcomes[name]}, list(SCENARIOS))
    return 0 if all(outcome.is_right for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
