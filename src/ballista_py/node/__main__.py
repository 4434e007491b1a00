"""`ballista-py`, which is also `python -m ballista_py.node`."""

import os
import sys

from ballista_py.errors import MissingExtra
from ballista_py.node.allocators import settle_allocators


def main() -> None:
    """Run the command line."""
    settle_allocators()
    # gRPC would write a line for each handshake that fails: strangers could fill the disk with them.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        from ballista_py.node.cli.app import main as command_line  # what it imports allocates
    except (ModuleNotFoundError, MissingExtra) as error:
        missing = error if isinstance(error, MissingExtra) else MissingExtra.of(str(error.name), "node")
        sys.exit(f"error: {missing}")
    command_line()


if __name__ == "__main__":
    main()
