"""Clients are known by their tokens, and no token is ever shown."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError, TryLater, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.client.client import connect
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.security.callers import Clients
from ballista_py.transport.security.tokens import StaticTokens, bearer_token

ALICE, BOB = "alice-token-0123456789", "bob-token-0123456789"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# clients\n\nalice {ALICE}\nbob {BOB}\n")
    return path


def verifier(file):
    return StaticTokens(str(file), SystemRuntime())


def pool(token):
    return FlightPool(SystemRuntime(), token=Secret(token))


def rows(pool, address, **command):
    stream = pool.open_stream(address, {"batches": 2, "rows": 10, **command}, 5_000)
    return pa.Table.from_batches(stream.batches()).num_rows


def test_a_token_says_who_the_client_is(file):
    tokens = verifier(file)
    assert (tokens.verify(ALICE), tokens.verify(BOB)) == ("alice", "bob")
    for wrong in ("", ALICE + "x", ALICE[:-1], "ü", "\ud800"):
        with pytest.raises(Unauthenticated):
            tokens.verify(wrong)


def test_a_client_with_a_token_is_answered_and_every_other_is_refused_before_the_handler_hears_of_it(
    serve, file, caplog
):
    served = serve(callers=Clients(verifier(file)))
    with pool(ALICE) as good:
        assert rows(good, served.address) == 20
    asked = len(served.handler.commands)
    with pool("nonsense-0123456789") as bad, FlightPool(SystemRuntime()) as bare:
        for refused in (bad, bare):
            with pytest.raises(Unauthenticated):
                rows(refused, served.address)
            with pytest.raises(Unauthenticated):
                refused.call(served.address, "members", {})
    assert len(served.handler.commands) == asked
    assert "a call was refused" in caplog.text
    assert "nonsense-0123456789" not in caplog.text


def test_connect_takes_a_token_and_says_at_once_when_it_is_not_valid(serve, file):
    served = serve(callers=Clients(verifier(file)))
    for wrong in (None, "nonsense-0123456789"):
        with pytest.raises(Unauthenticated):
            connect(served.address, token=wrong)


def test_one_client_cannot_take_the_place_of_the_others(serve, file, kit):
    served = serve(callers=Clients(verifier(file)), caller_limit=2)
    with pool(ALICE) as alice, pool(BOB) as bob:
        slow = [alice.open_stream(served.address, {"think": True}) for _ in range(2)]
        kit.wait_until(lambda: served.server.open_calls() == 2)
        with pytest.raises(TryLater, match="of this client"):
            rows(alice, served.address)
        assert rows(bob, served.address) == 20
        for stream in slow:
            stream.cancel()
        kit.wait_until(lambda: served.server.open_calls() == 0)
        assert rows(alice, served.address) == 20


def test_without_tokens_the_limit_counts_by_host(serve, kit):
    served = serve(caller_limit=1)
    with FlightPool(SystemRuntime()) as one, FlightPool(SystemRuntime()) as other:
        stream = one.open_stream(served.address, {"think": True})
        kit.wait_until(lambda: served.server.open_calls() == 1)
        with pytest.raises(TryLater):
            rows(other, served.address)
        stream.cancel()


def test_tokens_that_come_and_go_count_without_a_restart(file, monkeypatch):
    now = [0.0]
    runtime = SystemRuntime()
    monkeypatch.setattr(runtime, "monotonic_ms", lambda: now[0], raising=False)
    tokens = StaticTokens(str(file), runtime)
    file.write_text(f"carol carol-token-0123456789\nbob {BOB}\n")
    now[0] += 2_000
    assert tokens.verify("carol-token-0123456789") == "carol"
    with pytest.raises(Unauthenticated):
        tokens.verify(ALICE)


def test_who_was_taken_out_is_known_no_more_and_a_broken_file_takes_nobody_out(file, monkeypatch):
    monkeypatch.setattr("ballista_py.transport.security.tokens.RELOAD_MS", 0.0)
    known = verifier(file)
    whole = file.read_text()
    assert [known.knows(name) for name in ("alice", "bob", "carol")] == [True, True, False]
    for broken in ("", "alice\n"):
        file.write_text(broken)
        assert [known.knows(name) for name in ("alice", "bob")] == [True, True]
    file.write_text(whole.replace("bob ", "carol "))
    assert [known.knows(name) for name in ("alice", "bob", "carol")] == [True, False, True]


@pytest.mark.parametrize("text", ["", "\n# nobody\n", "bob\n", f"alice {ALICE}\nbob short\n", b"\xff\xfe", None])
def test_a_file_of_tokens_that_was_emptied_or_broken_lets_nobody_in_and_says_so_once(
    file, monkeypatch, caplog, text
):
    now = [0.0]
    runtime = SystemRuntime()
    monkeypatch.setattr(runtime, "monotonic_ms", lambda: now[0], raising=False)
    tokens = StaticTokens(str(file), runtime)
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for _ in range(3):
        now[0] += 2_000
        for token in (ALICE, BOB):
            with pytest.raises(Unauthenticated):
                tokens.verify(token)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert str(file) in said[0]
    assert ALICE not in caplog.text
    file.write_text(f"bob {BOB}\n")
    now[0] += 2_000
    assert tokens.verify(BOB) == "bob"
    with pytest.raises(Unauthenticated):
        tokens.verify(ALICE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice\n", ":1: write a client's name"),
        ("# x\nalice a b\n", ":2: write a client's name"),
        ("alice short\n", ":1: the token is shorter"),
        ("\n", "holds no token"),
        (f"alice {ALICE}\nbob {ALICE}\n", ":2: the token is that of another client"),
        (f"al\x07ice {ALICE}\n", ":1: the client's name"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_named_by_line_and_not_shown(tmp_path, text, said):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        verifier(path)
    assert "short" not in str(raised.value).replace("shorter", "")


def test_a_client_has_two_tokens_and_no_third(file):
    file.write_text(f"alice {ALICE}\nalice {BOB}\n# changing\nalice {ALICE}\n")  # one of them twice
    assert verifier(file).verify(ALICE) == verifier(file).verify(BOB) == "alice"
    file.write_text(f"alice {ALICE}\nalice {BOB}\nalice {ALICE}-more\n")
    with pytest.raises(ConfigError, match=r"tokens:3: client 'alice' has more than 2 tokens") as refused:
        verifier(file)
    assert ALICE not in str(refused.value)


def test_a_missing_file_of_tokens_is_named(tmp_path):
    with pytest.raises(ConfigError, match="missing-file"):
        verifier(tmp_path / "missing-file")


def test_a_hook_of_the_application_decides_and_its_crash_lets_nobody_in_and_shows_nothing(serve):
    class Hook:
        def verify(self, token):
            if token == "crash":
                raise RuntimeError("secret in /root/key")
            return token

    served = serve(callers=Clients(Hook()))
    with pool("me") as mine:
        assert rows(mine, served.address) == 20
    with pool("crash") as crashing, pytest.raises(Exception) as raised:
        rows(crashing, served.address)
    assert "/root/key" not in str(raised.value)
    assert "internal error (RuntimeError)" in str(raised.value)


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer  "])
def test_a_header_without_a_token_is_refused(header):
    with pytest.raises(Unauthenticated):
        bearer_token(header)


def test_nothing_of_tokens_keys_or_crashes_is_in_the_bytes_that_a_server_sends(serve, file, kit, tmp_path):
    served = serve(callers=Clients(verifier(file)))
    with kit.Wiretap(served.address) as tap, pool(ALICE) as good, pool(BOB + "x") as bad:
        assert rows(good, tap.address) == 20
        for command in (
            {"crash": True},
            {"batches": 3, "crash_at": 1},
            {"odd_at": 0, "batches": 1},
            {"refuse": 1},
        ):
            with pytest.raises(Exception):  # noqa: B017
                rows(good, tap.address, **command)
        for action in ("crash", "refuse"):
            with pytest.raises(Exception):  # noqa: B017
                good.call(tap.address, action, {"body": 1})
        with pytest.raises(Unauthenticated):
            rows(bad, tap.address)
        seen = bytes(tap.seen)
    assert len(seen) > 500
    for never in (
        b"Traceback",
        b'File "',
        b".py",
        b"/root",
        b"secret in",
        ALICE.encode(),
        BOB.encode(),
        str(tmp_path).encode(),
    ):
        assert never not in seen


def test_many_threads_verify_while_the_file_changes(file):
    tokens = verifier(file)
    failed = []

    def verify():
        for _ in range(200):
            try:
                assert tokens.verify(BOB) == "bob"
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=verify) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(20):
        file.write_text(f"bob {BOB}\nother{number} other-token-0123456789\n")
    for thread in threads:
        thread.join()
    assert not failed


def test_a_file_of_tokens_that_everybody_can_write_to_lets_nobody_in(file, monkeypatch):
    monkeypatch.setattr("ballista_py.transport.security.tokens.RELOAD_MS", 0.0)
    known = verifier(file)
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by everybody on this machine: chmod o-w"):
        verifier(file)
    with pytest.raises(Unauthenticated):
        known.verify(ALICE)
    file.chmod(0o640)
    assert known.verify(ALICE) == "alice"
