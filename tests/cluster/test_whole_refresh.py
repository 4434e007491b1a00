"""A refresh of a served table: every query sees all of it or nothing of it, in old partitions and in new ones."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import NotOwner, PartitionsUnassigned
from ballista_py.storage.publication import Publication

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
SEEN = "select run, count(*) as n, count(distinct region) as regions from events group by run"


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


def write(path: Path, run: int, regions: int) -> None:
    """A source in which every row names the run; 100 rows a region."""
    names = [f"region-{number % regions}" for number in range(100 * regions)]
    temporary = path.with_suffix(".new")
    pq.write_table(pa.table({"run": pa.array([run] * len(names), pa.int64()), "region": names}), temporary)
    temporary.rename(path)


class Onlooker:
    """Asks all the time, at both schedulers, what is there."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(address,)) for address in cluster.addresses()]
        self.answers: list[tuple[tuple[int, int, int], ...]] = []
        self.errors: list[BaseException] = []

    def __enter__(self) -> Onlooker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _look(self, address: str) -> None:
        from ballista_py import connect

        with connect(address) as client:
            while not self._over.is_set():
                try:
                    self.answers.append(seen(client))
                except (PartitionsUnassigned, NotOwner):  # a new partition that is being loaded
                    continue
                except BaseException as error:
                    self.errors.append(error)
                    return


def seen(asked) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted(tuple(row.values()) for row in asked.sql(SEEN).to_pylist()))


@pytest.mark.parametrize("keys", [["region"], ["bucket(6, region)"]], ids=["found", "static"])
def test_a_query_sees_all_of_a_refresh_or_nothing_of_it(cluster, tmp_path, keys):
    source = tmp_path / "events.parquet"
    write(source, 1, 3)
    cluster.create_table("events", source=str(source), partition_by=keys)
    with Onlooker(cluster) as onlooker:
        for run, regions in ((2, 5), (3, 2)):
            write(source, run, regions)
            cluster.refresh_table("events")
            assert seen(cluster) == ((run, 100 * regions, regions),)
    assert onlooker.errors == []
    assert set(onlooker.answers) <= {((1, 300, 3),), ((2, 500, 5),), ((3, 200, 2),)}
    assert len(set(onlooker.answers)) > 1
    with cluster.client() as client:
        client.sql("drop table events")


def test_a_refresh_whose_driver_died_after_the_decision_is_seen_whole(cluster, tmp_path, monkeypatch):
    source = tmp_path / "events.parquet"
    write(source, 1, 3)
    cluster.create_table("events", source=str(source), partition_by=["bucket(6, region)"])
    write(source, 2, 3)
    with monkeypatch.context() as patch:  # all that its process would have done after the decision
        patch.setattr(Publication, "finish", lambda *_: None)
        cluster.refresh_table("events")
    assert seen(cluster) == ((2, 300, 3),)
    write(source, 3, 4)
    cluster.refresh_table("events")
    assert seen(cluster) == ((3, 400, 4),)
    with cluster.client() as client:
        client.sql("drop table events")
