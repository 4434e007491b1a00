"""Which columns a table may have is decided by the engine of the cluster, and by no single executor's word."""

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.held_columns import require_engines_hold
from ballista_py.errors import ConfigError
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.state.members.control import ExecutorInfo

LISTS = pa.schema([("v", pa.list_(pa.int64()))])


def cluster_of(*engines):
    made = ClusterDocument()
    for number, engine in enumerate(engines):
        made = made.admit(
            ExecutorInfo(executor_id=f"e{number}", instance_id=f"i{number}", data_address="a:1", engine=engine)
        )
    return made


@pytest.mark.parametrize("engines", [(), ("duckdb",), ("duckdb", "polars"), ("polars", "duckdb", "duckdb")])
def test_what_one_executor_says_of_itself_refuses_nobodys_table(engines):
    require_engines_hold(cluster_of(*engines), "t", LISTS)


@pytest.mark.parametrize("engines", [("polars",), ("polars", "polars"), ("duckdb", "polars", "polars")])
def test_a_table_that_most_executors_cannot_hold_is_refused(engines):
    with pytest.raises(ConfigError, match="runs the polars engine: column 'v'"):
        require_engines_hold(cluster_of(*engines), "t", LISTS)
    require_engines_hold(cluster_of(*engines), "t", pa.schema([("v", pa.int64())]))
