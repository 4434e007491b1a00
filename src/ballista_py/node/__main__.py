"""`ballista-py`, which is also `python -m ballista_py.node`."""

from ballista_py.node.allocators import settle_allocators


def main() -> None:
    """Run the command line."""
    settle_allocators()
    from ballista_py.node.cli import main as command_line  # what it imports allocates

    command_line()


if __name__ == "__main__":
    main()
