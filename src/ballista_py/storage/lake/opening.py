"""Opens the files that tables of a lake name, with whatever credentials there are now."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from attrs import define

from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.scans.storage_credentials import StorageCredentials

CredentialsNow = Callable[[], StorageCredentials | None]
"""Gives the credentials of the moment; called before each file is opened."""


@define
class LakeOpener:
    """Files by their paths, and what their footers said. One for a process; safe to share between threads.

    `pool` is where files are read at the same time; without one they are read one after the other.
    """

    runtime: Runtime = SystemRuntime()
    pool: Executor | None = None
