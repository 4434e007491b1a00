"""What became of a write whose reply was lost, for every case that a later read of the document can show."""

from __future__ import annotations

import pytest

from ballista_py.state.documents.codec import RECENT_COMMITS, Decoded, Header
from ballista_py.state.documents.landing import Attempt, Landing, Read, judge

MINE = "mine"


def header(revision, commits):
    return Header(
        kind="t",
        schema_version=1,
        revision=revision,
        commit_id=commits[-1],
        committed_by="",
        updated_at_ms=0,
        recent_commits=commits,
    )


def attempt(base_version="v1", blind=False):
    return Attempt(document=None, header=header(5, (MINE,)), data=b"", base_version=base_version, blind=blind)


def read(revision, version="v9", commits=("other",)):
    return Read(decoded=Decoded(header=header(revision, commits), document=None, raw={}), version=version)


@pytest.mark.parametrize(
    ("tried", "current", "fate"),
    [
        (attempt(), read(6, commits=(MINE, "other")), Landing.LANDED),
        (attempt(), read(4, version="v1"), Landing.PENDING),
        (attempt(), read(4, version="v0"), Landing.UNKNOWN),  # older than what it was made from
        (attempt(), read(5), Landing.LOST),
        (attempt(), read(5 + RECENT_COMMITS - 1), Landing.LOST),
        (attempt(), read(5 + RECENT_COMMITS), Landing.UNKNOWN),  # mine may have been there and be forgotten
        (attempt(base_version=None), None, Landing.PENDING),
        (attempt(), None, Landing.LOST),
        (attempt(blind=True), None, Landing.UNKNOWN),  # it may have landed before the object was removed
    ],
)
def test_a_later_read_tells_as_much_of_a_write_as_it_can_and_no_more(tried, current, fate):
    assert judge(tried, current) is fate


def test_an_attempt_counts_as_answered_until_a_reply_is_lost():
    assert (
        judge(Attempt(document=None, header=attempt().header, data=b"", base_version="v1"), None) is Landing.LOST
    )
