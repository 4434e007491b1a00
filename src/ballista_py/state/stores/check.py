"""Whether a store keeps the promises that coordination needs, found out on the store itself.

Each promise is tried with objects of its own below `.check/`, which are deleted at the end. A promise that is
needed and broken makes the store unsafe: two nodes could both believe that they own a partition. The others are
told because an application may want them. What was not tried is said, too.
"""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress

from attrs import frozen

from ballista_py.errors import ObjectMissing, OutcomeUnknown, StoreError, StoreUnavailable, UnsafeStore
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.check_bench import RACERS as RACERS
from ballista_py.state.stores.check_bench import Bench, BrokenPromise, Notes, PromiseTrial
from ballista_py.state.stores.check_few import FEW, TOLD
from ballista_py.state.stores.check_many import MANY
from ballista_py.state.stores.store import ConditionalStore

CHECK_PREFIX = ".check/"
TRIALS = (*FEW, *MANY, *TOLD)
UNWRITTEN = "unavailable-is-unwritten"
_QUICK_TRIES = 5
_TRIES = 10


@frozen(kw_only=True)
class Promise:
    """One promise: `kept` or not, `needed` by coordination or not, and what was seen where it was broken.

    One that was not `tested` counts as kept.
    """

    name: str
    text: str
    needed: bool
    kept: bool
    seen: str = ""
    tested: bool = True


@frozen(kw_only=True)
class StoreReport:
    """What `check_store` found."""

    promises: tuple[Promise, ...]

    @property
    def broken(self) -> tuple[Promise, ...]:
        """The needed promises that the store breaks."""
        return tuple(promise for promise in self.promises if promise.needed and not promise.kept)

    @property
    def not_tested(self) -> tuple[Promise, ...]:
        """The needed promises of which nothing is known: the quick half leaves them out, or nothing came up."""
        return tuple(promise for promise in self.promises if promise.needed and not promise.tested)

    @property
    def safe(self) -> bool:
        """Whether nodes may share their documents on this store, as far as it was tested."""
        return not self.broken

    def require_safe(self) -> None:
        """Return if the store is safe; else raise `UnsafeStore` naming the broken promises."""
        if self.broken:
            named = "; ".join(f"{promise.name} ({promise.seen})" for promise in self.broken)
            raise UnsafeStore(f"the store breaks what coordination needs: {named}; use another store")


def check_store(
    store: ConditionalStore,
    *,
    quick: bool = False,
    runtime: Runtime | None = None,
    executor: Executor | None = None,
) -> StoreReport:
    """Try every promise on `store` and report which it keeps. Cleans up after itself.

    `quick` takes about 50 requests and finds a store that lacks a promise. The whole check takes about 4,000
    requests, half of them writes, and 40 MB both ways together; it finds a store that breaks a promise now and then,
    too. It needs an `executor` of `RACERS` threads: they race, and on a store that answers in 50 ms they should be
    done in ten seconds. Without one they take turns, which takes minutes there, and a store whose check and write
    are apart is not found. Raises `StoreUnavailable` where the store cannot be asked.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> report = check_store(MemoryStore(), quick=True)
    >>> report.safe, report.not_tested[0].name
    (True, 'reads-stay-fresh')
    """
    runtime = runtime or SystemRuntime()
    home = f"{CHECK_PREFIX}{runtime.new_id()}/"
    notes = Notes()
    tries = _QUICK_TRIES if quick else _TRIES

    def bench(name: str) -> Bench:
        return Bench(store, f"{home}{name}/", runtime, executor, notes, tries)

    try:
        promises = [
            _tried(trial, bench(trial.name)) if trial.quick or not quick else _left_out(trial) for trial in TRIALS
        ]
    finally:
        _clean(bench(""), home)
    return StoreReport(promises=(*promises, _unwritten(notes)))


def _tried(trial: PromiseTrial, bench: Bench) -> Promise:
    seen = ""
    try:
        trial.try_it(bench)
    except BrokenPromise as broken:
        seen = str(broken)
    except ObjectMissing:
        seen = "an object that was written is missing"
    except (OutcomeUnknown, StoreUnavailable):
        raise
    except StoreError as error:
        seen = error.message
    return Promise(name=trial.name, text=trial.text, needed=trial.needed, kept=not seen, seen=seen)


def _left_out(trial: PromiseTrial) -> Promise:
    return Promise(name=trial.name, text=trial.text, needed=trial.needed, kept=True, tested=False)


def _unwritten(notes: Notes) -> Promise:
    """What the other trials saw of it; it cannot be called for, a store is busy when it is busy."""
    return Promise(
        name=UNWRITTEN,
        text="a write that the store could not take was surely not written",
        needed=True,
        kept=not notes.landed_nevertheless,
        seen=notes.landed_nevertheless,
        tested=notes.called_unwritten > 0,
    )


def _clean(bench: Bench, home: str) -> None:
    """Delete what the check wrote, also on stores that do not list it."""
    keys = set(bench.notes.keys)
    with suppress(StoreError):  # what cannot be reached now stays
        keys.update(entry.key for entry in bench.store.list(home) if entry.key.startswith(home))

    def delete(number: int) -> None:
        with suppress(StoreError):
            bench.store.delete(left[number])

    left = sorted(keys)
    bench.each(len(left), delete)
