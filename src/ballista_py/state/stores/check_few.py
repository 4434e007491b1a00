"""The promises of a store that a few requests of one client can try: whether it has them at all.

A store that keeps them mostly, or for few and small objects only, is found out by `check_many.py`.
"""

from __future__ import annotations

from contextlib import suppress

from ballista_py.errors import ObjectExists, ObjectMissing, VersionConflict
from ballista_py.state.stores.check_bench import Bench, BrokenPromise, PromiseTrial


def _read_your_write(bench: Bench) -> None:
    version = bench.create(b'{"n": 1}')
    found = bench.get()
    if (found.data, found.version) != (b'{"n": 1}', version):
        raise BrokenPromise("a read after a write gave other bytes or another version")
    newer = bench.replace(b'{"n": 2}', version)
    found = bench.get()
    if (found.data, found.version) != (b'{"n": 2}', newer):
        raise BrokenPromise("a read after a replacement gave other bytes or another version")


def _changes_are_told(bench: Bench) -> None:
    version = bench.create(b"1")
    bench.changed(version)
    newer = bench.replace(b"2", version)
    found = bench.changed(version)
    if found is None:
        raise BrokenPromise("a replaced object was said to be unchanged")
    if (found.data, found.version) != (b"2", newer):
        raise BrokenPromise("a question for changes gave other bytes or another version")
    bench.delete()
    with suppress(ObjectMissing):
        bench.changed(newer)
        raise BrokenPromise("a deleted object was said to be there")


def _create_if_absent(bench: Bench) -> None:
    bench.create(b"first")
    if not bench.refuses(lambda: bench.store.create(bench.key, b"second"), ObjectExists):
        raise BrokenPromise("a second creation was accepted")
    bench.expect(b"first", "a refused creation changed the object")


def _replace_if_match(bench: Bench) -> None:
    stale = bench.create(b"1")
    newer = bench.replace(b"2", stale)
    if newer == stale:
        raise BrokenPromise("other bytes came under the same version")
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"3", stale), VersionConflict):
        raise BrokenPromise("a replacement of a stale version was accepted")
    bench.expect(b"2", "a refused replacement changed the object")


def _replace_missing(bench: Bench) -> None:
    version = bench.create(b"1")
    bench.delete()
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"2", version), VersionConflict):
        raise BrokenPromise("a replacement of a deleted object was accepted")
    with suppress(ObjectMissing):
        bench.get()
        raise BrokenPromise("a deleted object is still there")
    bench.create(b"3")
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"4", version), VersionConflict):
        raise BrokenPromise("a replacement of what was there before a deletion was accepted")


def _delete_one(bench: Bench) -> None:
    gone, other = f"{bench.folder}a", f"{bench.folder}ab"
    for key in (gone, other):
        bench.create(b"1", key)
    bench.delete(gone)
    if [entry.key for entry in bench.listing(gone)] != [other]:
        raise BrokenPromise(
            "a listing of a beginning of keys does not show what begins so once one of it was deleted"
        )
    with suppress(ObjectMissing):
        bench.delete(gone)
        return
    raise BrokenPromise("a deletion of what is not there was refused")


def _same_bytes_new_version(bench: Bench) -> None:
    first = bench.create(b"same")
    second = bench.replace(b"same", first)
    if second == first:
        raise BrokenPromise("the version is a hash of the bytes")
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"x", first), VersionConflict):
        raise BrokenPromise("a replacement of a stale version was accepted after the same bytes were written")


def _list_after_write(bench: Bench) -> None:
    keys = sorted(f"{bench.folder}{name}" for name in ("b", "a-x", "a/1"))
    for key in keys:
        bench.create(b"12345", key)
    found = {entry.key: entry.size for entry in bench.listing()}
    if found != dict.fromkeys(keys, 5):
        raise BrokenPromise("a listing after the writes does not show exactly what was written")
    bench.delete(keys[0])
    if keys[0] in [entry.key for entry in bench.listing()]:
        raise BrokenPromise("a listing shows a deleted object")


def _versions_in_listings(bench: Bench) -> None:
    version = bench.create(b"1")
    bench.replace(b"2", version)
    newest = bench.get().version
    listed = [entry.version for entry in bench.listing()]
    if listed != [newest]:
        raise BrokenPromise("a listing does not tell the version that a read gives")


FEW = (
    PromiseTrial("read-your-write", "a read sees the newest write, whole", _read_your_write),
    PromiseTrial("changes-are-told", "who asks for what is new is told of every change", _changes_are_told),
    PromiseTrial("create-if-absent", "a creation never writes over an object", _create_if_absent),
    PromiseTrial("replace-if-match", "a replacement never writes over another version", _replace_if_match),
    PromiseTrial("replace-missing", "a replacement never brings back a deleted object", _replace_missing),
    PromiseTrial("delete-one", "a deletion removes one object and no other, and may come twice", _delete_one),
    PromiseTrial("list-after-write", "a listing shows exactly what is there", _list_after_write),
)
TOLD = (
    PromiseTrial("versions-in-listings", "a listing tells versions", _versions_in_listings, needed=False),
    PromiseTrial(
        "same-bytes-new-version",
        "the same bytes written again are another version",
        _same_bytes_new_version,
        needed=False,
    ),
)
