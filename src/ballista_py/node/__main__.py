"""`ballista-py`, which is also `python -m ballista_py.node`."""

import sys

from ballista_py.errors import MissingExtra
from ballista_py.node.allocators import settle_allocators


def main() -> None:
    """Run the command line."""
    settle_allocators()
    try:
        from ballista_py.node.cli.app import main as command_line  # what it imports allocates
    except (ModuleNotFoundError, MissingExtra) as error:
        missing = error if isinstance(error, MissingExtra) else MissingExtra.of(str(error.name), "node")
        sys.exit(f"error: {missing}")
    command_line()


if __name__ == "__main__":
    main()
