"""Progress of long steps: bars on a terminal, a plain line at each step's start and end elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ballista_py.runtime import Runtime, SystemRuntime

Advance = Callable[[int, int], None]


class Steps:
    """Shows steps one after another on `console`.

    >>> steps = Steps(Console(force_terminal=False))
    >>> with steps.step("load") as advance:  # doctest: +ELLIPSIS
    ...     advance(3, 4)
    load …
    load: done in ... s
    """

    def __init__(self, console: Console, runtime: Runtime | None = None) -> None:
        self._console = console
        self._runtime = runtime or SystemRuntime()

    @contextmanager
    def step(self, name: str) -> Iterator[Advance]:
        """A step under way. Call what it yields as `advance(done, total)`; without calls it shows a spinner."""
        started_ms = self._runtime.monotonic_ms()
        if self._console.is_terminal:
            with self._bar() as bar:
                task = bar.add_task(name, total=None)
                yield lambda done, total: bar.update(task, completed=done, total=max(total, 1))
        else:
            self._console.print(f"{name} …", highlight=False, soft_wrap=True)
            yield lambda done, total: None
        took_s = (self._runtime.monotonic_ms() - started_ms) / 1e3
        self._console.print(f"{name}: done in {took_s:.1f} s", highlight=False, soft_wrap=True)

    def _bar(self) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
