"""The version-chain checker agrees with a slow search through all orders, on all kinds of small histories."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.testing.simulation.checkers.version_chain import chain_objection
from ballista_py.testing.simulation.history import INF, Accessed

VERSIONS = ("a", "b", "c", "d")


@st.composite
def histories(draw):
    """Up to three writes and three reads with any versions and any times; some writes never learn their fate."""
    versions = draw(st.permutations(VERSIONS))
    found = []
    for version in versions[: draw(st.integers(0, 3))]:
        base = draw(st.sampled_from((None, *VERSIONS)))
        found.append(draw(_access("write", base, version)))
    reads = st.sampled_from(VERSIONS).flatmap(lambda version: _access("read", None, version))
    return found + draw(st.lists(reads, max_size=3))


@st.composite
def _access(draw, kind, base, version):
    at_ms = draw(st.integers(0, 6))
    unknown = kind == "write" and draw(st.booleans())
    end_ms = INF if unknown else at_ms + draw(st.integers(1, 5))
    return Accessed(at_ms=at_ms, node="n", kind=kind, key="k", base=base, version=version, end_ms=end_ms)


@st.composite
def likely_histories(draw):
    """As a right store would answer, with one thing changed: so that both verdicts are common."""
    found, version, now_ms = [], None, 0
    for n in range(draw(st.integers(1, 3))):
        found.append((now_ms, "write", version, VERSIONS[n]))
        version = VERSIONS[n]
        now_ms += 2
        if draw(st.booleans()):
            found.append((now_ms, "read", None, version))
            now_ms += 2
    moved = draw(st.integers(-6, 6))
    place = draw(st.integers(0, len(found) - 1))
    lasts = [draw(st.integers(1, 5)) for _ in found]
    return [
        Accessed(
            at_ms=at_ms + (moved if n == place else 0),
            node="n",
            kind=kind,
            key="k",
            base=base,
            version=version,
            end_ms=at_ms + (moved if n == place else 0) + lasts[n],
        )
        for n, (at_ms, kind, base, version) in enumerate(found)
    ]


def possible(history):
    """Whether some order of all accesses, in keeping with real time, is what a right store answers.

    Every write landed (the history says so), so every one has a place in the order.
    """
    return any(_is_right(order) and _keeps_time(order) for order in permutations(history))


def _is_right(order):
    state = None
    for access in order:
        if access.kind == "write":
            if access.base != state:
                return False
            state = access.version
        elif access.version != state:
            return False
    return True


def _keeps_time(order):
    return not any(late.end_ms < early.at_ms for n, early in enumerate(order) for late in order[n + 1 :])


@settings(max_examples=600, deadline=None)
@given(history=st.one_of(histories(), likely_histories()))
def test_the_checker_and_the_search_through_all_orders_agree(history):
    assert (chain_objection(history) is None) == possible(history)


def test_a_hundred_thousand_accesses_are_judged_at_once():
    history = []
    for n in range(50_000):
        base = f"v{n - 1}" if n else None
        at_ms = 10.0 * n
        history.append(
            Accessed(at_ms=at_ms, node="n", kind="write", key="k", base=base, version=f"v{n}", end_ms=at_ms + 15)
        )
        history.append(
            Accessed(at_ms=at_ms + 5, node="n", kind="read", key="k", base=None, version=f"v{n}", end_ms=at_ms + 9)
        )
    assert chain_objection(history) is None
