"""How a task of Spark gets to code of this package: it looks first whether the worker has it, and the same release.

Spark's Python gets the functions of this module themselves, because a worker may not have this package: it imports
nothing but what every Python has. What it runs lies in `worker_tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

UNFIT = "ballista-worker-unfit"
FAILED = "ballista-task-failed"


def entry(release: str, name: str, arguments: tuple[Any, ...]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapInArrow` that runs the function `name` of `worker_tasks` on a worker, with these arguments.

    It raises `RuntimeError` that begins with `UNFIT` on a worker without this `release`, and with `FAILED` and the name
    of the class for every error of ours: others do not come through Spark as what they are.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import socket
        import sys
        from importlib import import_module

        at = f"{socket.gethostname()} ({sys.executable})"
        try:
            found = import_module("ballista_py").__version__
            task = getattr(import_module("ballista_py.spark.worker_tasks"), name)
            known: Any = import_module("ballista_py.errors").BallistaError
        except (ImportError, AttributeError) as error:
            raise RuntimeError(f"{UNFIT}: {at}: {error}") from None
        if found != release:
            raise RuntimeError(f"{UNFIT}: {at}: it has ballista_py {found}, the driver {release}")
        try:
            yield from task(batches, *arguments)
        except known as error:
            raise RuntimeError(f"{FAILED} {type(error).__name__}: {error}") from None

    return run
