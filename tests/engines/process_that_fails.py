"""A process of the engine whose trials end in bad ways, told by the text that is tried."""

from __future__ import annotations

import os
import re
import sys

from ballista_py.engines.apart import worker
from ballista_py.engines.apart.trial import Trial

_run = Trial.run


def _fail(self, sql, dialect, schemas, parameters=None):
    if "ends the process" in sql:
        os.kill(os.getpid(), 11)
    if "never comes back" in sql:
        re.match("(a+)+$", "a" * 64 + "b")  # in compiled code, which gives the interpreter to nobody
    if "breaks the database" in sql:
        raise SystemError("the engine failed")
    return _run(self, sql, dialect, schemas, parameters)


if __name__ == "__main__":
    Trial.run = _fail
    worker.MAX_TRIAL_S = 1
    worker.main(sys.argv[1:])
