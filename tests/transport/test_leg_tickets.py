"""Tickets for parts: an executor does what a node of its cluster has signed for it, and nothing else."""

from __future__ import annotations

import base64
import subprocess

import pytest
from attrs import evolve

from ballista_py.errors import Unauthenticated, WrongCluster
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight_sql.leg_tickets import SKEW_MS, TICKET_MS, LegTicketCheck, LegTickets
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Removed, Tls

COMMAND = {"kind": "leg", "leg": {"sql": "select 1"}}


class Later(SystemRuntime):
    """A clock that is ahead."""

    ahead_ms = TICKET_MS + SKEW_MS + 1_000

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
    assert check.command(tickets.issue("executor-1", COMMAND)) == COMMAND


def test_without_certificates_nothing_is_signed_and_nothing_asked_for():
    check = LegTicketCheck(executor_id="e", cluster_id="c", runtime=SystemRuntime())
    tickets = LegTickets(cluster_id="c", runtime=SystemRuntime())
    assert check.command(tickets.issue("e", COMMAND)) == COMMAND
    with pytest.raises(Unauthenticated, match="not for this executor"):
        check.command(tickets.issue("another", COMMAND))
    with pytest.raises(WrongCluster):
        check.command(evolve(tickets, cluster_id="another").issue("e", COMMAND))


def test_a_ticket_for_another_executor_or_cluster_or_of_yesterday_gives_nothing(tickets, check):
    good = tickets.issue("executor-1", COMMAND)
    with pytest.raises(Unauthenticated, match="not for this executor"):
        check.command(tickets.issue("executor-2", COMMAND))
    with pytest.raises(WrongCluster):
        check.command(evolve(tickets, cluster_id="copy").issue("executor-1", COMMAND))
    with pytest.raises(Unauthenticated, match="too old"):
        evolve(check, runtime=Later()).command(good)


def test_a_byte_that_was_changed_and_a_signature_of_nobody_give_nothing(tickets, check):
    good = tickets.issue("executor-1", COMMAND)
    body = bytearray(base64.b64decode(good["body"]))
    for place in range(0, len(body), 7):
        changed = bytearray(body)
        changed[place] ^= 1
        with pytest.raises(Unauthenticated):
            check.command({**good, "body": base64.b64encode(changed).decode()})
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
            check.command(wrong)


def test_a_foreign_an_expired_and_a_removed_node_sign_in_vain(folder, tickets, check, tmp_path):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    folder.add("late", "executor", days=-1)
    for tls in (other.tls("scheduler-1"), folder.tls("late")):
        with pytest.raises(Unauthenticated, match="no node of this cluster"):
            check.command(evolve(tickets, tls=tls).issue("executor-1", COMMAND))
    good = tickets.issue("executor-1", COMMAND)
    folder.remove("scheduler-1")
    with pytest.raises(Unauthenticated, match="'scheduler-1' was removed"):
        check.command(good)


def test_a_certificate_beside_the_key_of_another_signs_in_vain(folder, tickets, check):
    mixed = Tls(
        ca_file=str(folder.ca_file),
        certificate_file=folder.tls("scheduler-1").certificate_file,
        key_file=folder.tls("executor-1").key_file,
    )
    with pytest.raises(Unauthenticated):
        check.command(evolve(tickets, tls=mixed).issue("executor-1", COMMAND))


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
    assert check.command(evolve(tickets, tls=tls).issue("executor-1", COMMAND)) == COMMAND
