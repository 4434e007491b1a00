"""Memory of the processes of an idle scheduler; of this checkout and of another one, in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

IDLE_S = 8.0
ROUNDS = 3


def run(before: Path | None) -> None:
    """Measure and print."""
    here = Path(__file__).parents[1]
    checkouts = {"this checkout": here} | ({} if before is None else {"before": before.resolve()})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(ROUNDS):
        for name, root in checkouts.items():
            found[name].append(measured(root))
    print("\nan idle scheduler")
    for name, rounds in found.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        shown = ", ".join(f"{key} {value:.1f} MB" for key, value in middle.items())
        print(f"  {name:<14}{shown}")


def measured(root: Path) -> dict[str, float]:
    """Megabytes of a scheduler that the checkout at `root` starts, after a while."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Start one scheduler and one executor of whatever is installed, wait, and print the memory of the scheduler."""
    from ballista_py import LocalCluster

    with LocalCluster(schedulers=1, executors=1) as cluster:
        time.sleep(IDLE_S)
        root = psutil.Process(cluster.pid("scheduler-1"))
        mb: dict[str, float] = {"own": 0.0, "proportional": 0.0, "resident": 0.0}
        for process in (root, *root.children(recursive=True)):
            memory = process.memory_full_info()
            mb["own"] += memory.uss / 1e6
            mb["proportional"] += memory.pss / 1e6
            mb["resident"] += memory.rss / 1e6
        print(json.dumps(mb))


if __name__ == "__main__":
    main()
