"""A worker process of a shared read: `python shared_read_worker.py FOLDER NAME SECONDS_A_CHUNK`, its handle on stdin.

What it has read under a grant lies in `{token}.arrow` before the Agent counts it; `{name}.{token}.begun` is there from
the first rows on, and `{name}.said` has a line for each grant: what became of it.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

import pyarrow as pa

from ballista_py.agents.read_client import ReadClient


class FileSink:
    def __init__(self, folder: Path, name: str, slow_s: float, schema: pa.Schema) -> None:
        self.folder, self.name, self.slow_s, self.schema = folder, name, slow_s, schema

    def begin(self, token):
        self.token, self.rows = token, []

    def take(self, rows):
        self.rows.append(rows)
        (self.folder / f"{self.name}.{self.token}.begun").touch()
        time.sleep(self.slow_s)

    def keep(self):
        made = self.folder / f"{self.token}.made"
        with pa.ipc.new_file(str(made), self.schema) as writer:
            writer.write_table(pa.Table.from_batches(self.rows, schema=self.schema))
        os.rename(made, self.folder / f"{self.token}.arrow")

    def counted(self):
        self._say("counted")

    def thrown_away(self):
        self._say("thrown away")

    def _say(self, what: str) -> None:
        count = sum(batch.num_rows for batch in self.rows)
        with open(self.folder / f"{self.name}.said", "a") as file:
            file.write(f"{self.token} {what} {count}\n")


if __name__ == "__main__":
    handle = pickle.loads(sys.stdin.buffer.read())
    with ReadClient(handle, name=sys.argv[2]) as client:
        client.read(FileSink(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), handle.schema))
