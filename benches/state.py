"""The state floor: what its requests, documents and decisions cost.

    python benches/state.py [--rounds 7] [--cycles 100] [--partitions 1000000] [--seeds 8] [--only NAME …]

`stores`: get and replace cycles on S3 beside bare boto3 and bare obstore. `codec`: the partition map of a million
partitions beside one JSON row per partition. `requests`: what each operation asks of the store and what a month of
it costs. `reconcile`: one table of a million partitions. `simulation`: seeds a minute.
"""

from __future__ import annotations

import argparse

import _state_codec
import _state_reconcile
import _state_requests
import _state_simulation
import _state_stores


def main() -> None:
    """Run the chosen parts in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    parts = {
        "stores": lambda: _state_stores.run(options.rounds, options.cycles),
        "codec": lambda: _state_codec.run(min(options.rounds, 3), options.partitions),
        "requests": _state_requests.run,
        "reconcile": lambda: _state_reconcile.run(min(options.rounds, 5), options.partitions),
        "simulation": lambda: _state_simulation.run(options.seeds),
    }
    for name, part in parts.items():
        if not options.only or name in options.only:
            part()


if __name__ == "__main__":
    main()
