"""User and password at a handshake: what is a client's, what its token is good for, and for how long."""

from __future__ import annotations

import base64

import pytest

from ballista_py.errors import Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.passwords import (
    HANDSHAKE_S,
    MAX_CREDENTIALS_CHARS,
    Passwords,
    basic_credentials,
)

TOKENS = {"a" * 20: "ada", "b" * 20: "bob"}


class Known:
    def verify(self, token):
        if token not in TOKENS:
            raise Unauthenticated("the token is not valid")
        return TOKENS[token]


class Clock(SystemRuntime):
    now_ms = 1_000.0

    def monotonic_ms(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def passwords(clock):
    return Passwords(Known(), clock)


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_client_that_proves_both_is_known_by_the_token_it_is_given(passwords):
    name, token = passwords.introduced(basic("ada", "a" * 20))
    assert name == passwords.verify(token) == "ada"
    assert "a" * 20 not in token
    assert passwords.verify("b" * 20) == "bob"  # plain tokens count as ever


@pytest.mark.parametrize(
    "shown",
    [basic("ada", "b" * 20), basic("", "a" * 20), basic("ada", ""), basic("nobody", "nothing"), basic("", ""),
     basic("ada\0", "a" * 20), basic("ADA", "a" * 20)],
)  # fmt: skip
def test_whatever_is_wrong_is_told_in_the_same_words(passwords, shown):
    with pytest.raises(Unauthenticated) as raised:
        passwords.introduced(shown)
    assert "are not those of a client" in str(raised.value)


@pytest.mark.parametrize(
    "shown",
    ["", "Basic", "Basic ", "Basic !!!", "Basic " + "QQ==" * MAX_CREDENTIALS_CHARS,
     "Basic " + base64.b64encode(b"\xff:\xff").decode(), "Basic " + base64.b64encode(b"no colon").decode()],
)  # fmt: skip
def test_what_is_no_user_and_password_is_refused(shown):
    with pytest.raises(Unauthenticated):
        basic_credentials(shown)


def test_a_token_of_a_handshake_ends_with_its_time(passwords, clock):
    _, token = passwords.introduced(basic("ada", "a" * 20))
    clock.now_ms += HANDSHAKE_S * 1e3 - 1_000
    assert passwords.verify(token) == "ada"
    clock.now_ms += 3_000
    with pytest.raises(Unauthenticated, match="connect again"):
        passwords.verify(token)


def test_it_ends_with_the_password(passwords, monkeypatch):
    _, token = passwords.introduced(basic("ada", "a" * 20))
    monkeypatch.delitem(TOKENS, "a" * 20)
    with pytest.raises(Unauthenticated):
        passwords.verify(token)


def test_it_is_good_at_no_other_scheduler_and_not_when_it_was_changed(passwords, clock):
    _, token = passwords.introduced(basic("ada", "a" * 20))
    for shown in (token[:-4] + "AAAA", token[:40], "handshake.", "handshake.é"):
        with pytest.raises(Unauthenticated, match="handshake"):
            passwords.verify(shown)
    with pytest.raises(Unauthenticated, match="at the scheduler that gave it"):
        Passwords(Known(), clock).verify(token)


def test_the_signs_at_the_end_may_be_left_out_as_drivers_in_go_do():
    assert basic_credentials(basic("ada", "secret").rstrip("=")) == ("ada", "secret")
    assert basic_credentials(basic("ada", "with:colon")) == ("ada", "with:colon")


def test_a_client_that_shows_its_token_instead_is_known_by_it_and_another_one_is_not(passwords):
    assert passwords.introduced("Bearer " + "a" * 20) == ("ada", "a" * 20)
    name, token = passwords.introduced(basic("bob", "b" * 20))
    assert passwords.introduced(f"Bearer {token}") == (name, token)
    for shown in ("Bearer", "Bearer ", "Bearer " + "c" * 20, "Bearer handshake.x"):
        with pytest.raises(Unauthenticated):
            passwords.introduced(shown)
