"""Tickets of a table server: believed by whoever has its secret, as they were made, for an hour, for that purpose."""

from __future__ import annotations

import base64
import json

import pytest

from ballista_py.errors import BallistaError, ConfigError, InvalidData, TransportError, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.security.secret_tickets import SecretTickets, read_ticket_secret
from ballista_py.transport.security.signed_tickets import SKEW_MS, TICKET_MS
from ballista_py.transport.table_read.plain_tickets import PLAIN_PURPOSE, PlainPiece, PlainTicket

TICKET = PlainTicket(
    read_id="i.r",
    client="ada",
    columns=("id", "größe"),
    as_they_are=False,
    pieces=(PlainPiece("t/a", 9, "v", 0, 2),),
)


class At(SystemRuntime):
    def __init__(self, now_ms: float) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)


def tickets(now_ms: float = 1e12, secret: str = "s" * 32, purpose: bytes = PLAIN_PURPOSE) -> SecretTickets:
    return SecretTickets(purpose=purpose, secret=Secret(secret), runtime=At(now_ms))


def changed(ticket, change):
    body = json.loads(base64.b64decode(ticket["body"]))
    change(body)
    return {**ticket, "body": base64.b64encode(json.dumps(body).encode()).decode()}


def test_whoever_has_the_secret_reads_what_was_said():
    made = tickets().issue(TICKET.to_json())
    assert PlainTicket.from_json(tickets().values(made)) == TICKET
    assert "s" * 32 not in json.dumps(made) + repr(tickets())


@pytest.mark.parametrize(
    "other",
    [tickets(secret="t" * 32), tickets(purpose=b"another"), tickets(now_ms=1e12 + TICKET_MS + SKEW_MS + 1)],
)
def test_of_another_secret_purpose_or_time_it_is_none(other):
    with pytest.raises(Unauthenticated):
        other.values(tickets().issue(TICKET.to_json()))


def test_a_ticket_of_a_clock_that_is_far_ahead_is_none():
    with pytest.raises(Unauthenticated, match="later than now"):
        tickets(now_ms=1e12 - SKEW_MS - 1_000).values(tickets().issue(TICKET.to_json()))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["plain"].update(client="bob"),
        lambda body: body["plain"]["pieces"].append(["t/secret", 9, "v", 0, 1]),
        lambda body: body["plain"].update(columns=["secret"]),
        lambda body: body.update(until_ms=2e12),
        lambda body: None,  # written otherwise
    ],
)
def test_a_changed_ticket_is_none(change):
    made = changed(tickets().issue(TICKET.to_json()), change)
    with pytest.raises(Unauthenticated, match="was changed"):
        tickets().values(made)


@pytest.mark.parametrize(
    "ticket",
    [
        {},
        {"body": "e30="},
        {"body": "e30=", "signature": ""},
        {"body": "e30=", "signature": None},
        {"body": ["e30="], "signature": "x"},
        {"body": "no base64", "signature": "x"},
        {"body": "e30=", "signature": "\ud800é"},
        {"body": "e30=", "signature": "x", "certificate": "x"},
    ],
)
def test_whatever_else_is_sent_is_none(ticket):
    with pytest.raises(Unauthenticated):
        tickets().values(ticket)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"plain": 3},
        {"plain": {**TICKET.to_json()["plain"], "more": 1}},
        {"plain": {**TICKET.to_json()["plain"], "as_they_are": 1}},
        {"plain": {**TICKET.to_json()["plain"], "columns": [1]}},
        {"plain": {**TICKET.to_json()["plain"], "pieces": [["t/a", 9, "v", 0]]}},
        {"plain": {**TICKET.to_json()["plain"], "pieces": [["t/a", 9, "v", -1, 1]]}},
        {"plain": {**TICKET.to_json()["plain"], "pieces": [["t/a", True, "v", 0, 1]]}},
        {"plain": {**TICKET.to_json()["plain"], "pieces": ["t/a"]}},
        {"read": {"read_id": "r", "digest": "d", "part": 0, "client": "", "anywhere": True}},
    ],
)
def test_a_ticket_that_says_something_else_is_none(said):
    with pytest.raises(Unauthenticated, match="none for plain files"):
        PlainTicket.from_json(tickets().values(tickets().issue(said)))


def test_bytes_by_chance_are_none():
    for text in (b"", b"{}", b"[]", b"\xff" * 40, b'{"a":' * 50):
        ticket = {"body": base64.b64encode(text).decode(), "signature": tickets()._signature(text)}
        with pytest.raises((Unauthenticated, InvalidData, TransportError)) as found:
            PlainTicket.from_json(tickets().values(ticket))
        assert isinstance(found.value, BallistaError)


def test_a_secret_file_is_a_long_text(tmp_path):
    file = tmp_path / "secret"
    file.write_text("  " + "x" * 32 + "\n")
    assert read_ticket_secret(str(file)).reveal() == "x" * 32
    for data, said in ((b"x" * 31, "fewer than 32"), (b"\xff" * 40, "not UTF-8")):
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=said):
            read_ticket_secret(str(file))
    file.write_bytes(b"x" * 32)
    file.chmod(0o606)
    with pytest.raises(ConfigError, match="written by everybody"):
        read_ticket_secret(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_ticket_secret(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_ticket_secret(str(tmp_path))
