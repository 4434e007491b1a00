"""What else happens during a soak: processes that stand still, clocks that jump, tables made, rows replaced, refreshes.

Each is one function that does its thing until the load is over and says what is wrong. A table that is made is
counted and dropped again; what is replaced holds one version of all its rows at any moment that anybody looks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime, seeded_chance

REPLACED = "replaced"
REPLACED_ROWS = 60
REPLACED_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("version", pa.int64())])
PAUSE_MS = 300.0
JUMPS_S = (0.0, 0.0, -2.0, 2.0, -90.0, 90.0, -3_700.0, 3_700.0, -200_000.0, 200_000.0)

T = TypeVar("T")


class MischiefClient(Protocol):
    """What is asked of a client; `ballista_py.Client` is one."""

    def sql(self, query: str, *, token: str | None = None, atomic: bool = False) -> pa.Table: ...
    def refresh(self, table: str) -> int: ...
    def ingest(
        self, table: str, data: pa.Table, *, mode: str = "append", token: str | None = None, atomic: bool = False
    ) -> int: ...


class Processes(Protocol):
    """The nodes, as processes of this machine; `LocalCluster` is one."""

    @property
    def node_ids(self) -> tuple[str, ...]: ...
    def pid(self, node_id: str) -> int: ...


Acknowledged = Callable[[Callable[[MischiefClient], T]], T]


@frozen(kw_only=True)
class Mischief:
    """`until_acknowledged` does something with a client until that succeeds; `count` counts, `wrong` is told.

    `lease_ms` is how long a node may stand still before others take over: half of the stops are longer. `jump` sets the
    wall clock of a node so many seconds ahead; None leaves clocks alone.
    """

    table: str
    nodes: Processes
    runtime: Runtime
    over: Callable[[], bool]
    until_acknowledged: Callable[[Callable[[MischiefClient], object]], object]
    count: Callable[[str], None]
    wrong: Callable[[str], None]
    lease_ms: float
    jump: Callable[[str, float], None] | None = None
    seed: int = 0

    def stop_and_go(self) -> None:
        """Let a node stand still now and then, for less and for more than a lease."""
        chance = seeded_chance(self.seed * 1_000 + 501)
        while not self.over():
            self.runtime.sleep_ms(10 * PAUSE_MS * chance.random())
            pid = None
            with suppress(BallistaError, ProcessLookupError, KeyError):  # it is being killed by somebody else
                pid = self.nodes.pid(chance.choice(self.nodes.node_ids))
                os.kill(pid, signal.SIGSTOP)
                self.count("stops")
            self.runtime.sleep_ms(2 * self.lease_ms * chance.random())
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def set_clocks(self) -> None:
        """Set wall clocks forward and back, by seconds and by days, and right again in the end."""
        if self.jump is None:
            return
        chance = seeded_chance(self.seed * 1_000 + 502)
        while not self.over():
            self.jump(chance.choice(self.nodes.node_ids), chance.choice(JUMPS_S))
            self.count("clock_jumps")
            self.runtime.sleep_ms(10 * PAUSE_MS * chance.random())
        for node in self.nodes.node_ids:
            self.jump(node, 0.0)

    def make_and_drop(self) -> None:
        """Make tables, empty ones and such with the answer to a query, count them and drop them."""
        number = 0
        while not self.over():
            number += 1
            name = f"made_{self.seed}_{number}"
            if number % 2 or not self._versions()[0]:  # until the first replacement there is nothing to make it of
                text = f"create table {name} (id bigint not null, v varchar) partitioned by (bucket(3, id))"
                expected = 0
            else:
                text = f"create table {name} as select id, version from {REPLACED}"
                expected = REPLACED_ROWS
            self._made(name, text)
            rows = self._number(f"select count(*) as n from {name}")
            if rows != expected:
                self.wrong(f"a table made of {expected} rows has {rows}")
            self._sql(f"drop table if exists {name}")
            self.count("tables_made")
            self.runtime.sleep_ms(PAUSE_MS)

    def _made(self, name: str, text: str) -> None:
        """A statement that makes a table and is killed may have made it: then it is dropped, and made anew."""

        def make(client: MischiefClient) -> None:
            client.sql(f"drop table if exists {name}")
            client.sql(text)

        self.until_acknowledged(make)

    def replace(self) -> None:
        """Put one version of all rows in the place of the one before, and look whether there ever are two."""
        version = 0
        while not self.over():
            version += 1
            rows = pa.table([range(REPLACED_ROWS), [version] * REPLACED_ROWS], schema=REPLACED_SCHEMA)
            token = f"replace-{self.seed}-{version}"
            self.until_acknowledged(partial(_replace, rows, token))
            self.count("replaces")
            found = self._versions()
            if found != (REPLACED_ROWS, version, version):
                self.wrong(f"after version {version} had replaced all rows there were {found}")
            self.runtime.sleep_ms(PAUSE_MS)

    def look_at_replaced(self) -> None:
        """Whoever reads while rows are replaced sees all of one version."""
        last = 0
        while not self.over():
            rows, low, high = self._versions()
            if rows not in (0, REPLACED_ROWS) or low != high or high < last:
                self.wrong(f"a reader saw {rows} rows of versions {low} to {high} after version {last}")
            last = max(last, high)
            self.runtime.sleep_ms(PAUSE_MS)

    def refresh(self) -> None:
        """Let executors compare what they hold with what is stored."""
        while not self.over():
            self.until_acknowledged(lambda client: client.refresh(self.table))
            self.count("refreshes")
            self.runtime.sleep_ms(10 * PAUSE_MS)

    def _versions(self) -> tuple[int, int, int]:
        lowest, highest = "coalesce(min(version), 0) as low", "coalesce(max(version), 0) as high"
        text = f"select count(*) as n, {lowest}, {highest} from {REPLACED}"
        found = self.until_acknowledged(lambda client: client.sql(text))
        assert isinstance(found, pa.Table)
        rows, low, high = (column[0].as_py() for column in found.columns)
        return rows, low, high

    def _number(self, text: str) -> int:
        found = self.until_acknowledged(lambda client: client.sql(text))
        assert isinstance(found, pa.Table)
        return int(found.column(0)[0].as_py())

    def _sql(self, text: str) -> None:
        self.until_acknowledged(lambda client: client.sql(text))


def _replace(rows: pa.Table, token: str, client: MischiefClient) -> int:
    return client.ingest(REPLACED, rows, mode="replace", token=token, atomic=True)
