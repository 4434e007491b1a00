"""A real headless Chromium (Debian's, which bootstrap.py unpacks into the environment), driven by Playwright."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = "chromium", "chromium-headless-shell"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


def unpacked() -> Path:
    """Where bootstrap.py puts it, with the libraries that the machine lacks."""
    return Path(sys.prefix) / NAMES[1]


def program() -> tuple[str, dict[str, str]]:
    """Where it is and the variables that it needs; the test is skipped, or fails where all servers have to be there,
    if it is nowhere.
    """
    here = unpacked() / "usr" / "lib" / "chromium" / NAMES[1]
    if here.exists():
        libraries = {
            str(path.parent) for path in (unpacked() / "usr" / "lib").rglob("*.so*") if path.parent != here.parent
        }
        return str(here), {"LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries))}
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = (
            "Chromium is not installed, the tests of the page do not run: make test installs it where there is apt"
        )
        if os.environ.get("BALLISTA_REQUIRE_SERVERS") == "1":
            pytest.fail(message)
        warnings.warn(message, stacklevel=2)
        pytest.skip(message)
    return found, {}


@contextmanager
def browser() -> Iterator[object]:
    """A browser of its own, with a profile of its own."""
    path, variables = program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=path,
            args=list(FLAGS),
            env={**os.environ, **variables},  # type: ignore[arg-type]
        )
        try:
            yield started
        finally:
            started.close()
