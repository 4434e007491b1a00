"""`python -m ballista_py`, which is `ballista-py`."""

from ballista_py.node.__main__ import main

if __name__ == "__main__":
    main()
