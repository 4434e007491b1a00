"""The strategies draw what they say, and what they draw is taken."""

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py import testing
from ballista_py.errors import ConfigError
from ballista_py.partitions.bucket import bucket
from ballista_py.partitions.map import PartitionMap
from ballista_py.state.documents.codec import DocumentCodec, Header
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.testing import strategies

HEADER = Header(
    kind="cluster",
    schema_version=1,
    revision=1,
    commit_id="c",
    committed_by="",
    updated_at_ms=0,
    recent_commits=("c",),
)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_key_type_is_taken_by_bucket_and_every_spec_evaluates(data):
    kind = data.draw(strategies.key_types())
    array = data.draw(strategies.columns(kind))
    found = bucket(7, array)
    assert found.null_count == array.null_count
    assert all(value is None or 0 <= value < 7 for value in found.to_pylist())
    schema = data.draw(strategies.schemas())
    batch = data.draw(strategies.batches(schema))
    assert batch.schema == schema
    batch.validate(full=True)
    spec = data.draw(strategies.partition_specs(schema))
    assert {len(column) for column in spec.evaluate(batch)} == {batch.num_rows}


@settings(deadline=None, max_examples=40)
@given(strategies.partition_maps(), strategies.clusters())
def test_maps_and_clusters_survive_being_written_down(pmap, cluster):
    columns = orjson.loads(orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY))
    assert PartitionMap.from_columns(pmap.table, 0, columns) == pmap.with_revision(0)
    codec = DocumentCodec(ClusterDocument)
    data = codec.encode("cluster.json", HEADER, cluster)
    assert codec.decode("cluster.json", data).document == cluster


def test_the_kit_offers_what_it_lists():
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError):
        testing.no_such_name  # noqa: B018


def test_a_type_that_is_no_key_is_refused():
    with pytest.raises(ConfigError, match="list"):
        strategies.values(pa.list_(pa.int64()))
