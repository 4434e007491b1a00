"""The one table that says what an error is to clients that know nothing of our tree."""

from __future__ import annotations

import re

import pytest

from ballista_py import errors
from ballista_py.errors import BallistaError, NotOwner, RetriesExhausted, TableAltered
from ballista_py.node.http.errors import error_reply
from ballista_py.transport.flight.errors import to_flight
from ballista_py.transport.flight_sql.status import to_status
from ballista_py.transport.statuses import PLAINER, STATUSES, status_of

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BallistaError)]


def every_class(kind=BallistaError):
    yield kind
    for below in kind.__subclasses__():
        yield from every_class(below)


def test_each_class_of_errors_has_a_row_and_no_other_one_is_of_this_project():
    assert set(STATUSES) == set(ALL)
    ours = {kind for kind in every_class() if kind.__module__.startswith("ballista_py.")}
    assert ours == set(ALL)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_three_doors_say_what_the_table_says(kind):
    row = STATUSES[kind]
    assert to_flight(kind("no")).code == row.grpc
    assert error_reply(kind("no")).status == row.http
    said = to_status(kind("no"))
    assert (said.code, said.text) == (row.sql_grpc, f"no [SQLSTATE {row.sqlstate}]")


@pytest.mark.parametrize("row", STATUSES.values(), ids=[kind.__name__ for kind in STATUSES])
def test_a_row_is_of_one_mind(row):
    assert re.fullmatch(r"[0-9A-Z]{5}", row.sqlstate)
    assert row.sql_grpc not in PLAINER
    assert row.http != 408
    # What is the sender's to mend is no fault of the node's, in whatever words.
    assert (row.grpc in ("INVALID_ARGUMENT", "UNIMPLEMENTED")) == (row.http == 400)
    assert (row.grpc == "NOT_FOUND") == (row.http == 404)
    assert (row.grpc == "UNAUTHENTICATED") == (row.http == 401) == (row.sqlstate == "28000")
    assert row.grpc != "UNAVAILABLE" or (row.http, row.sql_grpc) == (503, "UNAVAILABLE")


def test_a_class_without_a_row_has_that_of_its_nearest_ancestor():
    class Newer(TableAltered):
        code = "ownership.not_owner.altered.newer"

    assert status_of(Newer("no")) is STATUSES[TableAltered]
    assert status_of(NotOwner("no")).http == 503
    assert status_of(OSError("no")) is STATUSES[BallistaError]


def test_a_change_that_met_too_many_others_is_to_be_sent_again():
    reply = error_reply(RetriesExhausted("no"))
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert to_status(RetriesExhausted("no")).text.endswith("[SQLSTATE 40001]")
