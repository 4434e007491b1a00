"""An immutable data file as a plain file of this machine, ready to be loaded."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class LocalFile:
    """An immutable data file on this machine. `file_id` is unique in the process for the life of the engine.

    `name` is what errors call it: the key on the object store, never a path of this machine.
    """

    file_id: int
    path: str
    format: str = "parquet"
    name: str = ""
