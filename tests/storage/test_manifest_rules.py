"""What a manifest lets happen beside a statement that is prepared in it, decided over values alone."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.errors import DocumentOlder, Fenced, InvariantViolated, TryLater, VersionConflict
from ballista_py.storage.manifest import (
    MAX_PREPARED,
    MAX_TAIL,
    RETIRED_MS,
    AppliedToken,
    DataFile,
    ManifestDocument,
    Prepared,
    Retired,
    TokenPage,
    all_files,
    objection,
)


def data(name, rows=2):
    return DataFile(path=name, rows=rows, bytes=rows)


def manifest(*prepared):
    return ManifestDocument(table="t", partition="p", epoch=1, files=(data("a"), data("b")), prepared=prepared)


@pytest.mark.parametrize(
    ("waits", "may"),
    [
        (Prepared(attempt="1", token="1", add=(data("c"),)), True),
        (Prepared(attempt="1", token="1", add=(data("c"),), exclusive=True), False),
        (Prepared(attempt="1", token="1", remove=("b",)), False),
        (Prepared(attempt="1", token="1", remove=("elsewhere",)), True),
    ],
)
def test_a_compaction_waits_for_statements_that_need_the_files_as_they_are(waits, may):
    before = manifest(waits)
    after = before.compacted([data("ab", 4)], ["a", "b"], 1)
    assert (after is not before) is may
    if may:
        assert [file.path for file in after.files] == ["ab"]
        assert after.prepared == (waits,)


def test_a_compaction_changes_no_rows_and_comes_once():
    before = manifest()
    with pytest.raises(InvariantViolated):
        before.compacted([data("ab", 3)], ["a", "b"], 1)
    after = before.compacted([data("ab", 4)], ["a", "b"], 1)
    assert after.compacted([data("ab", 4)], ["a", "b"], 1) is after


ADDS = Prepared(attempt="1", token="1", add=(data("c"),))
REPLACES_ALL = Prepared(attempt="1", token="1", add=(data("c"),), exclusive=True)
REMOVES_B = Prepared(attempt="1", token="1", remove=("b",))


@pytest.mark.parametrize(
    ("waits", "remove", "may"),
    [
        (ADDS, ["b"], True),
        (REPLACES_ALL, ["b"], False),
        (REPLACES_ALL, [], True),
        (REMOVES_B, ["b"], False),
        (REMOVES_B, ["a"], True),
        (REMOVES_B, [], True),
    ],
)
def test_nobody_removes_a_file_that_a_prepared_statement_needs(waits, remove, may):
    before = manifest(waits)
    if may:
        after = before.committed([data("d")], remove, 1, "direct")
        assert {file.path for file in after.files} == {"a", "b", "d"} - set(remove)
        assert after.prepared == (waits,)
    else:
        with pytest.raises(TryLater, match="waits for the decision"):
            before.committed([data("d")], remove, 1, "direct")


@pytest.mark.parametrize(
    ("waits", "then", "may"),
    [
        (ADDS, Prepared(attempt="2", token="2", remove=("b",)), True),
        (ADDS, Prepared(attempt="2", token="2", exclusive=True), True),
        (REPLACES_ALL, Prepared(attempt="2", token="2", add=(data("d"),)), True),
        (REPLACES_ALL, Prepared(attempt="2", token="2", remove=("b",)), False),
        (REPLACES_ALL, Prepared(attempt="2", token="2", exclusive=True), False),
        (REMOVES_B, Prepared(attempt="2", token="2", remove=("a", "b")), False),
        (REMOVES_B, Prepared(attempt="2", token="2", remove=("a",)), True),
        (REMOVES_B, Prepared(attempt="2", token="2", exclusive=True), False),
    ],
)
def test_of_two_statements_that_need_the_same_files_one_waits(waits, then, may):
    before = manifest(waits)
    if may:
        assert before.with_prepared(then, 1).prepared == (waits, then)
    else:
        with pytest.raises(TryLater, match="waits for the decision"):
            before.with_prepared(then, 1)


def test_a_statement_made_from_all_rows_is_prepared_over_those_rows_alone():
    wanted = Prepared(attempt="1", token="1", add=(data("c"),))
    assert manifest().with_prepared(wanted, 1, base=["b", "a"]).prepared == (evolve(wanted, exclusive=True),)
    for base in (["a"], ["a", "b", "c"]):
        with pytest.raises(TryLater, match="has changed"):
            manifest().with_prepared(wanted, 1, base=base)
    with pytest.raises(TryLater, match="has changed"):
        manifest().with_prepared(evolve(wanted, remove=("gone",)), 1)


@pytest.mark.parametrize(("since", "may"), [(4, False), (5, True), (6, True), (None, True)])
def test_what_must_be_alone_saw_whatever_was_alone_before_it(since, may):
    before = evolve(manifest(), alone_at=5, sequence=6)
    wanted = Prepared(attempt="1", token="1", exclusive=True)
    if may:
        assert before.with_prepared(wanted, 1, since=since).prepared == (wanted,)
    else:
        with pytest.raises(TryLater, match="has changed"):
            before.with_prepared(wanted, 1, since=since)
    shared = evolve(wanted, exclusive=False)
    assert before.with_prepared(shared, 1, since=since).prepared == (shared,)


def test_as_many_statements_wait_and_are_remembered_as_is_said_and_no_more():
    waiting = tuple(Prepared(attempt=str(n), token=str(n)) for n in range(2, MAX_PREPARED + 1))
    full = manifest(*waiting).with_prepared(ADDS, 1)
    assert len(full.prepared) == MAX_PREPARED
    with pytest.raises(TryLater, match="waits for the decision"):
        full.with_prepared(evolve(ADDS, attempt="more", token="more"), 1)
    tokens = tuple(AppliedToken(token=f"t{n}", added=0, removed=0) for n in range(MAX_TAIL - 1))
    last = evolve(manifest(), tokens=tokens).committed([], [], 1, "last")
    assert len(last.tokens) == MAX_TAIL
    for one_more in (lambda: last.committed([], [], 1, "more"), lambda: last.with_prepared(ADDS, 1)):
        with pytest.raises(TryLater, match="more statements than can be remembered"):
            one_more()
    assert last.committed([], [], 1, "last") is last


def test_a_file_that_was_replaced_is_kept_for_two_minutes_and_says_from_where_on_can_be_read():
    before = evolve(manifest(), sequence=7)
    replaced = before.committed([data("c")], ["a"], 1, "t").stamped(before, "me", 1_000)
    assert replaced.retired == (Retired(file=data("a"), removed=7, at_ms=1_000),)
    assert [file.added for file in replaced.files] == [0, 7]
    assert replaced.tokens[-1].at_ms == 1_000
    assert replaced.tokens[-1].by == "me"
    assert RETIRED_MS == 120_000
    assert replaced.current(1_000 + 119_999) is replaced
    gone = replaced.current(1_000 + 120_000)
    assert gone.retired == ()
    assert gone.readable_from == 7
    undated = evolve(before, retired=(Retired(file=data("a"), removed=7),))
    assert undated.current(10**9) is undated
    assert {file.path for file in all_files(replaced)} == {"a", "b", "c"}
    assert {file.path for file in all_files(manifest(ADDS))} == {"a", "b", "c"}


def test_a_file_that_nobody_could_have_seen_at_an_earlier_sequence_is_not_kept():
    before = evolve(manifest(), sequence=7, files=(evolve(data("a"), added=7), data("b")))
    assert before.committed([], ["a"], 1, "t").retired == ()
    assert [old.file.path for old in before.committed([], ["b"], 1, "t").retired] == ["b"]


def test_a_change_is_made_from_the_files_of_its_moment_or_not_at_all():
    new, old = evolve(data("new"), added=7), data("old")
    now = evolve(manifest(), sequence=7, files=(old, new), readable_from=3)
    assert now.files_at(None) == now.files_at(7) == now.files_at(8) == [old, new]
    assert now.files_at(6) == now.files_at(3) == [old]
    assert evolve(now, sequence=9).files_at(7) == [old, new]
    with pytest.raises(TryLater, match="has changed"):
        now.files_at(2)
    gone = evolve(now, retired=(Retired(file=evolve(data("x"), added=5), removed=6),))
    assert gone.files_at(6) == gone.files_at(4) == [old]
    with pytest.raises(TryLater, match="has changed"):
        gone.files_at(5)


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_was_decided_is_folded_in_at_its_number_or_given_up(exclusive):
    waits = Prepared(attempt="1", token="1", add=(data("c", 3),), remove=("b",), affected=9, exclusive=exclusive)
    before = evolve(manifest(waits, evolve(ADDS, attempt="2", token="2")), sequence=4, alone_at=2)
    after = before.folded("1", 1, 6)
    assert (after.sequence, after.alone_at) == (6, 6 if exclusive else 2)
    assert [(file.path, file.added) for file in after.files] == [("a", 0), ("c", 6)]
    assert after.applied("1") == AppliedToken(token="1", added=3, removed=2, affected=9)
    assert [left.attempt for left in after.prepared] == ["2"]
    assert after.folded("1", 1, 6) is after
    assert before.folded("1", 1, 3).sequence == 4
    given_up = before.abandoned("1", 1)
    assert (given_up.files, given_up.sequence) == (before.files, 4)
    assert [left.attempt for left in given_up.prepared] == ["2"]
    assert given_up.abandoned("1", 1) is given_up
    assert before.waits_for("1")
    assert not given_up.waits_for("1")
    assert (before.token_of("1"), given_up.token_of("1")) == ("1", None)
    known = before.committed([], [], 1, "1").folded("1", 1, 6)
    assert known.files == before.files
    for verb in (before.folded, before.abandoned):
        verb("1", None)
        with pytest.raises(Fenced):
            verb("1", 2)


def test_files_and_epochs_of_a_manifest_are_consistent():
    with pytest.raises(InvariantViolated, match="'c' is not in"):
        manifest().committed([], ["c"], 1, "t")
    with pytest.raises(InvariantViolated, match="'a' is already in"):
        manifest().committed([data("a")], [], 1, "t")
    with pytest.raises(InvariantViolated, match="is already in"):
        manifest().committed([data("c"), data("c")], [], 1, "t")
    for epoch in (0, 2):
        with pytest.raises(Fenced):
            manifest().committed([], [], epoch, "t")
    owned = manifest().activated(2, "me")
    assert (owned.epoch, owned.owner, owned.rows, owned.bytes) == (2, "me", 4, 4)
    assert owned.activated(2, "me") == owned
    assert owned.activated(3, "").owner == "me"
    with pytest.raises(Fenced):
        owned.activated(1, "you")
    with pytest.raises(DocumentOlder):
        owned.activated(2, "you")
    assert objection(owned, evolve(owned, epoch=1)) == "the epoch would fall from 2 to 1"
    assert objection(owned, evolve(owned, partition="q")) == "a manifest stays with its partition"
    assert objection(owned, evolve(owned, table="u")) == "a manifest stays with its partition"
    assert objection(owned, evolve(owned, epoch=2)) is None


RUN = Prepared(attempt="run", token="run", add=(data("c"),), source_position="9")


@pytest.mark.parametrize(
    ("since", "replaces", "may"),
    [
        (("8", "t"), True, True),
        (("8", "u"), True, False),
        (("7", "t"), True, False),
        (("8", "t"), False, True),
        (("8", "u"), False, True),
        (("7", "t"), False, False),
    ],
)
def test_a_run_is_prepared_over_what_it_began_from_and_beside_nothing_else(since, replaces, may):
    tokens = tuple(AppliedToken(token=token, added=0, removed=0) for token in ("first", "t"))
    before = evolve(manifest(), tokens=tokens, source_position="8")
    assert before.mark == ("8", "t")
    if not may:
        with pytest.raises(VersionConflict):
            before.with_run(RUN, since, replaces=replaces)
        return
    after = before.with_run(RUN, since, replaces=replaces)
    remove = ("a", "b") if replaces else ()
    assert after.prepared == (evolve(RUN, remove=remove, exclusive=True, outside=True),)
    assert after.files == before.files
    assert after.with_run(RUN, since, replaces=replaces) is after
    with pytest.raises(TryLater, match="waits for the decision"):
        after.with_run(evolve(RUN, attempt="next", token="next"), since, replaces=replaces)
    done = after.folded("run", None, 1)
    assert done.source_position == "9"
    assert done.with_run(evolve(RUN, attempt="again"), since, replaces=replaces) is done


def test_tokens_go_to_a_page_as_they_were_seen_and_else_stay():
    tokens = tuple(AppliedToken(token=f"t{n}", added=0, removed=0) for n in range(4))
    pages = (TokenPage(path="one", tokens=5), TokenPage(path="two", tokens=6))
    before = evolve(manifest(), tokens=tokens, pages=pages)
    page = TokenPage(path="three", tokens=8)
    after = before.with_page(page, tokens[:2], pages, pages[:1], 1)
    assert (after.tokens, after.pages) == (tokens[2:], (pages[0], page))
    assert before.with_page(page, tokens[1:3], pages, pages[:1], 1) is before
    assert before.with_page(page, tokens[:2], pages[:1], (), 1) is before
    with pytest.raises(Fenced):
        before.with_page(page, tokens[:2], pages, pages[:1], 2)


def test_who_applied_the_newest_statement_and_when_is_noted_once():
    before = manifest().committed([data("c")], [], 1, "one").stamped(manifest(), "me", 5)
    after = before.committed([data("d")], [], 1, "two").stamped(before, "you", 7)
    assert [(token.by, token.at_ms) for token in after.tokens] == [("me", 5), ("you", 7)]
    prepared = after.with_prepared(Prepared(attempt="1", token="1"), 1)
    assert prepared.stamped(after, "she", 9).tokens[-1].by == "you"
    assert after.stamped(after, "she", 9) is after
