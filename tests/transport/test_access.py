"""Who may call what: every verb of every port, tried by everybody with real certificates over real sockets."""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from attrs import evolve

from ballista_py.errors import BallistaError, ConfigError, TransportError, Unauthenticated
from ballista_py.node.config import NodeConfig
from ballista_py.node.executor.answers import ExecutorAnswers
from ballista_py.node.scheduler.answers import SchedulerAnswers
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.control.grpc import CONTROL_METHODS
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.endpoints import CONTROL_SERVER_OPTIONS
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.server import FlightServer
from ballista_py.transport.flight_sql.leg_tickets import LegTicketCheck, LegTickets
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.flight_sql.message_forms import FLIGHT_SQL
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.port import FlightSqlService
from ballista_py.transport.security.access import CONTROL, DATA, PARTS, PORTS, PUBLIC, Access, Caller
from ballista_py.transport.security.callers import Nodes
from ballista_py.transport.security.certificates import CertificateFolder, check_own
from ballista_py.transport.security.credentials import Identity, Removed
from ballista_py.transport.table_read.port import TableServerService

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
CONTROL_VERBS = sorted(verb.removeprefix("rpc ") for verb in CONTROL.verbs)
DATA_KINDS = sorted(verb.removeprefix("DoExchange ") for verb in DATA.verbs)
NAMED = {"Leave", "AllocateInitialPartitions"}  # the rpcs whose request names an executor


class Told:
    """A scheduler's handler that notes what reached it."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def note(*arguments):
            self.asked.append((name, arguments))
            raise TransportError("no answer in this test")

        return note


@pytest.fixture
def folder(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    for number in (1, 2):
        made.add(f"executor-{number}", "executor")
        made.add(f"scheduler-{number}", "scheduler")
    return made


@pytest.fixture
def control(folder):
    """Address and handler of a control port."""
    told, workers, loop = Told(), ThreadPoolExecutor(4), asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    server = ControlServer(
        "127.0.0.1:0",
        "scheduler-1",
        told,
        workers,
        tls=folder.tls("scheduler-1"),
        removed=Removed(str(folder.removed_file)),
    )
    address = asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    running = asyncio.run_coroutine_threadsafe(server.run(), loop)
    yield str(address), told
    running.cancel()
    workers.shutdown(wait=False)


@pytest.fixture
def data(serve, folder):
    """The data port of executor-1, with the handler of a node that has not started yet."""
    return serve(
        ExecutorAnswers("executor-1", None, None),
        access=DATA,
        callers=Nodes(Removed(str(folder.removed_file))),
        tls=folder.tls("executor-1"),
        ask_client=True,
    ).address


def channel(address, tls, metadata=()):
    """A gRPC channel to scheduler-1 with the certificate of `tls`, if any."""
    pems = tls.read()
    credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
    options = [("grpc.ssl_target_name_override", "scheduler-1.scheduler.ballista")]
    return grpc.secure_channel(address, credentials, [*options, ("grpc.use_local_subchannel_pool", 1)])


def call(address, tls, verb, **fields):
    """What the control port says to an rpc: status and words."""
    with channel(address, tls) as link:
        path = f"/ballista_py.control.v1.Control/{verb}"
        try:
            if verb == "ControlStream":
                info = pb.ExecutorInfo(**(fields or {"executor_id": "executor-1", "instance_id": "i"}))
                beat = pb.ExecutorMessage(heartbeat=pb.Heartbeat(executor=info))
                stream = link.stream_stream(
                    path, pb.ExecutorMessage.SerializeToString, pb.SchedulerMessage.FromString
                )
                next(stream(iter([beat]), timeout=60))
            else:
                request = getattr(pb, f"{verb}Request")
                asked = link.unary_unary(path, request.SerializeToString, lambda data: data)
                asked(request(**(fields or ({"executor_id": "executor-1"} if verb in NAMED else {}))), timeout=60)
        except (grpc.RpcError, StopIteration) as error:
            return (error.code(), error.details()) if isinstance(error, grpc.RpcError) else (None, "")
    return grpc.StatusCode.OK, ""


def exchange(address, tls, node_id, kind):
    """What the data port says to a command."""
    with FlightPool(SystemRuntime(), tls=tls, node_id=node_id) as pool:
        try:
            if kind in ("write", "apply", "rewrite", "settle", "reload"):
                pool.ask(address, {"kind": kind}, peer_id="executor-1")
            else:
                list(pool.open_stream(address, {"kind": kind}, 60_000, peer_id="executor-1").batches())
        except BallistaError as error:
            return error
    return None


@pytest.mark.parametrize("verb", CONTROL_VERBS)
def test_an_rpc_reaches_the_handler_for_the_roles_in_the_table_and_for_no_other(control, folder, verb):
    address, told = control
    for name in ("executor-1", "scheduler-2"):
        told.asked.clear()
        status, said = call(address, folder.tls(name), verb)
        may = name.partition("-")[0] in CONTROL.verbs[f"rpc {verb}"]
        assert bool(told.asked) == may, (name, said)
        assert (status is grpc.StatusCode.UNAUTHENTICATED) != may, (name, said)


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_the_data_port_does_for_schedulers_what_it_does_for_no_executor(data, folder, kind):
    assert "not for" not in str(exchange(data, folder.tls("scheduler-1"), "scheduler-1", kind))
    refused = exchange(data, folder.tls("executor-2"), "executor-2", kind)
    assert isinstance(refused, Unauthenticated)
    assert "is not for the executor 'executor-2'" in str(refused)


@pytest.mark.parametrize("verb", CONTROL_VERBS)
def test_a_removed_node_is_refused_by_every_rpc(control, folder, verb):
    address, told = control
    for name in ("executor-1", "scheduler-2"):
        folder.removed_file.write_text("executor-1\nscheduler-2\n")
        status, said = call(address, folder.tls(name), verb)
        assert status is grpc.StatusCode.UNAUTHENTICATED
        assert said == f"node '{name}' was removed from the cluster"
    assert told.asked == []


def test_a_removed_scheduler_is_refused_by_every_command_of_the_data_port(data, folder):
    folder.removed_file.write_text("scheduler-1\n")
    for kind in DATA_KINDS:
        refused = exchange(data, folder.tls("scheduler-1"), "scheduler-1", kind)
        assert str(refused) == "node 'scheduler-1' was removed from the cluster"


def test_a_stranger_and_who_shows_no_certificate_reach_no_verb_of_the_ports_between_nodes(
    control, data, folder, tmp_path
):
    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    other.add("scheduler-1", "scheduler")
    foreign = evolve(other.tls("scheduler-1"), ca_file=str(folder.ca_file))
    nothing = evolve(foreign, certificate_file=None, key_file=None)
    address, told = control
    for tls in (foreign, nothing):
        for verb in CONTROL_VERBS:
            assert call(address, tls, verb)[0] is grpc.StatusCode.UNAVAILABLE
        for kind in DATA_KINDS:
            assert type(exchange(data, tls, "scheduler-1", kind)) is TransportError
    assert told.asked == []


def test_a_clients_token_opens_no_port_between_nodes(control, data, folder):
    bearer = (b"authorization", b"Bearer a-token-of-some-length")
    pems = folder.tls("executor-1").read()
    client = flight.FlightClient(
        f"grpc+tls://{data}", tls_root_certs=pems.ca, override_hostname="executor-1.executor.ballista"
    )
    with pytest.raises(flight.FlightUnavailableError):
        list(client.do_action(flight.Action("held", b"{}"), flight.FlightCallOptions(headers=[bearer])))
    client.close()
    address, told = control
    assert call(address, evolve(folder.tls("executor-1"), certificate_file=None, key_file=None), "Leave")[0]
    assert told.asked == []


@pytest.mark.parametrize("verb", [*sorted(NAMED), "ControlStream"])
def test_an_executor_speaks_for_no_other(control, folder, verb):
    address, told = control
    status, said = call(
        address, folder.tls("executor-2"), verb, executor_id="executor-1", instance_id="instance of executor-1"
    )
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert said == "the certificate is that of node 'executor-2', not of 'executor-1'"
    assert told.asked == []


def test_an_executor_cannot_take_over_the_stream_of_anothers_instance(control, folder):
    address, told = control
    told.heard = lambda beat: None

    def beats(name):
        info = pb.ExecutorInfo(executor_id=name, instance_id="i1")
        yield pb.ExecutorMessage(heartbeat=pb.Heartbeat(executor=info, sequence=1))
        over.wait(60)

    over = threading.Event()
    path = "/ballista_py.control.v1.Control/ControlStream"
    coded = pb.ExecutorMessage.SerializeToString, pb.SchedulerMessage.FromString
    with channel(address, folder.tls("executor-1")) as own, channel(address, folder.tls("executor-2")) as liars:
        stream = own.stream_stream(path, *coded)(beats("executor-1"))
        assert next(stream).WhichOneof("body") == "heard"
        with pytest.raises(grpc.RpcError) as raised:
            next(liars.stream_stream(path, *coded)(beats("executor-2")))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "is one of executor 'executor-1'" in raised.value.details()
        assert stream.is_active()
        over.set()


def test_an_open_stream_of_a_node_that_is_removed_ends_before_its_next_heartbeat(control, folder):
    address, told = control
    told.heard = lambda beat: None
    over = threading.Event()

    def beats():
        info = pb.ExecutorInfo(executor_id="executor-1", instance_id="i1")
        yield pb.ExecutorMessage(heartbeat=pb.Heartbeat(executor=info, sequence=1))
        over.wait(60)

    with channel(address, folder.tls("executor-1")) as own:
        stream = own.stream_stream(
            "/ballista_py.control.v1.Control/ControlStream",
            pb.ExecutorMessage.SerializeToString,
            pb.SchedulerMessage.FromString,
        )(beats())
        next(stream)
        folder.removed_file.write_text("executor-1\n")
        with pytest.raises(grpc.RpcError, match="was removed"):
            next(stream)
        over.set()


def old_certificate(folder, tmp_path, name):
    """A certificate as releases before this one made them: it names a node and no role."""

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path)

    curve = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    openssl(
        "req", "-new", "-nodes", "-newkey", *curve, "-keyout", "key.pem", "-out", "r.csr", "-subj", f"/CN={name}"
    )
    (tmp_path / "ext").write_text(f"subjectAltName=DNS:{name},DNS:localhost\nbasicConstraints=CA:FALSE\n")
    words = ["x509", "-req", "-in", "r.csr", "-CA", str(folder.ca_file), "-CAkey", str(folder.folder / "ca.key")]
    openssl(*words, "-CAcreateserial", "-CAserial", "serial", "-days", "2", "-extfile", "ext", "-out", "cert.pem")
    return evolve(
        folder.tls("executor-1"),
        certificate_file=str(tmp_path / "cert.pem"),
        key_file=str(tmp_path / "key.pem"),
    )


def test_a_certificate_without_a_role_is_refused_everywhere_with_the_way_out(control, data, folder, tmp_path):
    tls = old_certificate(folder, tmp_path, "scheduler-2")
    refused = exchange(data, tls, "scheduler-2", "leg")
    assert isinstance(refused, Unauthenticated)
    address, told = control
    for said in (str(refused), call(address, tls, "GetSchedulers")[1]):
        assert "names no role" in said
        assert "ballista-py cluster tls add NAME --role" in said
    assert told.asked == []
    with pytest.raises(ConfigError, match="names no role"):
        check_own(tls, "scheduler-2", "scheduler", SystemRuntime())


def test_a_node_does_not_start_with_the_certificate_of_another_node_or_role(folder):
    check_own(folder.tls("executor-1"), "executor-1", "executor", SystemRuntime())
    check_own(None, "executor-1", "executor", SystemRuntime())
    for node_id, role in (("executor-2", "executor"), ("executor-1", "scheduler")):
        config = NodeConfig(
            role=role,
            node_id=node_id,
            state_location=folder.folder.as_uri(),
            scheduler_address=("127.0.0.1:1",),
            node_mtls_ca_certificate_file=str(folder.ca_file),
            node_mtls_certificate_file=folder.tls("executor-1").certificate_file,
            node_mtls_key_file=folder.tls("executor-1").key_file,
        )
        with pytest.raises(ConfigError, match="is that of the executor 'executor-1'"):
            check_own(config.node_tls(), config.node_id, config.role, SystemRuntime())


def test_the_authority_gives_no_node_a_second_role_and_no_node_the_name_of_another(folder):
    with pytest.raises(ConfigError, match="has a certificate as executor"):
        folder.add("executor-1", "scheduler")
    with pytest.raises(ConfigError, match=r"end in '\.ballista'"):
        folder.add("executor-3", "executor", ["scheduler-1.scheduler.ballista"])
    with pytest.raises(ConfigError, match=r"end in '\.ballista'"):
        folder.add("executor-3", "executor", ["Scheduler-1.Scheduler.BALLISTA."])


def test_a_ticket_that_an_executor_signed_gives_nothing(folder):
    check = LegTicketCheck(
        executor_id="executor-1", cluster_id="c", runtime=SystemRuntime(), tls=folder.tls("executor-1")
    )
    command = {"kind": "leg"}
    by = {
        name: LegTickets(cluster_id="c", runtime=SystemRuntime(), tls=folder.tls(name))
        for name in ("scheduler-1", "executor-1", "executor-2")
    }
    assert check.command(by["scheduler-1"].issue("executor-1", command, "digest"), "digest") == command
    for name in ("executor-1", "executor-2"):
        with pytest.raises(Unauthenticated, match="is no scheduler"):
            check.command(by[name].issue("executor-1", command, "digest"), "digest")


def test_clients_are_sent_with_their_token_nowhere_but_to_the_executors_own_host_over_tls(folder):
    tickets = LegTickets(cluster_id="c", runtime=SystemRuntime(), tls=folder.tls("scheduler-1"))
    assert tickets.location("grpc+tls://e1:50054", "e1:50053") == "grpc+tls://e1:50054"
    for said in ("grpc://e1:50054", "grpc+tls://evil:50054", "https://e1:1", "grpc+tls://e1:1@evil:2", "", None):
        assert tickets.location(said, "e1:50053") is None


def test_a_verb_that_is_not_in_the_table_is_refused_to_everybody(data, folder):
    for kind in ("sql", "leg2", "", None, {"a": 1}, "x" * 5_000, "line\nbreak"):
        refused = exchange(data, folder.tls("scheduler-1"), "scheduler-1", kind)
        assert "the data port does not answer" in str(refused)
        assert "\n" not in str(refused)
        assert len(str(refused)) < 200


def test_a_handler_that_is_not_in_the_table_makes_no_port(folder):
    class Two:
        verbs = ("DoExchange leg", "DoExchange shell")

    with pytest.raises(AssertionError, match="DoExchange shell"):
        FlightServer("127.0.0.1:0", Two(), SystemRuntime(), access=DATA, spawn=pytest.fail)
    with pytest.raises(AssertionError, match="rpc Shell"):
        CONTROL.check_registered(["rpc Leave", "rpc Shell"])


def test_a_port_without_proofs_answers_its_table_and_nothing_else():
    for name, access in PORTS.items():
        for verb in access.verbs:
            access.check(verb, Caller("10.0.0.7"))
        with pytest.raises(TransportError, match=f"the {name} port does not answer 'DoExchange shell'"):
            access.check("DoExchange shell", Caller("10.0.0.7"))


def registered():
    """What the ports of a node can be asked, from those who answer."""
    told, services = SchedulerAnswers, (FlightSqlService, PartsService)
    public, parts = (
        service.verbs(service.__new__(service), handler)
        for service, handler in zip(services, (told, ExecutorAnswers), strict=True)
    )
    return {
        "public": public,
        "control": {f"rpc {method.name}" for method in CONTROL_METHODS},
        "data": set(ExecutorAnswers.verbs),
        "parts": parts,
        "tables": TableServerService.verbs(TableServerService.__new__(TableServerService), ExecutorAnswers),
    }


def test_the_table_holds_exactly_what_the_ports_can_be_asked(served_paths):
    found = {**registered(), **served_paths}
    assert {name: set(access.verbs) for name, access in PORTS.items()} == found


@pytest.fixture
def served_paths():
    """The routes of the HTTP ports as a node opens them."""
    from ballista_py.node.http import routes_cluster, routes_jobs, routes_node, routes_page, routes_sql
    from ballista_py.node.http.app import HttpApp
    from ballista_py.node.http.callers import HttpCallers
    from ballista_py.node.http.door import HttpDoor
    from ballista_py.transport.flight.calls import OpenCalls

    def app(access, routes):
        calls = OpenCalls(1, 1_000, SystemRuntime(), access=access)
        callers = HttpCallers(None, None)
        door = HttpDoor(
            access=access, callers=callers, statements=calls, looks=calls, threads=None, refusals=calls.refusals
        )
        return HttpApp(door, routes(door), 16 << 10)

    def of_scheduler(door):
        shows = Mock(node_id="s", role="scheduler", parts=[])
        of_node = [*routes_node.routes(shows, door), *routes_page.routes(shows, door, SystemRuntime())]
        of_clients = (*routes_sql.routes(Mock(), door), *routes_jobs.routes(Mock(), door))
        return [*of_node, *routes_cluster.routes(Mock(), door), *of_clients]

    http = app(PORTS["http"], of_scheduler)
    metrics = app(PORTS["metrics"], lambda door: routes_node.metrics_routes(bytes, door))
    return {"http": set(http.verbs), "metrics": set(metrics.verbs)}


def documented():
    """The table of docs/security.md: verb and who may, by port."""
    found = {name: {} for name in PORTS}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        port = cells[0].partition(" ")[0]
        if line.startswith("|") and port in found and len(cells) == 4:
            methods, names = (re.findall("`([^`]+)`", cell) for cell in cells[1:3])
            who = set(cells[3].replace(" or ", ", ").split(", "))
            for method in methods:
                for name in names or [""]:
                    found[port][f"{method} {name}".strip()] = who
    return found


def test_the_document_says_of_every_verb_who_may():
    expected = {name: {verb: set(who) for verb, who in access.verbs.items()} for name, access in PORTS.items()}
    assert documented() == expected


def test_every_command_of_flight_sql_is_refused_by_every_method_that_it_is_not_for(serve):
    calls = {
        "GetFlightInfo": lambda client, data: client.get_flight_info(flight.FlightDescriptor.for_command(data)),
        "GetSchema": lambda client, data: client.get_schema(flight.FlightDescriptor.for_command(data)),
        "DoGet": lambda client, data: client.do_get(flight.Ticket(data)).read_all(),
        "DoPut": put,
    }
    names = {line.split()[0] for line in FLIGHT_SQL.strip().splitlines()}
    service = partial(FlightSqlService, ready=lambda: pytest.fail("it was let in"), runtime=SystemRuntime())
    served = serve(service=service, access=PUBLIC)
    with flight.connect(f"grpc://{served.address}") as client:
        tried = 0
        for method, ask in calls.items():
            for name in sorted(names):
                if f"{method} {name}" not in PUBLIC.verbs and re.match("Command|Ticket|Action|DoPut", name):
                    with pytest.raises((pa.ArrowException, flight.FlightError), match="does not answer"):
                        ask(client, pack(message(name)))
                    tried += 1
    assert tried > 50


def put(client, data):
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(data), pa.schema([]))
    writer.close()


def test_names_of_nodes_are_read_as_they_were_written():
    for node_id in ("s-1", "a_b", "x" * 63):
        for role in ("scheduler", "executor"):
            assert Identity.parse(Identity(node_id, role).name) == Identity(node_id, role)
    for name in ("", "s1", "s1.scheduler", "s1.client.ballista", ".scheduler.ballista", "a.b.scheduler.ballista"):
        assert Identity.parse(name) is None


def test_a_port_says_what_is_not_for_whom():
    with pytest.raises(Unauthenticated, match="rpc Leave is not for the scheduler 's1'"):
        CONTROL.check("rpc Leave", Caller("s1", "scheduler"))
    with pytest.raises(Unauthenticated, match="not for a client"):
        PARTS.check("DoGet TicketStatementQuery", Caller("", "client"))
    assert dict(CONTROL_SERVER_OPTIONS)["grpc.max_concurrent_streams"] < 100
    Access("http", {"GET /health": ("anyone",)}).check("GET /health", Caller("", "client"))
