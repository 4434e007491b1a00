"""A call for another executor is refused, and said among all that the port refuses: not a line each."""

import asyncio
import logging

import pytest

from ballista_py.errors import Unauthenticated
from ballista_py.transport.control.service import ControlService


class Aborted(Exception):
    pass


class Context:
    def peer(self) -> str:
        return "ipv4:10.0.0.1:7"

    async def abort(self, _status, _said):
        raise Aborted


class Nobody:
    removed = None

    def check_speaks_for(self, _context, executor_id):
        raise Unauthenticated(f"not '{executor_id}'")


def test_refused_calls_go_to_the_refusals_of_the_port(caplog):
    refused = []

    async def call():
        service = ControlService(
            "s1", None, None, 1.0, 1.0, Nobody(), "", lambda peer, why: refused.append((peer, str(why)))
        )
        for _ in range(50):
            with pytest.raises(Aborted):
                await service._admit(Context(), "executor-1")

    with caplog.at_level(logging.DEBUG):
        asyncio.run(call())
    assert refused == [("ipv4:10.0.0.1:7", "not 'executor-1'")] * 50
    assert "refused" not in caplog.text
