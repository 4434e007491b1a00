"""Whatever lies in the bucket, those who read it say in one line what is wrong, and go on."""

from __future__ import annotations

import os

import orjson
import pytest

from ballista_py.errors import DocumentUnreadable
from ballista_py.partitions.map import PartitionMap
from ballista_py.state.documents import codec as codecs
from ballista_py.state.documents import large_documents
from ballista_py.state.documents.codec import DocumentCodec
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
)
from ballista_py.testing.hostile import document_fuzz
from ballista_py.testing.hostile.document_fuzz import DOORS, fuzz, kinds, small_cluster
from ballista_py.testing.hostile.spoilt_documents import spoilt

FIRST_SEED = int(os.environ.get("BALLISTA_DOCUMENTS_FIRST_SEED", "0"))
MAP_KEY = partition_map_key("t")


@pytest.fixture(scope="module")
def stored():
    return small_cluster()


def test_a_case_is_a_function_of_its_seed(stored):
    data = stored[CLUSTER_KEY]
    cases = [spoilt(data, seed) for seed in range(100)]
    assert cases == [spoilt(data, seed) for seed in range(100)]
    assert len(set(cases)) > 80


@pytest.mark.turn(3)
def test_spoilt_documents_of_every_kind_end_nobody_and_are_named(capsys):
    assert {"cluster", "partition_map", "manifest", "statements", "claim", "seen", "garbage"} <= set(kinds())
    found = fuzz(FIRST_SEED, seconds=5)
    assert not found.finds, (found.finds, capsys.readouterr().out)
    assert set(found.cases) == set(DOORS)
    assert all(0 < found.counted[door] < found.cases[door] for door in DOORS)


def test_a_codec_that_takes_anything_for_a_number_is_found(monkeypatch):
    monkeypatch.setitem(codecs._PLAIN, int, lambda value, _kind: int(value))
    codecs.converter.cache_clear()
    try:
        assert fuzz(0, seconds=2, doors=("read",)).finds
    finally:
        codecs.converter.cache_clear()


def changed(data, place, value):
    found = orjson.loads(data)
    inside = found
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    return orjson.dumps(found)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("length", value) for value in (2**40, 2**62, -1, 1e9, "2", None, 3)),
        *(("epochs", value) for value in (-1, 1e308, [1], [1, 2, 3], [[1, 2]], [2**60, 1], 0.5, "x")),
        *(("owners", value) for value in ([], [7], [[0, 9]], [[-2, 0]], [2**40])),
        *(("targets", value) for value in ([[2, 0]], [[-1, 0]], [[0, 99]], [[0]], [["a", 0]])),
        ("weights", [1, "a"]),
        ("flags", 256),
        ("discoveries", 2**70),
        ("executors", [["a"]]),
    ],
)
def test_a_map_whose_numbers_do_not_fit_each_other_is_no_map_and_takes_no_memory(
    stored, monkeypatch, column, value
):
    data = stored[MAP_KEY]
    where = ("map", column) if column in orjson.loads(data)["map"] else (column,)
    text = changed(data, where, 0)
    text = text.replace(b'"%s":0' % column.encode(), b'"%s":%s' % (column.encode(), repr_json(value)), 1)
    with pytest.raises(DocumentUnreadable, match=MAP_KEY):
        DocumentCodec(PartitionMapDocument).decode(MAP_KEY, text)


def repr_json(value):
    return b"%d" % value if type(value) is int else orjson.dumps(value)


def test_a_map_of_ours_is_read_as_it_was_written(stored):
    document = DocumentCodec(PartitionMapDocument).decode(MAP_KEY, stored[MAP_KEY]).document
    again = PartitionMap.from_columns("t", 0, document.map.to_columns())
    assert again.to_columns() == document.map.to_columns()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("header", "revision"), "3"),
        (("header", "revision"), 3.5),
        (("header", "revision"), True),
        (("header", "commit_id"), 5),
        (("header", "recent_commits"), "abc"),
        (("header", "recent_commits"), [1]),
        (("tables",), [1]),
        (("executors",), {"e1": 5}),
    ],
)
def test_what_stands_in_a_document_is_taken_for_nothing_else(stored, place, value):
    with pytest.raises(DocumentUnreadable, match=r"object 'cluster.json' is not a 'cluster' document"):
        DocumentCodec(ClusterDocument).decode(CLUSTER_KEY, changed(stored[CLUSTER_KEY], place, value))


def test_a_document_that_is_larger_than_any_is_not_even_parsed(stored, monkeypatch):
    monkeypatch.setattr(large_documents, "MAX_DOCUMENT_BYTES", 10_000)
    large = stored[CLUSTER_KEY] + b"{" * 10_000  # whoever parses it says something else
    with pytest.raises(
        DocumentUnreadable, match=r"object 'cluster.json' has 1\d,\d{3} bytes; no document has more"
    ):
        DocumentCodec(ClusterDocument).decode(CLUSTER_KEY, large)


@pytest.mark.parametrize("place", [("header", "kind"), ("header", "key")])
def test_no_terminal_obeys_a_document(stored, place):
    data = changed(stored[CLUSTER_KEY], place, "\x1b[2J" + "x" * 5_000)
    with pytest.raises(DocumentUnreadable) as refused:
        DocumentCodec(ClusterDocument).decode(CLUSTER_KEY, data)
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 600


@pytest.mark.long
def test_spoilt_documents_for_ten_minutes():
    found = document_fuzz.fuzz(FIRST_SEED, seconds=600)
    assert not found.finds, found
