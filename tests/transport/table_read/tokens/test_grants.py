"""The Agent: whatever Clients say, in whatever order, each row is counted once, under a grant that lives."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import InvalidData, SnapshotGone
from ballista_py.runtime import seeded_chance
from ballista_py.testing.models.table_read_nodes import VirtualTime
from ballista_py.transport.table_read.tokens.exchange import MAX_ANCESTORS
from ballista_py.transport.table_read.tokens.grants import DEAD_MS, LEASE_MS, ReadAgent, spread
from ballista_py.transport.table_read.tokens.messages import (
    AgentPartition,
    CutAnswer,
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    SnapshotLost,
    WaitForWork,
)
from ballista_py.transport.table_read.tokens.positions import START, Position, RowRange, Sections, is_covered

A, B, C = (ReaderId(name, "1") for name in "abc")
AT = (ReadLocation(uri="s1"), ReadLocation(uri="s2"))


def partition(number, *rows, whole=False):
    return AgentPartition(
        number=number, ticket=b"t", locations=AT, sections=None if whole else Sections(rows or (10, 10))
    )


def agent_of(time, *partitions, **settings):
    return ReadAgent("job", "s", partitions or [partition(0)], time, min_cut_rows=4, **settings)


def done(grant, rows=None):
    return ReadDone(token=grant.token, client=grant.client, rows=rows or grant.rows)


def report(grant, position=START, client=None):
    return ReadReport(token=grant.token, client=client or grant.client, position=position)


def cut_of(agent, grant, position=START):
    """The cut that another Client asks for."""
    return agent.reported(report(grant, position)).cut_id


def answer(grant, cut_id, end):
    return CutAnswer(token=grant.token, client=grant.client, cut_id=cut_id, end=end)


def test_a_job_ends_when_every_partition_was_counted(time):
    agent = agent_of(time, partition(0), partition(1, whole=True), partition(2, 0, 0))
    grants = [agent.ask(A), agent.ask(B)]
    assert [grant.rows for grant in grants] == [RowRange(START, Position(2, 0)), RowRange(START, None)]
    assert agent.done(done(grants[0])).outcome == "counted"
    assert not agent.has_ended
    assert agent.done(done(grants[1])).outcome == "counted"
    assert agent.has_ended
    assert agent.counted_tokens == {grant.token for grant in grants}
    assert agent.ask(A) == NoMoreWork()


def test_a_grant_counts_once_and_its_done_is_answered_each_time(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    replies = [agent.done(done(grant)) for _ in range(3)]
    assert [reply.outcome for reply in replies] == ["counted", "again", "again"]
    assert all(reply.counts for reply in replies)
    assert agent.ranges(0).counted == (grant.rows,)


def test_an_ask_whose_answer_was_lost_gives_the_same_grant(time):
    agent = agent_of(time, partition(0), partition(1))
    assert agent.ask(A) == agent.ask(A)
    assert agent.ask(B).partition == 1


def test_rows_of_a_superseded_grant_never_count(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    time.now_ms = DEAD_MS + 1
    agent.tick()
    reply = agent.done(done(grant))
    assert (reply.outcome, reply.counts) == ("superseded", False)
    assert agent.ranges(0).counted == ()
    assert agent.done(done(agent.ask(B))).counts
    assert agent.done(done(grant)).outcome == "superseded"
    assert agent.has_ended


def test_a_client_is_taken_for_dead_only_after_it_was_silent(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    time.now_ms = DEAD_MS
    agent.tick()
    assert agent.reported(report(grant)).is_live
    time.now_ms = 2 * DEAD_MS
    agent.tick()
    assert agent.reported(report(grant)).is_live
    time.now_ms = 3 * DEAD_MS + 1
    agent.tick()
    assert not agent.reported(report(grant)).is_live


def test_whatever_a_client_says_about_its_grant_is_a_sign_of_life(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    cut_id = cut_of(agent, grant)
    asked = ReplanAsked(token=grant.token, client=A, partition=0, snapshot="s")
    for says in (
        lambda: agent.was_cut(answer(grant, cut_id, Position(1, 0))),
        lambda: agent.replanned(asked, "s", b"", AT),
        lambda: agent.reported(report(grant)),
    ):
        time.now_ms += DEAD_MS
        says()
        agent.tick()
        assert agent.live_tokens == {grant.token}


def test_a_successor_names_all_that_were_superseded_before_it(time):
    agent = agent_of(time)
    tokens = []
    for _ in range(MAX_ANCESTORS + 3):
        grant = agent.ask(A)
        assert grant.ancestors == tuple(tokens[-MAX_ANCESTORS:])
        assert grant.rows == RowRange(START, Position(2, 0))
        tokens.append(grant.token)
        time.now_ms += DEAD_MS + 1
        agent.tick()


def test_what_a_done_does_not_name_is_granted_anew_to_a_sibling(time):
    agent = agent_of(time)
    agent.gave_up(GaveUp(token=(first := agent.ask(A)).token, client=A))
    grant = agent.ask(A)
    assert agent.done(done(grant, RowRange(START, Position(0, 4)))).outcome == "counted"
    rest = agent.ask(B)
    assert rest.rows == RowRange(Position(0, 4), Position(2, 0))
    assert rest.ancestors == (first.token,)
    assert not agent.has_ended
    agent.done(done(rest))
    assert agent.has_ended


@pytest.mark.parametrize(
    "rows",
    [
        RowRange(START, None),
        RowRange(START, Position(2, 1)),
        RowRange(START, START),
        RowRange(START, Position(0, 10)),  # not the name of that place
        RowRange(Position(0, 1), Position(2, 0)),
    ],
)
def test_a_done_that_is_not_of_its_grant_counts_nothing_and_ends_it(time, rows):
    agent = agent_of(time)
    grant = agent.ask(A)
    assert agent.done(done(grant, rows)).outcome == "refused"
    assert agent.done(done(grant)).outcome == "superseded"
    assert agent.ask(B).ancestors == (grant.token,)


def test_a_partition_that_is_read_whole_is_not_counted_in_parts(time):
    agent = agent_of(time, partition(0, whole=True))
    grant = agent.ask(A)
    assert agent.done(done(grant, RowRange(START, Position(0, 5)))).outcome == "refused"
    assert agent.ask(B).rows == RowRange(START, None)


def test_nobody_speaks_for_another_client_or_another_instance(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    cut_id = cut_of(agent, grant)
    for stranger in (B, ReaderId("a", "2")):
        assert not agent.reported(report(grant, client=stranger)).is_live
        assert agent.done(evolve(done(grant), client=stranger)).outcome == "superseded"
        agent.gave_up(GaveUp(token=grant.token, client=stranger))
        agent.was_cut(evolve(answer(grant, cut_id, Position(0, 3)), client=stranger))
        asked = ReplanAsked(token=grant.token, client=stranger, partition=0, snapshot="s")
        assert agent.replanned(asked, "s", b"", ()) is None
    assert agent.ranges(0).live == (grant.rows,)


def test_a_client_that_was_restarted_begins_with_nothing(time):
    agent = agent_of(time)
    grant, again = agent.ask(A), ReaderId("a", "2")
    successor = agent.ask(again)
    assert successor.ancestors == (grant.token,)
    assert successor.token != grant.token
    assert agent.done(done(grant)).outcome == "superseded"
    assert agent.ask(A) == NoMoreWork()  # what the former instance said comes late
    assert agent.ask(again).token == successor.token


def test_work_is_cut_for_an_idle_client_where_its_reader_says(time):
    agent = agent_of(time, partition(0), partition(1))
    little, much = agent.ask(A), agent.ask(B)
    agent.reported(report(little, Position(1, 5)))
    assert agent.ask(C) == WaitForWork(1_000.0)
    assert cut_of(agent, little) is None
    cut_id = cut_of(agent, much)
    assert cut_id is not None
    assert cut_of(agent, much) == cut_id  # until it is answered
    agent.was_cut(answer(much, "another", Position(0, 4)))
    assert agent.ranges(1).live == (much.rows,)
    agent.was_cut(answer(much, cut_id, Position(1, 2)))
    agent.was_cut(answer(much, cut_id, Position(0, 1)))  # an answer that comes twice is none
    stolen = agent.ask(C)
    assert (stolen.partition, stolen.rows) == (1, RowRange(Position(1, 2), Position(2, 0)))
    assert stolen.ancestors == ()
    assert agent.done(done(much, RowRange(START, Position(1, 2)))).counts
    assert agent.done(done(stolen)).counts


def test_a_done_behind_its_own_cut_is_refused(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    agent.was_cut(answer(grant, cut_of(agent, grant), Position(1, 0)))
    assert agent.done(done(grant)).outcome == "refused"


def test_whoever_takes_a_part_of_a_successor_names_what_that_names(time):
    agent = agent_of(time)
    dead = agent.ask(A)
    agent.gave_up(GaveUp(token=dead.token, client=A))
    grant = agent.ask(A)
    agent.ask(B)
    agent.was_cut(answer(grant, cut_of(agent, grant), Position(1, 0)))
    assert agent.ask(B).ancestors == (dead.token,)


@pytest.mark.parametrize("end", [START, Position(2, 0), Position(3, 0), Position(0, 10), Position(0, 11)])
def test_an_answer_that_parts_nothing_changes_nothing(time, end):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    agent.was_cut(answer(grant, cut_of(agent, grant), end))
    assert agent.ranges(0).every == (grant.rows,)


def test_who_cannot_be_cut_is_not_asked_again(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    agent.was_cut(answer(grant, cut_of(agent, grant), Position(2, 0)))
    agent.ask(B)
    assert cut_of(agent, grant) is None


def test_no_more_cuts_are_asked_for_than_clients_are_idle(time):
    agent = agent_of(time, partition(0), partition(1), partition(2))
    time.now_ms = DEAD_MS
    grants = [agent.ask(ReaderId(f"c{n}", "1")) for n in range(3)]
    for _ in range(5):
        agent.ask(A)
        agent.tick()
    assert [cut_of(agent, grant) is not None for grant in grants].count(True) == 1
    agent.ask(B)
    assert [cut_of(agent, grant) is not None for grant in grants].count(True) == 2
    time.now_ms = 2 * DEAD_MS + 1
    [agent.reported(report(grant)) for grant in grants]
    agent.tick()
    agent.ask(C)  # the others are idle no more: nobody has heard of them
    assert [cut_of(agent, grant) is not None for grant in grants].count(True) == 2


def test_what_has_few_rows_left_or_is_read_whole_is_not_cut(time):
    agent = agent_of(time, partition(0, 5), partition(1, whole=True))
    little, whole = agent.ask(A), agent.ask(B)
    agent.reported(report(little, Position(0, 2)))
    assert isinstance(agent.ask(C), WaitForWork)
    assert cut_of(agent, little) is None
    assert cut_of(agent, whole) is None


def test_a_report_moves_a_grant_forward_only_and_within_it(time):
    agent = agent_of(time, partition(0, 9))
    grant = agent.ask(A)
    for place in (Position(0, 6), Position(0, 1), Position(7, 7), Position(0, 9)):
        agent.reported(report(grant, place))
    agent.ask(B)
    assert cut_of(agent, grant) is None  # 3 rows are left, not 8


def test_the_part_that_was_cut_off_is_given_to_nobody_twice(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.ask(B)
    agent.was_cut(answer(grant, cut_of(agent, grant), Position(1, 0)))
    assert agent.ask(A).rows == RowRange(START, Position(1, 0))  # the grant as it is now
    assert agent.ask(B).rows == RowRange(Position(1, 0), Position(2, 0))
    assert isinstance(agent.ask(C), WaitForWork)


def test_a_replan_keeps_the_snapshot_or_the_job_is_over(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    asked = ReplanAsked(token=grant.token, client=A, partition=0, snapshot="s")
    at = (ReadLocation(uri="s9"),)
    replanned = agent.replanned(asked, "s", b"new", at)
    assert (replanned.ticket, replanned.locations, replanned.snapshot) == (b"new", at, "s")
    with pytest.raises(SnapshotGone):
        agent.replanned(asked, "newer", b"", at)
    agent.gave_up(GaveUp(token=grant.token, client=A))
    successor = agent.ask(B)
    assert (successor.ticket, successor.locations) == (b"new", at)


def test_a_snapshot_that_is_gone_ends_the_job_and_never_gives_newer_rows(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.snapshot_lost(SnapshotLost(token=grant.token, client=A, snapshot="other"))
    agent.require()
    agent.snapshot_lost(SnapshotLost(token=grant.token, client=A, snapshot="s"))
    with pytest.raises(SnapshotGone):
        agent.ask(B)
    with pytest.raises(SnapshotGone):
        agent.require()
    assert not agent.reported(report(grant)).is_live
    time.now_ms = LEASE_MS
    assert not agent.tick()


def test_a_job_that_has_ended_does_not_mind_that_its_snapshot_goes(time):
    agent = agent_of(time)
    grant = agent.ask(A)
    agent.done(done(grant))
    agent.snapshot_lost(SnapshotLost(token=grant.token, client=A, snapshot="s"))
    agent.require()


def test_the_lease_is_renewed_from_when_it_was_asked_for_until_the_job_ends(time):
    agent = agent_of(time, lease_ms=900.0)
    assert not agent.tick()
    time.now_ms = 300.0
    assert agent.tick()
    assert agent.tick()  # until it was
    time.now_ms = 500.0
    agent.renewed(300.0)
    agent.renewed(100.0)  # the answer to an earlier one comes late
    assert not agent.tick()
    time.now_ms = 599.0
    assert not agent.tick()
    time.now_ms = 600.0
    assert agent.tick()
    agent.done(done(agent.ask(A)))
    assert not agent.tick()


def test_partitions_of_one_number_are_refused(time):
    with pytest.raises(InvalidData):
        agent_of(time, partition(0), partition(0))


def test_equal_clients_spread_over_equal_locations():
    locations = [ReadLocation(uri=f"s{n}") for n in range(4)]
    first = Counter(spread(locations, f"client-{n}")[0].uri for n in range(400))
    assert len(first) == 4
    assert min(first.values()) > 60
    assert max(first.values()) < 140


def test_a_location_that_is_used_less_is_asked_before_others_of_its_priority():
    near, other, far = ReadLocation(uri="n"), ReadLocation(uri="o"), ReadLocation(uri="f", priority=1)
    assert spread([far, near, other], "c", {"n": 2, "o": 1}) == (other, near, far)
    assert spread([far, other, near], "c", {"o": 2, "n": 1}) == (near, other, far)


def test_grants_of_one_job_are_spread_over_its_servers(time):
    agent = agent_of(time, *(partition(n) for n in range(8)))
    first = Counter(agent.ask(ReaderId(f"c{n}", "1")).locations[0].uri for n in range(8))
    assert first == {"s1": 4, "s2": 4}


def test_grants_that_are_over_use_no_server(time):
    agent = agent_of(time, *(partition(n) for n in range(5)))
    first = agent.ask(A)
    other = agent.ask(B)
    assert first.locations[0] != other.locations[0]
    agent.done(done(first))
    assert agent.ask(C).locations[0] == first.locations[0]


@pytest.mark.parametrize("name", "defghi")
def test_a_grant_that_was_planned_anew_uses_the_server_that_it_goes_to(time, name):
    agent = agent_of(time, evolve(partition(0), locations=AT[:1]), partition(1))
    grant = agent.ask(A)
    asked = ReplanAsked(token=grant.token, client=A, partition=0, snapshot="s")
    agent.replanned(asked, "s", b"", AT[1:])
    assert agent.ask(ReaderId(name, "1")).locations == AT


def test_a_grant_that_has_no_location_any_more_uses_no_server(time):
    agent = agent_of(time, *(partition(n) for n in range(4)))
    grant = agent.ask(A)
    asked = ReplanAsked(token=grant.token, client=A, partition=grant.partition, snapshot="s")
    agent.replanned(asked, "s", b"", ())
    firsts = {agent.ask(client).locations[0] for client in (B, C)}
    assert firsts == set(AT)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "report", "cut", "done", "part", "gave up", "late", "restart", "tick", "dead"]
        ),
        st.integers(0, 3),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(EVENTS, st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=3))
def test_ranges_are_disjoint_and_complete_after_every_event_and_the_job_can_end(events, shapes):
    time = VirtualTime(seeded_chance(0))
    partitions = [partition(number, *rows) if rows else partition(number, 0) for number, rows in enumerate(shapes)]
    agent = agent_of(time, *partitions, partition(9, whole=True))
    held: dict[int, list[ReadGrant]] = {n: [] for n in range(4)}
    instance = dict.fromkeys(range(4), 1)
    counted: list[tuple[int, RowRange]] = []

    def say(grant, rows):
        if agent.done(done(grant, rows)).outcome == "counted":
            counted.append((grant.partition, rows))

    for event, who, number in events:
        client = ReaderId(f"c{who}", str(instance[who]))
        last = held[who][-1] if held[who] else None
        match event:
            case "ask":
                work = agent.ask(client)
                held[who] += [work] if isinstance(work, ReadGrant) else []
            case "restart":
                instance[who] += 1
            case "dead":
                time.now_ms += DEAD_MS / 2 * (1 + number % 3)
                agent.tick()
            case "tick":
                agent.tick()
            case _ if last is None:
                continue
            case "report" | "cut":
                sections = last.sections or Sections((30,))
                place = sections.at(min(number, sections.total))
                reply = agent.reported(report(last, place))
                if event == "cut" and reply.cut_id:
                    agent.was_cut(answer(last, reply.cut_id, place))
            case "done":
                say(
                    last,
                    next(
                        (rows for rows in agent.ranges(last.partition).live if rows.start == last.rows.start),
                        last.rows,
                    ),
                )
            case "part" if last.sections is not None:
                say(last, RowRange(last.rows.start, last.sections.at(min(number, last.sections.total))))
            case "gave up":
                agent.gave_up(GaveUp(token=last.token, client=last.client))
            case "late":
                say(held[who][number % len(held[who])], last.rows)
        for one in partitions:
            assert is_covered(agent.ranges(one.number).every, one.rows.start, one.rows.end) or (
                one.rows.start == one.rows.end
            )
    while not agent.has_ended:
        time.now_ms += DEAD_MS + 1
        agent.tick()
        grant = agent.ask(ReaderId("last", "1"))
        say(grant, grant.rows)
    for one in (*partitions, partition(9, whole=True)):
        ranges = [rows for number, rows in counted if number == one.number]
        assert is_covered(ranges, one.rows.start, one.rows.end)
        assert Counter(ranges) == Counter(agent.ranges(one.number).counted)
