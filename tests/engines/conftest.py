"""Engines for the conformance suite: every engine runs the same tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.engine import Engine, LocalFile
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.errors import BallistaError

REFUSED_BY_POLARS = {
    "test_results_come_lazily_in_batches_of_65536_rows_at_most": "the table function 'range'",
    "test_cancel_ends_a_query_that_computes": "the table function 'range'",
    "test_cancel_between_batches_never_ends_like_a_short_answer": "the table function 'range'",
    "test_cancel_is_noticed_when_the_engine_has_computed_everything_already": "the table function 'range'",
    "test_a_result_given_up_releases_its_query": "the table function 'range'",
    "test_a_closed_engine_refuses_work_and_ends_what_runs": "the table function 'range'",
    "test_predicates_on_streams_treat_nan_and_null_like_those_on_tables": "the cast of DOUBLE to VARCHAR",
    "test_a_struct_in_a_struct_may_be_part_of_a_longer_array": "column 's' is struct<a: int64",
    "test_every_type_survives_the_way_through_file_table_and_result": "column 'nanos' is timestamp[ns]",
}
"""The tests that ask Polars for what it does not do, and how its error must name that."""

REFUSED_STATEMENTS = {
    "with recursive": "the operation 'recursive cte'",
    "list(n)": "values of type LIST",
    "interval 1 day": "values of type INTERVAL",
    "values (1, 'x', null)": "values of type NULL",
    "{'a': n": "values of type STRUCT",
    "unnest([1, 2])": "the operation 'unnest'",
    "summarize t": "the operation 'unnest'",
    "except select": "the operation 'except'",
    "tablesample": "the operation 'sample'",
    "rollup": "GROUPING SETS, ROLLUP and CUBE",
    "word::int": "the cast of VARCHAR to INTEGER",
    "error('no '": "values of type NULL",
}
"""As above, for tests of many statements: by a piece of the statement."""


class RefusedError(Exception):
    """Polars said by name what it does not do. No test expects this class, so none takes it for its own error."""


class OrRefused:
    """A Polars engine: "the same answer, or an error that names what it does not do" is all that it promises.

    What it must not refuse is in `test_polars_engine.py`.
    """

    def __init__(self) -> None:
        self._engine = PolarsEngine()

    def __getattr__(self, name: str) -> object:
        called = getattr(self._engine, name)

        def call(*arguments: object, **options: object) -> object:
            try:
                return called(*arguments, **options)
            except BallistaError as error:
                if "the polars engine" in error.message and "'engine: duckdb'" in error.message:
                    raise RefusedError(error.message) from error
                raise

        return call if callable(called) else called


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """On Polars a test that asks for what it does not do must meet the very refusal that is named above."""
    parameters = getattr(getattr(pyfuncitem, "callspec", None), "params", {})
    refusal = _refusal(pyfuncitem.originalname, str(parameters.get("sql", "")))
    if parameters.get("engine") != "polars" or refusal is None:
        return (yield)
    with pytest.raises(RefusedError, match=re.escape(refusal)):
        yield
    return True


def _refusal(test: str, sql: str) -> str | None:
    if test in REFUSED_BY_POLARS:
        return REFUSED_BY_POLARS[test]
    return next((refusal for piece, refusal in REFUSED_STATEMENTS.items() if piece in sql), None)


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
