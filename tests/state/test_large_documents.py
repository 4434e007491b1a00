"""Documents that are large, or would be once they are parsed: refused by their bytes, shared, not kept by errors."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import ClassVar

import orjson
import pytest
from attrs import Factory, frozen

from ballista_py.errors import DocumentUnreadable, InvariantViolated
from ballista_py.state.documents import large_documents
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES

KEY = "names.json"


@frozen(kw_only=True)
class Names:
    document_kind: ClassVar[str] = "names"
    reads_back: ClassVar[bool] = False
    names: Mapping[str, str] = Factory(dict)


@frozen(kw_only=True)
class Lists:
    document_kind: ClassVar[str] = "lists"
    reads_back: ClassVar[bool] = False
    lists: tuple[tuple[int, ...], ...] = ()


def written(runtime, document=None):
    store = MemoryStore(runtime=runtime)
    ObjectState(store, KEY, Names, runtime=runtime).create(document or Names(names={"a": "b"}))
    return store


def with_junk(store, junk):
    """The document, with a field that no release knows; it could be read but for its size."""
    found = store.get(KEY)
    data = found.data[: found.data.rindex(b"}")] + b',"junk":' + junk + b"}"
    store.replace(KEY, data, found.version)
    return data


@pytest.mark.parametrize("one", [b"[],", b"{},", b'{"":1},', b"1,"])
def test_what_unfolds_is_refused_before_it_is_parsed(runtime, monkeypatch, one):
    store = written(runtime)
    data = with_junk(store, b"[" + one * (20_000_000 // len(one)) + b"1]")
    assert len(data) < MAX_DOCUMENT_BYTES
    monkeypatch.setattr(large_documents, "MAX_PARSED_BYTES", 64 << 20)
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(DocumentUnreadable, match="once it is parsed"):
        ObjectState(store, KEY, Names, runtime=runtime).read()


def test_the_measure_is_no_less_than_what_python_takes():
    import tracemalloc

    for one in (
        b"[],",
        b"{},",
        b'{"":300},',
        b"300,",
        b'"ab",',
        b"[300],",
        b'{"a":[300.5]},',
        b'{"":{"":{"":1}}},',
    ):
        data = b"[" + one * 20_000 + b"1]"
        tracemalloc.start()
        try:
            parsed = orjson.loads(data)
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert parsed
        assert taken <= large_documents.parsed_bytes(data), one


def test_a_document_that_could_not_be_read_again_is_not_written(runtime, monkeypatch):
    monkeypatch.setattr("ballista_py.state.documents.codec.MAX_PARSED_BYTES", 16 << 20)
    store = MemoryStore(runtime=runtime)
    with pytest.raises(InvariantViolated, match="more values than one may have"):
        ObjectState(store, KEY, Lists, runtime=runtime).create(Lists(lists=((1,),) * 400_000))
    assert list(store.list("")) == []


def test_readers_of_one_large_document_share_it_while_somebody_has_it(runtime):
    store = written(runtime, Names(names={f"{n}": "x" * 40 for n in range(40_000)}))
    first, second = (ObjectState(store, KEY, Names, runtime=runtime) for _ in range(2))
    assert first.read().document is second.read().document
    first.update(lambda document: Names(names={**document.names, "more": "y"}))
    assert second.read().document.names["more"] == "y"
    assert first.read().document is second.read().document


def test_an_error_does_not_keep_what_was_read(runtime, monkeypatch):
    monkeypatch.setattr(large_documents, "ALONE_BYTES", 1 << 20)
    store = MemoryStore(runtime=runtime)
    state = ObjectState(store, KEY, Names, runtime=runtime)
    data = b"[" + b"x" * (2 << 20)
    store.create(KEY, data)
    gc.collect()
    kept = []
    for _ in range(3):
        with pytest.raises(DocumentUnreadable) as caught:
            state.read()
        kept.append(caught.value)
    held, frames = [], [error.__traceback__ for error in kept]
    for at in frames:
        while at is not None:
            held += [name for name, value in at.tb_frame.f_locals.items() if getattr(value, "data", value) == data]
            at = at.tb_next
    assert [name for name in held if name != "data"] == []
    assert all(error.__cause__ is None for error in kept)
