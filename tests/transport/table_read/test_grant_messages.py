"""What Agent and Client say arrives as it was said, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import InvalidData
from ballista_py.transport.table_read.grant_messages import (
    AskForWork,
    agent_bytes,
    agent_word,
    client_bytes,
    client_word,
)
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tokens.messages import (
    CutAnswer,
    DoneReply,
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    Replanned,
    ReportReply,
    SnapshotLost,
    WaitForWork,
)
from ballista_py.transport.table_read.tokens.positions import START, Position, RowRange, Sections

names = st.text("abc0-é", min_size=1, max_size=128)
clients = st.builds(ReaderId, names, names)
places = st.builds(Position, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1))
ranges = st.builds(RowRange, places, st.none() | places)
numbers = st.integers(0, (1 << 32) - 1)
texts = st.text(max_size=50)
locations = st.lists(st.builds(ReadLocation, uri=texts, priority=st.integers(0, 9)), max_size=3).map(tuple)
ME = ReaderId("me", "1")


@st.composite
def parts(draw):
    """Some rows of sections that have rows."""
    sections = Sections((*draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)), 1))
    start = draw(st.integers(0, sections.total - 1))
    end = draw(st.integers(start + 1, sections.total))
    return {"sections": sections, "rows": RowRange(sections.at(start), sections.at(end))}


grants = st.builds(
    lambda part, **values: ReadGrant(**part, **values),
    st.just({"sections": None, "rows": RowRange(START, None)}) | parts(),
    job=texts,
    token=names,
    ancestors=st.lists(names, max_size=5).map(tuple),
    client=clients,
    partition=numbers,
    snapshot=texts,
    ticket=st.binary(max_size=20),
    locations=locations,
)
client_words = st.one_of(
    st.builds(AskForWork, clients),
    st.builds(ReadReport, token=names, client=clients, position=places),
    st.builds(CutAnswer, token=names, client=clients, cut_id=names, end=places),
    st.builds(ReadDone, token=names, client=clients, rows=ranges),
    st.builds(GaveUp, token=names, client=clients),
    st.builds(ReplanAsked, token=names, client=clients, partition=numbers, snapshot=texts),
    st.builds(SnapshotLost, token=names, client=clients, snapshot=texts),
)
agent_words = st.one_of(
    grants,
    st.builds(WaitForWork, st.integers(0, 1 << 40)),
    st.just(NoMoreWork()),
    st.builds(ReportReply, token=st.just("t"), is_live=st.booleans(), cut_id=st.none() | names),
    st.builds(
        DoneReply, token=st.just("t"), outcome=st.sampled_from(["counted", "again", "superseded", "refused"])
    ),
    st.builds(Replanned, token=st.just("t"), snapshot=texts, ticket=st.binary(max_size=9), locations=locations),
    st.none(),
)


@given(client_words)
def test_what_a_client_says_arrives_as_it_was(word):
    assert client_word(client_bytes(word)) == word


@given(agent_words)
def test_what_an_agent_says_arrives_as_it_was(word):
    assert agent_word(agent_bytes(word), "t") == word


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_invalid(data):
    for read in (client_word, lambda data: agent_word(data, "t")):
        try:
            read(data)
        except InvalidData:
            continue


WHO = pb.ReaderName(name="n", instance="i")


@pytest.mark.parametrize(
    "said",
    [
        pb.ToAgent(client=WHO, token="t"),  # it says nothing
        pb.ToAgent(ask=pb.AskForRows()),  # nobody says it
        pb.ToAgent(client=pb.ReaderName(name="n"), ask=pb.AskForRows()),
        pb.ToAgent(client=pb.ReaderName(name="n" * 129, instance="i"), ask=pb.AskForRows()),
        pb.ToAgent(client=WHO, gave_up=pb.GiveUp()),  # of no grant
        pb.ToAgent(client=WHO, token="t" * 129, gave_up=pb.GiveUp()),
        pb.ToAgent(client=WHO, token="t", cut=pb.CutEnd()),
    ],
)
def test_what_a_client_cannot_say_is_refused(said):
    with pytest.raises(InvalidData):
        client_word(said.SerializeToString())


def grant(**changed):
    said = pb.Grant(
        token="t", client=WHO, has_sections=True, section_rows=[3], rows=pb.Rows(end=pb.Position(row=2))
    )
    for name, value in changed.items():
        if isinstance(value, list):
            del getattr(said, name)[:]
            getattr(said, name).extend(value)
        elif name == "rows":
            said.rows.CopyFrom(value)
        else:
            setattr(said, name, value)
    return pb.FromAgent(grant=said)


@pytest.mark.parametrize(
    "said",
    [
        pb.FromAgent(),
        pb.FromAgent(counted=pb.Counted()),
        grant(token=""),
        grant(ancestors=[str(n) for n in range(65)]),
        grant(rows=pb.Rows()),  # without an end
        grant(rows=pb.Rows(end=pb.Position())),  # no rows
        grant(rows=pb.Rows(end=pb.Position(row=9))),  # no place
        grant(section_rows=[]),
    ],
)
def test_what_an_agent_cannot_say_is_refused(said):
    with pytest.raises(InvalidData):
        agent_word(said.SerializeToString(), "t")


def test_a_grant_of_some_rows_is_fine():
    assert agent_word(grant().SerializeToString(), "t").rows == RowRange(START, Position(0, 2))


@pytest.mark.parametrize("word", [AskForWork(ME), GaveUp(token="t", client=ME)])
def test_words_without_more_have_bytes(word):
    assert client_bytes(word)
