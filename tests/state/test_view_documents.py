"""Views in `cluster.json`: a release that knows none keeps them and their names, and so does one with other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson
import pyarrow as pa
import pytest
from attrs import evolve, field, frozen

from ballista_py.errors import ConfigError, InvariantViolated
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.codec import AS_READ, SET_ASIDE_OF, DocumentCodec, Header
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument

SCHEMA = pa.schema([("id", pa.int64())])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(2, id)"], SCHEMA))
VIEW = SqlView(name="v", sql="from t", schema=SCHEMA, types=("BIGINT",), answers=("id",), reads=("t",))
HEADER = Header(
    kind="cluster",
    schema_version=1,
    revision=1,
    commit_id="a",
    committed_by="",
    updated_at_ms=0,
    recent_commits=("a",),
)
NEW = DocumentCodec(ClusterDocument)


@frozen(kw_only=True)
class OlderCluster:
    """What an earlier release knows of the catalog."""

    document_kind: ClassVar[str] = "cluster"
    tables: Mapping[str, TableSpec] = field(factory=dict, metadata={AS_READ: True})
    admissions: int = 0
    unreadable: Mapping[str, Any] = field(factory=dict, metadata={SET_ASIDE_OF: "tables"})


OLD = DocumentCodec(OlderCluster)


def written(document, before=None):
    return NEW.encode(CLUSTER_KEY, HEADER, document, before)


def test_views_come_back_as_they_were():
    document = ClusterDocument().with_table(TABLE).with_view(VIEW)
    found = NEW.decode(CLUSTER_KEY, written(document)).document
    assert found == document
    assert found.views["v"].mark == "view.2"
    assert not found.unreadable


def test_an_earlier_release_keeps_views_and_their_names():
    document = ClusterDocument().with_table(TABLE).with_view(VIEW)
    read = OLD.decode(CLUSTER_KEY, written(document))
    assert [*read.document.tables] == ["t"]
    assert [*read.document.unreadable] == ["v"]  # a name that is taken, and may be dropped
    later = OLD.encode(CLUSTER_KEY, HEADER, evolve(read.document, admissions=7), read)
    assert NEW.decode(CLUSTER_KEY, later).document == evolve(document, admissions=7)


def test_a_view_of_a_later_form_is_kept_and_its_name_is_taken():
    raw = orjson.loads(written(ClusterDocument().with_table(TABLE).with_view(VIEW)))
    del raw["tables"]["v"]["view"]["sql"]
    raw["tables"]["v"]["view"]["plan"] = {"later": 1}
    read = NEW.decode(CLUSTER_KEY, orjson.dumps(raw))
    assert not read.document.views
    assert [*read.document.unreadable] == ["v"]
    again = orjson.loads(NEW.encode(CLUSTER_KEY, HEADER, evolve(read.document, admissions=1), read))
    assert again["tables"]["v"] == raw["tables"]["v"]


def test_what_a_later_release_says_of_a_view_is_kept():
    raw = orjson.loads(written(ClusterDocument().with_view(VIEW)))
    raw["tables"]["v"]["view"]["colour"] = "red"
    read = NEW.decode(CLUSTER_KEY, orjson.dumps(raw))
    document = read.document.with_commented_view("v", "words")
    again = orjson.loads(NEW.encode(CLUSTER_KEY, HEADER, document, read))
    assert again["tables"]["v"]["view"]["colour"] == "red"


@pytest.mark.parametrize("first", ["table", "view"])
def test_a_table_in_the_place_of_a_view_has_nothing_of_it(first):
    """Both in one commit, as writers do that wait at the same time."""
    table, view = evolve(TABLE, name="x", comment="of a table"), evolve(VIEW, name="x")
    as_table, as_view = ClusterDocument().with_table(table), ClusterDocument().with_view(view)
    before, after = (as_table, as_view) if first == "table" else (as_view, as_table)
    read = NEW.decode(CLUSTER_KEY, written(before))
    data = written(after, read)
    assert NEW.decode(CLUSTER_KEY, data).document == after
    assert (orjson.loads(data)["tables"]["x"].keys() == {"view"}) == (first == "table")


def test_no_name_is_written_twice():
    both = evolve(ClusterDocument().with_table(TABLE), views={"t": evolve(VIEW, name="t")})
    with pytest.raises(InvariantViolated, match="two entries 't'"):
        written(both)


def test_a_table_cannot_have_the_name_of_a_view():
    with pytest.raises(ConfigError, match="'v' is a view"):
        ClusterDocument().with_view(VIEW).require_no_view("v")
