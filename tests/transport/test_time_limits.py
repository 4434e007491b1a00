"""Calls that end with their time, whoever set the limit, and commands that carry what is left of it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ballista_py.errors import SqlError, TimeLimit, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.commands import RELOAD, SETTLE, as_part, time_limit
from ballista_py.transport.flight_sql import sessions
from ballista_py.transport.flight_sql.messages import message, read
from ballista_py.transport.flight_sql.sessions import run_session_action, session_of, timeout_ms
from ballista_py.work import Work, working


def test_a_call_that_outlasts_the_limit_of_the_port_ends_and_its_work_stops(serve, pool):
    served = serve(time_limit_ms=300)
    with pytest.raises(TimeLimit, match="raise statement_timeout_ms"):
        list(pool.open_stream(served.address, {"think": True}))
    assert served.handler.cancelled.wait(30)


def test_a_stream_ends_amid_its_rows_with_the_limit_that_it_asked_for(serve, pool):
    served = serve(time_limit_ms=3_600_000)
    command = {"batches": 1_000_000, "pause_s": 0.05, "time_limit_ms": 300}
    with pytest.raises(TimeLimit, match=r"after 0\.3 s"):
        list(pool.open_stream(served.address, command))
    assert served.handler.cancelled.wait(30)


def test_work_that_sees_first_that_its_time_is_over_is_told_so_too(kit, serve, pool):
    class Hasty(kit.Numbers):
        def stream(self, command, context):
            with suppress(TimeLimit):
                while True:
                    context.work.check()
            raise TransportError("The query was cancelled")

    served = serve(Hasty(), clock=SystemRuntime(), time_limit_ms=50)  # nobody ticks
    with pytest.raises(TimeLimit, match="statement_timeout_ms"):
        list(pool.open_stream(served.address, {}))


def test_nobody_gets_more_time_than_the_port_allows(serve, pool):
    served = serve(time_limit_ms=300)
    with pytest.raises(TimeLimit, match=r"after 0\.3 s"):
        list(pool.open_stream(served.address, {"think": True, "time_limit_ms": 3_600_000}))


def test_without_a_limit_there_is_none(serve, pool):
    assert len(list(pool.open_stream(serve().address, {"batches": 5, "pause_s": 0.1}))) == 5


@pytest.mark.parametrize("limit", [0, -1, "30", True, [], float("nan"), float("inf")])
def test_a_limit_that_is_no_duration_is_refused(limit):
    with pytest.raises(SqlError, match="positive number"):
        time_limit({"time_limit_ms": limit})


def test_what_is_left_of_the_time_goes_with_commands_but_not_with_what_is_decided(serve, pool):
    served = serve()
    work = Work(SystemRuntime())
    with working(work):
        list(pool.open_stream(served.address, {"batches": 1}))
        work.limit_to(60_000)
        list(pool.open_stream(served.address, {"batches": 1}))
        assert "time_limit_ms" not in as_part({"kind": SETTLE}) | as_part({"kind": RELOAD})
    list(pool.open_stream(served.address, {"batches": 1}))
    before, amid, after = served.handler.commands
    assert "time_limit_ms" not in before.keys() | after.keys()
    assert 0 < amid["time_limit_ms"] <= 60_500


def session_of_cookie(cookie=None):
    return session_of({} if cookie is None else {"cookie": [cookie]}, SystemRuntime().new_id)


def session_with(given):
    request = message("SetSessionOptionsRequest")
    option = request.session_options[sessions.TIMEOUT]
    setattr(option, "string_value" if isinstance(given, str) else "int64_value", given)
    cookie = session_of_cookie().headers()["set-cookie"].partition(";")[0]
    known = session_of_cookie(cookie)
    answer, after = run_session_action("SetSessionOptions", request.SerializeToString(), known)
    return after, read("SetSessionOptionsResult", answer).errors


@pytest.mark.parametrize(("given", "limit_ms"), [(1500, 1500.0), ("1500", 1500.0), ("", None), (0, None)])
def test_a_session_limits_its_statements_on_every_scheduler(given, limit_ms):
    session, errors = session_with(given)
    assert not errors
    assert timeout_ms(session) == limit_ms
    assert timeout_ms(session_of_cookie(f"{sessions.COOKIE}={session.cookie}")) == limit_ms


@pytest.mark.parametrize("given", ["soon", "-1", "1e400", "5 s", "９", -1])
def test_a_session_takes_no_limit_that_is_no_number_of_milliseconds(given):
    session, errors = session_with(given)
    assert errors[sessions.TIMEOUT].value == 2
    assert timeout_ms(session) is None
