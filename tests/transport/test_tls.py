"""Who may speak on which port, tried with real certificates, real sockets and OpenSSL."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc.aio
import pyarrow as pa
import pytest
from attrs import evolve
from pyarrow import flight

from ballista_py.errors import ConfigError, TransportError, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.control.link import ControlLink
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.security.callers import NODE_HEADER, Nodes
from ballista_py.transport.security.certificates import CertificateFolder, check_own
from ballista_py.transport.security.credentials import Removed, Tls

COMMAND = {"batches": 2, "rows": 10}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS_FRAME = bytes([4, 0, 0, 0, 0, 0])
OLD_TLS = ("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")


@pytest.fixture
def folder(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    for name in ("executor-1", "scheduler-1"):
        made.add(name, "scheduler" if name.startswith("s") else "executor")
    return made


@pytest.fixture
def data_port(serve, folder, kit):
    """The data port of executor-1, as a node opens it."""
    return serve(
        callers=Nodes(Removed(str(folder.removed_file))),
        tls=folder.tls("executor-1"),
        ask_client=True,
        spawn=kit.spawn,
    )


def rows(pool, address, peer_id="executor-1"):
    return pa.Table.from_batches(pool.open_stream(address, COMMAND, 5_000, peer_id=peer_id).batches()).num_rows


def node_pool(tls, node_id="scheduler-1"):
    return FlightPool(SystemRuntime(), tls=tls, node_id=node_id)


def openssl(*arguments, stdin=b""):
    return subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, timeout=120)


def client_of_openssl(address, tls, *more):
    words = ["openssl", "s_client", "-connect", address, "-alpn", "h2", "-CAfile", tls.ca_file, *more]
    if tls.certificate_file is not None:
        words += ["-cert", tls.certificate_file, "-key", tls.key_file]
    return words


def let_in(address, tls, *more):
    """Whether the server answers in HTTP/2; TLS 1.3 refuses a client only after its side of the handshake."""
    words = client_of_openssl(address, tls, *more)
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet) as client:
        with suppress(BrokenPipeError):
            client.stdin.write(PREFACE)
            client.stdin.flush()
        heard = b""
        while SETTINGS_FRAME not in heard and (piece := client.stdout.read1(65_536)):
            heard += piece
        client.kill()
        with suppress(BrokenPipeError):
            client.stdin.close()
    return SETTINGS_FRAME in heard


def test_a_node_of_the_cluster_is_answered_under_its_own_name(data_port, folder):
    with node_pool(folder.tls("scheduler-1")) as pool:
        assert rows(pool, data_port.address) == 20
        assert rows(pool, data_port.address, peer_id=None) == 20


def test_a_node_cannot_speak_for_another_and_the_log_says_who_tried(data_port, folder, caplog):
    with node_pool(folder.tls("executor-1"), "scheduler-1") as pool, pytest.raises(Unauthenticated) as raised:
        rows(pool, data_port.address)
    assert "'executor-1', not of 'scheduler-1'" in str(raised.value)
    assert "'executor-1', not of 'scheduler-1'" in caplog.text


def test_a_node_that_answers_under_anothers_name_is_not_asked(data_port, folder):
    with node_pool(folder.tls("scheduler-1")) as pool, pytest.raises(TransportError):
        rows(pool, data_port.address, peer_id="executor-2")
    assert data_port.handler.commands == []


def test_who_asks_a_port_with_certificates_without_any_is_told_to_look_whether_it_speaks_tls(serve, folder, kit):
    port = serve(tls=folder.tls("executor-1"), spawn=kit.spawn)
    with FlightPool(SystemRuntime()) as pool, pytest.raises(TransportError, match="whether it speaks TLS"):
        rows(pool, port.address)


def test_who_asks_a_server_of_another_http_is_told_so():
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with FlightPool(SystemRuntime()) as pool, pytest.raises(TransportError, match="does not speak HTTP/2"):
            rows(pool, f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_without_a_certificate_with_a_foreign_or_an_expired_one_nothing_is_answered(data_port, folder, tmp_path):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    folder.add("late", "executor", days=-1)
    foreign = other.tls("scheduler-1")
    for tls in (
        None,
        Tls(ca_file=str(folder.ca_file)),
        foreign,
        Tls(ca_file=str(folder.ca_file), certificate_file=foreign.certificate_file, key_file=foreign.key_file),
        folder.tls("late"),
    ):
        with node_pool(tls) as pool, pytest.raises(TransportError):
            rows(pool, data_port.address)
    assert data_port.handler.commands == []


def test_openssl_agrees_on_whom_the_data_port_lets_in(data_port, folder, tmp_path):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    folder.add("late", "executor", days=-1)
    good, foreign = folder.tls("scheduler-1"), other.tls("scheduler-1")
    assert let_in(data_port.address, good)
    assert let_in(data_port.address, good, "-tls1_2")
    assert not let_in(data_port.address, Tls(ca_file=good.ca_file))
    assert not let_in(data_port.address, foreign)
    assert not let_in(data_port.address, folder.tls("late"))
    assert not let_in(data_port.address, good, *OLD_TLS)


def test_a_removed_node_is_refused_at_its_next_call_and_its_name_never_comes_back(data_port, folder):
    with node_pool(folder.tls("scheduler-1")) as pool:
        assert rows(pool, data_port.address) == 20
        folder.removed_file.write_text("scheduler-1\n")
        with pytest.raises(Unauthenticated, match="was removed"):
            rows(pool, data_port.address)
    with pytest.raises(ConfigError, match="another id"):
        folder.add("scheduler-1", "scheduler")


@pytest.mark.parametrize(
    ("claims", "words"), [("executor-2", "executor-2' was removed"), ("executor-1", "that of node 'executor-2'")]
)
def test_of_a_node_that_is_removed_or_claims_to_be_another_no_command_is_read(data_port, folder, claims, words):
    folder.add("executor-2", "executor")
    tls = folder.tls("executor-2")
    folder.removed_file.write_text("executor-2\n")
    options = flight.FlightCallOptions(headers=[(NODE_HEADER.encode(), claims.encode())])
    with flight.FlightClient(
        f"grpc+tls://{data_port.address}",
        tls_root_certs=Path(tls.ca_file).read_bytes(),
        cert_chain=Path(tls.certificate_file).read_bytes(),
        private_key=Path(tls.key_file).read_bytes(),
    ) as client:
        with pytest.raises(flight.FlightError, match=words):
            list(client.do_action(flight.Action("drain", b"[[["), options))
        with pytest.raises(flight.FlightError, match=words):  # said at once, or by the first read
            client.do_exchange(flight.FlightDescriptor.for_command(b"[[["), options)[1].read_all()


def test_a_list_of_removed_nodes_that_cannot_be_read_lets_nobody_in(tmp_path):
    with pytest.raises(Unauthenticated, match="nobody"):
        Removed(str(tmp_path)).check("scheduler-1")
    Removed(str(tmp_path / "missing")).check("scheduler-1")


def test_a_node_that_does_not_say_who_it_is_is_refused(data_port, folder):
    with FlightPool(SystemRuntime(), tls=folder.tls("scheduler-1")) as pool, pytest.raises(Unauthenticated):
        rows(pool, data_port.address)


def test_a_renewed_certificate_is_shown_without_a_restart_and_open_streams_go_on(data_port, folder, kit, caplog):
    caplog.set_level(logging.INFO)
    with node_pool(folder.tls("scheduler-1")) as pool:
        slow = pool.open_stream(
            data_port.address, {"batches": 20, "rows": 5, "pause_s": 0.1}, peer_id="executor-1"
        )
        batches = slow.batches()
        next(batches)
        before = shown(data_port.address, folder)
        folder.add("executor-1", "executor")
        after = kit.wait_until(lambda: (now := shown(data_port.address, folder)) and now != before and now)
        assert after == folder.show()[1].serial
        assert sum(batch.num_rows for batch in batches) == 95
    with node_pool(folder.tls("scheduler-1")) as pool:
        assert rows(pool, data_port.address) == 20


LONG = {"batches": 1_500, "rows": 5, "pause_s": 0.02}  # half a minute


def test_an_open_stream_of_a_node_that_is_removed_ends_within_seconds(data_port, folder, kit):
    with node_pool(folder.tls("scheduler-1")) as pool:
        gone = pool.open_stream(data_port.address, LONG, peer_id="executor-1").batches()
        next(gone)
        folder.remove("scheduler-1")
        with pytest.raises((Unauthenticated, TransportError)):
            deque(gone, maxlen=0)
        kit.wait_until(lambda: not data_port.server.open_calls())


def test_an_open_stream_of_a_node_that_stays_goes_on_while_others_are_removed(data_port, folder):
    with node_pool(folder.tls("scheduler-1")) as pool:
        kept = pool.open_stream(data_port.address, {**LONG, "batches": 150}, peer_id="executor-1").batches()
        next(kept)
        folder.add("scheduler-2", "scheduler")
        folder.remove("scheduler-2")
        assert len(list(kept)) == 149  # three seconds of it


def test_a_removed_node_that_reads_nothing_is_cut(data_port, folder, kit):
    with node_pool(folder.tls("scheduler-1")) as pool:
        stuck = pool.open_stream(data_port.address, {"batches": 100_000, "rows": 50_000}, peer_id="executor-1")
        assert stuck.schema
        kit.wait_until(lambda: data_port.server.open_calls() == 1)
        folder.remove("scheduler-1")
        kit.wait_until(lambda: not data_port.server.open_calls())


def test_what_a_node_sends_that_is_removed_is_heard_no_more(data_port, folder):
    listed = folder.folder / "read-by-the-scheduler"
    with FlightPool(
        SystemRuntime(), tls=folder.tls("scheduler-1"), node_id="scheduler-1", removed=Removed(str(listed))
    ) as pool:
        rows = pool.open_stream(data_port.address, LONG, peer_id="executor-1").batches()
        next(rows)
        listed.write_text("executor-1\n")
        with pytest.raises(TransportError, match="'executor-1' was removed from the cluster"):
            deque(rows, maxlen=0)


def test_an_authority_that_is_replaced_locks_the_old_nodes_out(data_port, folder, kit, tmp_path):
    old = {file: file.read_bytes() for file in (folder.folder / "nodes" / "scheduler-1").glob("*.pem")}
    for file in (folder.ca_file, folder.folder / "ca.key"):
        file.unlink()
    folder.init()
    folder.add("executor-1", "executor")
    folder.add("scheduler-1", "scheduler")

    def answered():
        with node_pool(folder.tls("scheduler-1")) as pool:
            try:
                return rows(pool, data_port.address) == 20
            except TransportError:
                return False

    kit.wait_until(answered)
    for file, data in old.items():
        file.write_bytes(data)
    assert not answered()


def test_half_a_replacement_changes_nothing(data_port, folder, kit, caplog):
    key = folder.folder / "nodes" / "executor-1" / "key.pem"
    before = key.read_bytes()
    key.write_bytes((folder.folder / "nodes" / "scheduler-1" / "key.pem").read_bytes())
    kit.wait_until(lambda: "do not belong together" in caplog.text)
    with node_pool(folder.tls("scheduler-1")) as pool:
        assert rows(pool, data_port.address) == 20
    assert before.decode().splitlines()[1] not in caplog.text


DATA_PORT = """
from ballista_py.threads import spawn
from ballista_py.node.executor.answers import ExecutorAnswers
from ballista_py.transport.security.access import DATA
from ballista_py.transport.security.callers import NODE_HEADER, Nodes
from ballista_py.transport.flight.server import FlightServer
server = FlightServer(
    "127.0.0.1:0",
    ExecutorAnswers("executor-1", None, None),
    SystemRuntime(),
    access=DATA,
    tls=tls,
    ask_client=True,
    callers=Nodes(Removed(sys.argv[4])),
    spawn=spawn,
)
print(server.port, flush=True)
sys.stdin.read()
"""
CONTROL_PORT = """
import asyncio
from ballista_py.transport.control.server import ControlServer
async def serve():
    server = ControlServer("127.0.0.1:0", "scheduler-1", None, None, tls=tls, removed=Removed(sys.argv[4]))
    print((await server.start()).port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(serve())
"""
BEGINNING = """
import sys
import threading
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ballista_py.logs import configure_logging
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.credentials import Removed, Tls
configure_logging('executor-1')
tls = Tls(ca_file=sys.argv[1], certificate_file=sys.argv[2], key_file=sys.argv[3])
"""


def ask_data(address, tls, claimed):
    with node_pool(tls, claimed) as pool, pytest.raises(Unauthenticated):
        rows(pool, address)


def ask_control(address, tls, claimed):
    async def leave():
        async with ControlLink(address, None, None, 100, 1_000, tls=tls, peer_id="scheduler-1") as link:
            await link.leave(claimed, "i")

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        asyncio.run(leave())
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("port", "ask", "server", "caller"),
    [(DATA_PORT, ask_data, "executor", "scheduler"), (CONTROL_PORT, ask_control, "scheduler", "executor")],
    ids=["data", "control"],
)
def test_the_reason_of_every_refusal_is_in_the_log_of_who_refused(folder, tmp_path, port, ask, server, caller):
    tls = folder.tls(f"{server}-1")
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    foreign = other.tls(other.add(f"{caller}-1", caller).node_id)
    folder.add("late", "executor", days=-1)
    folder.removed_file.write_text(f"{caller}-2\n")
    child = subprocess.Popen(
        [
            *(sys.executable, "-c", BEGINNING + port),
            *(tls.ca_file, tls.certificate_file, tls.key_file, str(folder.removed_file)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    address = f"127.0.0.1:{int(child.stdout.readline())}"
    assert not let_in(address, Tls(ca_file=tls.ca_file))
    assert not let_in(address, evolve(foreign, ca_file=tls.ca_file))
    assert not let_in(address, folder.tls("late"))
    assert not let_in(address, tls, *OLD_TLS)
    ask(address, folder.tls(f"{caller}-1"), f"{caller}-9")
    (tmp_path / "tls" / "removed").unlink()
    removed = folder.tls(folder.add(f"{caller}-2", caller).node_id)
    folder.removed_file.write_text(f"{caller}-2\n")
    ask(address, removed, f"{caller}-2")
    _, log = child.communicate(timeout=120)
    said = log.decode().lower().replace("_", " ")  # the two copies of gRPC write differently
    for reason in (
        "peer did not return a certificate",
        "certificate verify failed: unable to get local issuer certificate",
        "certificate verify failed: certificate has expired",
        "unsupported protocol",
        f"the certificate is that of node '{caller}-1', not of '{caller}-9'",
        f"node '{caller}-2' was removed from the cluster",
    ):
        assert reason in said


def test_who_asks_is_told_why_the_other_sides_certificate_is_not_accepted(serve, folder, tmp_path, kit):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    folder.add("late", "executor", days=-1)
    good = folder.tls("scheduler-1")
    ports = {
        name: serve(tls=folder.tls(name), ask_client=True, spawn=kit.spawn) for name in ("executor-1", "late")
    }
    for name, tls, peer_id, said in (
        (
            "executor-1",
            evolve(good, ca_file=other.tls("scheduler-1").ca_file),
            None,
            "not accepted (unable to get local issuer cert",
        ),
        ("executor-1", good, "executor-9", "does not name 'executor-9.executor.ballista'"),
        ("late", good, None, "not accepted (certificate has expired)"),
        ("executor-1", None, None, "speaks TLS and asks for a certificate"),
        ("executor-1", Tls(ca_file=good.ca_file), None, "speaks TLS and asks for a certificate"),
    ):
        with node_pool(tls) as pool, pytest.raises(TransportError) as raised:
            rows(pool, ports[name].address, peer_id)
        assert said in str(raised.value)


def test_keys_are_their_owners_alone_and_never_shown(folder):
    for key in (folder.folder / "ca.key", *folder.folder.glob("nodes/*/key.pem")):
        assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    tls = folder.tls("executor-1")
    assert b"PRIVATE" in tls.read().key
    assert "PRIVATE" not in repr(tls) + repr(tls.read())


def test_certificates_say_what_openssl_needs(folder):
    tls = folder.tls("executor-1")
    for purpose in ("sslserver", "sslclient"):
        checked = openssl(
            "verify", "-x509_strict", "-purpose", purpose, "-CAfile", tls.ca_file, tls.certificate_file
        )
        assert checked.returncode == 0, checked.stderr
    text = openssl("x509", "-in", tls.certificate_file, "-noout", "-text").stdout.decode()
    assert "DNS:executor-1.executor.ballista, DNS:localhost, IP Address:127.0.0.1" in text


@pytest.mark.parametrize("wrong", ["a/b", "../x", "", "zwölf"])
def test_a_name_that_would_leave_the_folder_is_refused(folder, wrong):
    with pytest.raises(ConfigError):
        folder.add(wrong, "executor")


def test_a_second_authority_does_not_replace_the_first(folder):
    with pytest.raises(ConfigError, match="already"):
        folder.init()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"certificate_file": "x"}, "key file"),
        ({"ca_file": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_named(files, said):
    with pytest.raises(ConfigError, match=said):
        Tls(**files).check()


def test_files_that_hold_something_else_are_named(folder, tmp_path):
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for tls in (Tls(ca_file=str(nonsense)), Tls(ca_file=str(empty))):
        with pytest.raises(ConfigError, match=tls.ca_file):
            tls.check()
    mixed = Tls(
        certificate_file=folder.tls("executor-1").certificate_file, key_file=folder.tls("scheduler-1").key_file
    )
    with pytest.raises(ConfigError, match="belong together"):
        mixed.check()


def shown(address, folder):
    """The serial number of the certificate that the port shows now, or nothing while it is closed."""
    text = openssl(*client_of_openssl(address, folder.tls("scheduler-1"))[1:], stdin=PREFACE).stdout
    begin = text.find(b"-----BEGIN CERTIFICATE-----")
    if begin < 0:
        return ""
    serial = openssl("x509", "-noout", "-serial", stdin=text[begin:]).stdout.decode().strip()
    return serial.removeprefix("serial=").lower().lstrip("0")


def test_a_node_whose_authority_has_not_made_its_certificate_does_not_start(folder, tmp_path):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    own = folder.tls("scheduler-1")
    check_own(own, "scheduler-1", "scheduler", SystemRuntime())
    both = tmp_path / "both.pem"
    both.write_bytes(other.ca_file.read_bytes() + folder.ca_file.read_bytes())
    check_own(evolve(own, ca_file=str(both)), "scheduler-1", "scheduler", SystemRuntime())
    for wrong in (str(other.ca_file), own.certificate_file):
        with pytest.raises(ConfigError, match="holds no authority that made"):
            check_own(evolve(own, ca_file=wrong), "scheduler-1", "scheduler", SystemRuntime())
