"""The files of a run are claimed while it runs, and are published only if all of them are there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.errors import VersionConflict
from ballista_py.runtime import SystemRuntime
from ballista_py.spark.staging import staging
from ballista_py.state.documents.claims import claimed_prefixes
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "state"))


def write(stage) -> list[str]:
    """Two files in the run's folder, published; their keys."""
    stage.folder.mkdir(parents=True)
    for name in ("a", "b"):
        pq.write_table(pa.table({"k": [1, 2]}), stage.folder / f"{name}.parquet")
    return [file.path for file in stage.publish(sorted(stage.folder.iterdir()))]


def test_a_run_claims_its_files_from_before_they_are_written_until_it_ends(store):
    runtime = SystemRuntime()
    with staging(store, "t", "run-1", runtime) as stage:
        assert claimed_prefixes(store, runtime) == ("snapshots/t/data/run-1/",)
        assert all(key.startswith("snapshots/t/data/run-1/") for key in write(stage))
        stage.confirm()
    assert claimed_prefixes(store, runtime) == ()


def test_a_run_whose_file_is_gone_is_not_published(store):
    with staging(store, "t", "run-1", SystemRuntime()) as stage:
        _, second = write(stage)
        store.delete(second)
        with pytest.raises(VersionConflict, match=r"b\.parquet' was removed before it was published"):
            stage.confirm()


def test_a_run_whose_claim_is_over_is_not_published(store):
    with staging(store, "t", "run-1", SystemRuntime()) as stage:
        write(stage)
        store.delete(stage.claim.key)
        with pytest.raises(VersionConflict, match="is over"):
            stage.confirm()
