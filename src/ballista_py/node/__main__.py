"""`ballista-py`, which is also `python -m ballista_py` and `python -m ballista_py.node`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ballista_py.errors import BallistaError, MissingExtra
from ballista_py.node.allocators import settle_allocators

if TYPE_CHECKING:
    from ballista_py.node.cli.node_words import NodeCall


def main() -> None:
    """Run the command line."""
    settle_allocators()
    # gRPC would write a line for each handshake that fails: strangers could fill the disk with them.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    calls: list[NodeCall] = []
    try:
        # What is imported allocates; and a node keeps it, so it goes without what only people at a terminal need.
        if sys.argv[1:2] == ["node"]:
            from ballista_py.node.cli.node_words import of_several, read_plainly

            for words in of_several(sys.argv[1:]):
                call = read_plainly(words)
                if call is None:
                    sys.argv[1:], calls = words, []
                    break
                calls.append(call)
        if calls:
            from ballista_py.node.process import run_nodes
        else:
            from ballista_py.node.cli.app import main as command_line
    except (ModuleNotFoundError, MissingExtra) as error:
        missing = error if isinstance(error, MissingExtra) else MissingExtra.of(str(error.name), "node")
        sys.exit(f"error: {missing}")
    if not calls:
        command_line()
        return
    try:
        run_nodes([call.config for call in calls], parent_pid=calls[0].parent_pid)
    except BallistaError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
