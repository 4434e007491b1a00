"""`ballista-py`, which is also `python -m ballista_py` and `python -m ballista_py.node`."""

import os
import sys

from ballista_py.errors import BallistaError, MissingExtra
from ballista_py.node.allocators import settle_allocators


def main() -> None:
    """Run the command line."""
    settle_allocators()
    # gRPC would write a line for each handshake that fails: strangers could fill the disk with them.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    call = None
    try:
        # What is imported allocates; and a node keeps it, so it goes without what only people at a terminal need.
        if sys.argv[1:2] == ["node"]:
            from ballista_py.node.cli.node_words import read_plainly

            call = read_plainly(sys.argv[1:])
        if call is not None:
            from ballista_py.node.process import run_node
        else:
            from ballista_py.node.cli.app import main as command_line
    except (ModuleNotFoundError, MissingExtra) as error:
        missing = error if isinstance(error, MissingExtra) else MissingExtra.of(str(error.name), "node")
        sys.exit(f"error: {missing}")
    if call is None:
        command_line()
        return
    try:
        run_node(call.config, parent_pid=call.parent_pid)
    except BallistaError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
