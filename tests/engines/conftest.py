"""Engines for the conformance suite: every engine runs the same tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.duckdb import DuckDBEngine
from ballista_py.engines.engine import Engine, LocalFile
from ballista_py.engines.polars import PolarsEngine
from ballista_py.errors import BallistaError


class OrRefused:
    """A Polars engine whose refusals skip the test: "the same answer, or an error that names what it does not do"
    is all that it promises. What it must not refuse is in `test_polars_engine.py`."""

    def __init__(self) -> None:
        self._engine = PolarsEngine()

    def __getattr__(self, name: str) -> object:
        called = getattr(self._engine, name)

        def call(*arguments: object, **options: object) -> object:
            try:
                return called(*arguments, **options)
            except BallistaError as error:
                if "the polars engine" in error.message:
                    pytest.skip(f"refused by name: {error.message}")
                raise

        return call if callable(called) else called


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "polars": lambda _: OrRefused(),  # type: ignore[dict-item,return-value]
    "duckdb-memory": lambda _: DuckDBEngine(),
    "duckdb-file": lambda folder: DuckDBEngine(str(folder / "engine")),
}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def reads_streams_whole(request: pytest.FixtureRequest) -> bool:
    """Whether the engine, as its documentation says, reads a stream to its end before it gives a row."""
    return request.node.callspec.params["engine"] == "polars"


class Files:
    """Writes Parquet files with fresh file ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def write(self, rows: pa.Table, **options: object) -> LocalFile:
        self._count += 1
        path = self._folder / f"{self._count}.parquet"
        pq.write_table(rows, path, **options)
        return LocalFile(file_id=self._count, path=str(path), name=f"data/{self._count}.parquet")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def answer() -> Callable[..., pa.Table]:
    """Runs a query to its end; the result as one table."""

    def run(engine: Engine, sql: str, scans: object = None, streams: object = None) -> pa.Table:
        query = engine.query(sql, scans, streams)  # type: ignore[arg-type]
        return pa.Table.from_batches(query.batches(), schema=query.schema)

    return run
