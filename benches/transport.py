"""The transport: what our streams, questions and control messages cost beside the bare libraries.

    python benches/transport.py [--rounds 5] [--gigabytes 1] [--seconds 3] [--executors 500] [--only NAME …]

`streams`: one result stream, plain and mTLS, beside bare pyarrow.flight on the same batches (aim: at least 0.9x).
`lookups`: a statement without work and a point lookup on a local cluster, 1, 8 and 32 clients. `control`: simulated
executors on one scheduler's control port, time from push to arrival, beside a bare grpc.aio echo with as many
streams in the same run (aim: at most 1.5x at the 99th percentile).
"""

from __future__ import annotations

import argparse

import _transport_control
import _transport_lookups
import _transport_streams


def main() -> None:
    """Run the chosen parts in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--executors", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    parts = {
        "streams": lambda: _transport_streams.run(options.rounds, options.gigabytes),
        "lookups": lambda: _transport_lookups.run(options.seconds),
        "control": lambda: _transport_control.run(options.executors, options.rounds),
    }
    for name, part in parts.items():
        if not options.only or name in options.only:
            part()


if __name__ == "__main__":
    main()
