"""What the node costs as a service.

python benches/service.py jobs [--count 200]     jobs a second through the queue; store requests a job
python benches/service.py sql [--lookups 200]    POST /v1/sql beside Flight, Flight SQL and DuckDB behind FastAPI
python benches/service.py seen                   a lookup while metrics are scraped, and while traces are sent
python benches/service.py idle [--before DIR]    memory of an idle scheduler; beside that of another checkout
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import _service_idle
import _service_jobs
import _service_seen
import _service_sql


def main() -> None:
    """Measure what was asked for, or all of it, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["all", "jobs", "sql", "seen", "idle"])
    parser.add_argument("--count", type=int, default=200, help="of jobs")
    parser.add_argument("--lookups", type=int, default=200, help="of each peer, a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100, help="of the large answer")
    parser.add_argument("--before", type=Path, help="the root of another checkout of this project")
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if options.what in ("all", "sql"):
        _service_sql.run(options.rounds, options.lookups, options.megabytes)
    if options.what in ("all", "jobs"):
        _service_jobs.run(options.count)
    if options.what in ("all", "seen"):
        _service_seen.run(options.rounds, options.lookups)
    if options.what in ("all", "idle"):
        _service_idle.run(options.before)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
