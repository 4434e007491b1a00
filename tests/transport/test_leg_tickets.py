"""Tickets for parts: an executor does what a node of its cluster has signed for it, and nothing else."""

from __future__ import annotations

import base64
import subprocess

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import ConfigError, Unauthenticated, WrongCluster
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.flight_sql.leg_tickets import LegTicketCheck, LegTickets
from ballista_py.transport.flight_sql.statement import SqlStatement, signed_digest
from ballista_py.transport.security.certificates import CertificateFolder, check_own
from ballista_py.transport.security.credentials import Removed, Tls
from ballista_py.transport.security.signed_tickets import SKEW_MS, TICKET_MS, check_time

DAY_MS = 86_400_000
COMMAND = {"kind": "leg", "leg": {"sql": "select 1"}}
DIGEST = SqlStatement(query="select 1", part={"sequences": {"t": 3}}, run_id="r").digest()


class Later(SystemRuntime):
    """A clock that is ahead, or behind."""

    def __init__(self, ahead_ms=TICKET_MS + SKEW_MS + 1_000):
        super().__init__()
        self.ahead_ms = ahead_ms

    def wall_ms(self):
        return super().wall_ms() + self.ahead_ms


@pytest.fixture
def folder(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    for name in ("scheduler-1", "executor-1"):
        made.add(name, "scheduler" if name.startswith("s") else "executor")
    return made


@pytest.fixture
def tickets(folder):
    return LegTickets(cluster_id="c", runtime=SystemRuntime(), tls=folder.tls("scheduler-1"))


@pytest.fixture
def check(folder):
    return LegTicketCheck(
        executor_id="executor-1",
        cluster_id="c",
        runtime=SystemRuntime(),
        tls=folder.tls("executor-1"),
        removed=Removed(str(folder.removed_file)),
    )


def test_a_signed_ticket_gives_its_command(tickets, check):
    assert check.command(tickets.issue("executor-1", COMMAND, DIGEST), DIGEST) == COMMAND


def test_without_certificates_nothing_is_signed_and_nothing_asked_for():
    check = LegTicketCheck(executor_id="e", cluster_id="c", runtime=SystemRuntime())
    tickets = LegTickets(cluster_id="c", runtime=SystemRuntime())
    assert check.command(tickets.issue("e", COMMAND, DIGEST), DIGEST) == COMMAND
    with pytest.raises(Unauthenticated, match="not for this executor"):
        check.command(tickets.issue("another", COMMAND, DIGEST), DIGEST)
    with pytest.raises(WrongCluster):
        check.command(evolve(tickets, cluster_id="another").issue("e", COMMAND, DIGEST), DIGEST)


def test_a_ticket_for_another_executor_or_cluster_or_of_yesterday_gives_nothing(tickets, check):
    good = tickets.issue("executor-1", COMMAND, DIGEST)
    with pytest.raises(Unauthenticated, match="not for this executor"):
        check.command(tickets.issue("executor-2", COMMAND, DIGEST), DIGEST)
    with pytest.raises(WrongCluster):
        check.command(evolve(tickets, cluster_id="copy").issue("executor-1", COMMAND, DIGEST), DIGEST)
    with pytest.raises(Unauthenticated, match="too old"):
        evolve(check, runtime=Later()).command(good, DIGEST)


@pytest.mark.parametrize("ahead_ms", [SKEW_MS + 5_000, DAY_MS, 300 * DAY_MS])
def test_a_ticket_of_a_scheduler_whose_clock_is_ahead_counts_for_no_longer_than_others(tickets, check, ahead_ms):
    ahead = evolve(tickets, runtime=Later(ahead_ms))
    with pytest.raises(Unauthenticated, match="set its scheduler's clock, which is ahead"):
        check.command(ahead.issue("executor-1", COMMAND, DIGEST), DIGEST)
    almost = evolve(tickets, runtime=Later(SKEW_MS - 5_000))
    assert check.command(almost.issue("executor-1", COMMAND, DIGEST), DIGEST) == COMMAND


@pytest.mark.parametrize("until_ms", [float("inf"), float("nan"), None, "9", 10**30, True])
def test_a_ticket_without_an_end_is_none(check, tickets, until_ms):
    with pytest.raises(Unauthenticated, match=r"too old|later than now"):
        check_time(until_ms, 1e12)


def test_whoever_looks_at_a_ticket_with_a_clock_that_is_off_is_told_of_the_clock(tickets, check):
    good = tickets.issue("executor-1", COMMAND, DIGEST)
    with pytest.raises(
        Unauthenticated, match=r"its certificate is valid from 2.*, and the clock of this node says"
    ):
        evolve(check, runtime=Later(-2 * DAY_MS)).command(good, DIGEST)
    with pytest.raises(Unauthenticated, match=r"its certificate was valid until 2.*, and the clock of this node"):
        evolve(check, runtime=Later(400 * DAY_MS)).command(good, DIGEST)
    with pytest.raises(Unauthenticated, match="the clocks of its scheduler and of this executor differ"):
        evolve(check, runtime=Later()).command(good, DIGEST)


@pytest.mark.parametrize(("days", "said"), [(-2, "valid from"), (400, "valid until")])
def test_a_node_does_not_start_with_a_certificate_that_is_not_valid_by_its_clock(folder, days, said):
    tls = folder.tls("executor-1")
    check_own(tls, "executor-1", "executor", Later(0))
    with pytest.raises(
        ConfigError, match=rf"certificate.pem .*{said} 2.*clock of this node says 2.*set the clock"
    ):
        check_own(tls, "executor-1", "executor", Later(days * DAY_MS))


def test_a_byte_that_was_changed_and_a_signature_of_nobody_give_nothing(tickets, check):
    good = tickets.issue("executor-1", COMMAND, DIGEST)
    body = bytearray(base64.b64decode(good["body"]))
    for place in range(0, len(body), 7):
        changed = bytearray(body)
        changed[place] ^= 1
        with pytest.raises(Unauthenticated):
            check.command({**good, "body": base64.b64encode(changed).decode()}, DIGEST)
    for wrong in (
        {"body": good["body"]},
        {**good, "signature": base64.b64encode(b"x" * 70).decode()},
        {**good, "signature": "%%%"},
        {**good, "certificate": "nonsense"},
        {**good, "certificate": 7},
        {**good, "body": None},
        {},
    ):
        with pytest.raises(Unauthenticated):
            check.command(wrong, DIGEST)


def test_a_foreign_an_expired_and_a_removed_node_sign_in_vain(folder, tickets, check, tmp_path):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    folder.add("late", "executor", days=-1)
    for tls in (other.tls("scheduler-1"), folder.tls("late")):
        with pytest.raises(Unauthenticated, match="no node of this cluster"):
            check.command(evolve(tickets, tls=tls).issue("executor-1", COMMAND, DIGEST), DIGEST)
    good = tickets.issue("executor-1", COMMAND, DIGEST)
    folder.remove("scheduler-1")
    with pytest.raises(Unauthenticated, match="'scheduler-1' was removed"):
        check.command(good, DIGEST)


def test_a_certificate_beside_the_key_of_another_signs_in_vain(folder, tickets, check):
    mixed = Tls(
        ca_file=str(folder.ca_file),
        certificate_file=folder.tls("scheduler-1").certificate_file,
        key_file=folder.tls("executor-1").key_file,
    )
    with pytest.raises(Unauthenticated):
        check.command(evolve(tickets, tls=mixed).issue("executor-1", COMMAND, DIGEST), DIGEST)


@pytest.mark.parametrize("algorithm", [("rsa:2048",), ("ed25519",), ("ec", "-pkeyopt", "ec_paramgen_curve:P-384")])
def test_keys_that_openssl_made_sign_too(folder, tickets, check, tmp_path, algorithm):
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path)

    openssl(
        "req", "-new", "-nodes", "-newkey", *algorithm, "-keyout", "key.pem", "-out", "r.csr", "-subj", "/CN=s"
    )
    (tmp_path / "ext").write_text(
        "subjectAltName=DNS:scheduler-7.scheduler.ballista\nextendedKeyUsage=clientAuth,serverAuth\nauthorityKeyIdentifier=keyid\n"
        "basicConstraints=CA:FALSE\n"
    )
    words = ["x509", "-req", "-in", "r.csr", "-CA", str(folder.ca_file), "-CAkey", str(folder.folder / "ca.key")]
    openssl(*words, "-CAcreateserial", "-CAserial", "serial", "-days", "2", "-extfile", "ext", "-out", "cert.pem")
    tls = Tls(certificate_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem"))
    assert check.command(evolve(tickets, tls=tls).issue("executor-1", COMMAND, DIGEST), DIGEST) == COMMAND


def spoilt(value):
    """The value with one of its parts changed, for each of its parts."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            yield {(f"{name}x" if other == name else other): kept for other, kept in value.items()}
            yield from ({**value, name: wrong} for wrong in spoilt(part))
        yield {**value, "more": 1}
    elif isinstance(value, list):
        yield [*value, 1]
        yield from ([*value[:n], wrong, *value[n + 1 :]] for n, part in enumerate(value) for wrong in spoilt(part))
    else:
        yield None if value is not None else "x"
        yield value + 1 if isinstance(value, int) else f"{value}x"


def test_a_ticket_of_which_any_field_was_changed_gives_nothing(tickets, check):
    rows = pa.record_batch({"1": [7]})
    part = {"partitions": {"t": [0, 3]}, "sequences": {"t": 1}, "tables": {"t": "mark"}}
    statement = SqlStatement(query="select 1", dialect="spark", part=part, run_id="r", parameters=rows)
    leg = tickets.issue("executor-1", COMMAND, statement.digest())
    handle = evolve(statement, part={"leg": leg, **part}).handle()  # in whatever order
    assert check.command(leg, signed_digest(handle)) == COMMAND
    head, _, rest = handle.partition(b"\n")
    values = from_json(head)
    forged = [
        to_json(wrong) + b"\n" + rest
        for wrong in spoilt(values)
        if wrong.get("part", {}) and "leg" in wrong["part"]
    ]
    forged += [head + b"\n" + rest[:-1], head + b"\n", head + b"\n" + rest + b"\n"]
    assert len(forged) > 20
    for one in forged:
        changed = from_json(one.partition(b"\n")[0])["part"]["leg"]
        with pytest.raises(Unauthenticated):
            check.command(changed if isinstance(changed, dict) else {}, signed_digest(one))


def test_a_ticket_of_an_earlier_release_is_refused_by_name(tickets, check):
    body = to_json(
        {"executor": "executor-1", "cluster": "c", "until_ms": tickets.runtime.wall_ms(), "command": COMMAND}
    )
    with pytest.raises(Unauthenticated, match="of an earlier release: run the statement again"):
        evolve(check, tls=None).command({"body": base64.b64encode(body).decode()}, DIGEST)
