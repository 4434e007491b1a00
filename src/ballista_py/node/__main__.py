"""`python -m ballista_py.node` is `ballista-py`."""

from ballista_py.node.cli import main

main()
