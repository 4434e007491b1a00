"""The promises of a store that only many requests, many objects or many clients can try.

Each is about a store that keeps a promise mostly: 95 reads of 100, for the first thousand objects, up to a megabyte.
The numbers are chosen so that a promise that is broken once in 20 reads or listings, or once in 50 writes, is missed
by less than one check in 500.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

import orjson

from ballista_py.errors import (
    DocumentUnreadable,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
    VersionConflict,
)
from ballista_py.state.stores.check_bench import RACERS, Bench, BrokenPromise, PromiseTrial

_RACE_TRIES = 400
_SAME_REFUSED = 50
_OBJECTS = 16
_READS = 8
_REFUSALS = 20
_LISTINGS = 150
_LISTED = 1_100
_WHOLE_LISTINGS = 5
_LARGE_BYTES = 9 * 1_048_576 + 7
# They differ in case, in how a letter is composed, in what a URL would make of them, and far from their beginning.
_NAMES = (
    *(
        "Key/one",
        "key/one",
        "key/ONE",
        "key/one ",
        "key/\u00e9",
        "key/e\u0301",
        "key/o%6Ee",
        "key/o ne",
        "key/o+ne",
    ),
    *(f"key/{'long' * 50}{end}" for end in ("/one", "/two", "-one", "-two")),
)


def _reads_stay_fresh(bench: Bench) -> None:
    def chain(number: int) -> None:
        key = f"{bench.folder}{number}"
        version = bench.create(b"0", key)
        for step in range(_READS):
            data = f"{number}.{step}".encode()
            newer = bench.replace(data, version, key)
            found, change = bench.get(key), bench.changed(version, key)
            if change is None:
                raise BrokenPromise("a replaced object was said to be unchanged")
            if not (found.data == change.data == data and found.version == change.version == newer):
                raise BrokenPromise(
                    f"of {2 * _OBJECTS * _READS} reads after a write one gave what was there before"
                )
            version = newer

    bench.each(_OBJECTS, chain)


def _creations_stay_refused(bench: Bench) -> None:
    def insist(number: int) -> None:
        key = f"{bench.folder}{number}"
        bench.create(b"first", key)
        for _ in range(_REFUSALS):
            if not bench.refuses(lambda: bench.store.create(key, b"second"), ObjectExists):
                raise BrokenPromise(f"of {_OBJECTS * _REFUSALS} creations over an object one was accepted")
        bench.expect(b"first", "a refused creation changed the object", key)

    bench.each(_OBJECTS, insist)


def _replacements_stay_refused(bench: Bench) -> None:
    def insist(number: int) -> None:
        key = f"{bench.folder}{number}"
        stale = bench.create(b"1", key)
        bench.replace(b"2", stale, key)
        for _ in range(_REFUSALS):
            if not bench.refuses(lambda: bench.store.replace(key, b"3", stale), VersionConflict):
                raise BrokenPromise(f"of {_OBJECTS * _REFUSALS} replacements of a stale version one was accepted")
        bench.expect(b"2", "a refused replacement changed the object", key)

    bench.each(_OBJECTS, insist)


def _large_objects(bench: Bench) -> None:
    first, second = (hashlib.shake_128(seed).digest(_LARGE_BYTES) for seed in (b"1", b"2"))
    version = bench.create(first)
    bench.expect(first, f"an object of {_LARGE_BYTES:,} bytes was not read back whole")
    bench.replace(second, version)
    bench.expect(second, f"an object of {_LARGE_BYTES:,} bytes was not read back whole after it was replaced")
    with suppress(DocumentUnreadable):
        bench.get(most_bytes=_LARGE_BYTES - 1)
        raise BrokenPromise("a read gave more bytes than were to be taken")
    if [entry.size for entry in bench.listing()] != [_LARGE_BYTES]:
        raise BrokenPromise(f"a listing tells another size of an object of {_LARGE_BYTES:,} bytes")


def _exact_keys(bench: Bench) -> None:
    keys = {bench.folder + name: name.encode() for name in _NAMES} | {f"{bench.folder}nothing": b""}
    for key, data in keys.items():
        bench.create(data, key)
    for key, data in keys.items():
        bench.expect(data, "two keys lead to one object", key)
    if {entry.key for entry in bench.listing()} != set(keys):
        raise BrokenPromise("a listing gives other keys than those that were written")


def _listings_stay_whole(bench: Bench) -> None:
    keys = [f"{bench.folder}{name}" for name in ("a", "b", "c")]
    for key in keys:
        bench.create(b"1", key)
    wrong = [found for found in bench.each(_LISTINGS, lambda _: _keys(bench)) if found != keys]
    if wrong:
        raise BrokenPromise(f"{len(wrong)} of {_LISTINGS} listings do not show exactly what is there, in order")


def _many_objects(bench: Bench) -> None:
    keys = [f"{bench.folder}{number:05d}" for number in range(_LISTED)]
    bench.each(_LISTED, lambda number: bench.create(b"1", keys[number]))
    for _ in range(_WHOLE_LISTINGS):
        found = _keys(bench)
        if found != keys:
            raise BrokenPromise(f"a listing of {_LISTED:,} objects shows {len(set(found) & set(keys)):,} of them")
    bench.each(_LISTED, lambda number: bench.delete(keys[number]))
    left = _keys(bench)
    if left:
        raise BrokenPromise(f"of {_LISTED:,} deleted objects {len(left):,} are still listed")


def _keys(bench: Bench) -> list[str]:
    return [entry.key for entry in bench.listing()]


def _one_creator(bench: Bench) -> None:
    bench.notes.keys.add(bench.key)
    winners = bench.race(lambda number: _creates(bench, f"racer {number}".encode()))
    if sum(winners) != 1:
        raise BrokenPromise(f"{sum(winners)} of {RACERS} racing creations succeeded")


def _creates(bench: Bench, data: bytes) -> bool:
    return _wins(bench, lambda: bench.store.create(bench.key, data), data)


def _no_lost_update(bench: Bench) -> None:
    first = bench.create(b"[]")
    stale = bench.race(lambda number: _replaces(bench, first, f'["{number}"]'.encode()))
    if sum(stale) != 1:
        raise BrokenPromise(f"{sum(stale)} of {RACERS} racing replacements of one version succeeded")
    bench.race(lambda number: _appends(bench, f"{bench.runtime.new_id()}-{number}"))
    kept = orjson.loads(bench.get().data)
    if len(kept) != RACERS + 1 or len(set(kept)) != RACERS + 1:
        raise BrokenPromise(f"{RACERS + 1 - len(set(kept))} of {RACERS} acknowledged updates were lost")


def _replaces(bench: Bench, version: str, data: bytes) -> bool:
    return _wins(bench, lambda: bench.store.replace(bench.key, data, version), data)


def _wins(bench: Bench, write: Callable[[], str], data: bytes) -> bool:
    """Whether this one of the racing writes succeeded; nobody writes after the one that does."""
    for _ in range(bench.tries):
        try:
            write()
            return True
        except (ObjectExists, VersionConflict):
            return _is_there(bench, data)
        except StoreUnavailable as busy:
            bench.pause(busy)
        except OutcomeUnknown as lost:
            bench.pause(lost)
            if _is_there(bench, data):
                return True
    raise bench.silent()


def _is_there(bench: Bench, data: bytes) -> bool:
    with suppress(ObjectMissing):
        return bench.get().data == data
    return False


def _appends(bench: Bench, mark: str) -> bool:
    """Add `mark` to the list in the object; a mark that is seen there has landed, whatever its reply was."""
    refused: list[str] = []
    for tries in range(_RACE_TRIES):
        found = bench.get()
        marks = orjson.loads(found.data)
        if mark in marks:
            return True
        try:
            bench.store.replace(bench.key, orjson.dumps([*marks, mark]), found.version)
            return True
        except VersionConflict:
            refused.append(found.version)
            if refused[-_SAME_REFUSED:] == [found.version] * _SAME_REFUSED:
                raise BrokenPromise("a version that every read gives cannot be replaced") from None
        except (StoreUnavailable, OutcomeUnknown) as busy:
            bench.trouble = busy.message
        bench.runtime.sleep_ms(min(tries, 20) * 5.0 * bench.runtime.random())
    raise StoreUnavailable("the store could not be checked: a writer never got its turn")


MANY = tuple(
    PromiseTrial(name, text, try_it, quick=False)
    for name, text, try_it in (
        ("reads-stay-fresh", "no read gives what was there before", _reads_stay_fresh),
        ("creations-stay-refused", "no creation of many writes over an object", _creations_stay_refused),
        (
            "replacements-stay-refused",
            "no replacement of many writes over another version",
            _replacements_stay_refused,
        ),
        ("large-objects", "an object of nine megabytes is kept whole", _large_objects),
        ("exact-keys", "every key is another object", _exact_keys),
        ("listings-stay-whole", "no listing of many leaves something out", _listings_stay_whole),
        ("many-objects", "a listing shows more objects than one page of it holds", _many_objects),
        ("one-creator", f"of {RACERS} racing creations one succeeds", _one_creator),
        ("no-lost-update", f"{RACERS} racing writers lose no update", _no_lost_update),
    )
)
