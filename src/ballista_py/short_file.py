"""Files that an operator gives to a node: short regular files, whose reading never waits and never takes much.

Whatever else lies under their name (a pipe, a device, a folder, a file without an end) is an error at once.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 8 << 20


def read_short_file(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """All bytes of a regular file. Raises `OSError`, with a reason for people, for anything else or a larger one."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # asked first, because opening a device may do something
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was exchanged meanwhile
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes")
    return data
