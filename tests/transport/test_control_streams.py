"""Control streams on real sockets: they find every scheduler, heal by themselves and never slow each other."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc.aio
import pyarrow as pa
import pytest
from attrs import define, evolve, field

from ballista_py.errors import ConfigError, Fenced, ObjectMissing, StoreUnavailable, TransportError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    AppDefinition,
    CancelTasks,
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    NodeReport,
    PartitionAssignment,
    PollNow,
    RefreshDataset,
    Refusal,
    TaskRecord,
    UpdatePartitions,
)
from ballista_py.threads import new_event_loop
from ballista_py.transport.control import control_gate
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.control.codec import heartbeat_to_message
from ballista_py.transport.control.grpc import CONTROL_METHODS, StatusCode, rpc
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.link import LINK_FAILURES, ControlLink
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.control.service import Letter
from ballista_py.transport.endpoints import open_control
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Removed, Tls

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def update(revision, table="t", instance_id="i1", partitions=1):
    spec = TableSpec(name=table, schema=SCHEMA, spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA))
    return UpdatePartitions(
        instance_id=instance_id,
        table=spec,
        revision=revision,
        partitions=tuple(
            PartitionAssignment(partition=n, path=f"expr0={n}", epoch=1, role="owner") for n in range(partitions)
        ),
    )


def task(started_at_ms, kind):
    return TaskRecord(
        node_id="lies",
        task_id="a",
        kind=kind,
        text="select 1",
        started_at_ms=started_at_ms,
        took_ms=1.5,
        rows=3,
        outcome="done",
    )


@define
class Scheduler:
    """A handler that grants everything, and keeps what it heard."""

    scheduler_id: str
    others: list[SchedulerInfo]
    heard_all: list[Heartbeat] = field(factory=list)
    left: list[tuple[str, str]] = field(factory=list)
    answer: object = None
    block: threading.Event | None = None

    def heard(self, heartbeat):
        self.heard_all.append(heartbeat)
        if self.block is not None:
            self.block.wait(10)
        if self.answer is not None:
            return self.answer(heartbeat)
        return Grant(sequence=heartbeat.sequence, lease_ms=1000)

    def schedulers(self):
        return tuple(self.others)

    def leave(self, executor_id, instance_id):
        if self.answer is not None:
            raise StoreUnavailable("the store does not answer")
        self.left.append((executor_id, instance_id))

    def definition(self):
        return AppDefinition(revision=7, tables=(update(1).table,), labels={"dsn": "${secrets:db}"})

    def secret(self, key):
        return {"db": Secret("hunter2")}.get(key)

    def allocate(self, executor_id, instance_id):
        return (update(5, instance_id=instance_id),)

    def report(self, tasks):
        return NodeReport(node_id=self.scheduler_id, metrics_text=b"up 1\n", tasks=(task(1, "own"),)[:tasks])


@define
class Executor:
    """An executor that says what it is told to, and keeps what it received."""

    info: ExecutorInfo = field(
        factory=lambda: ExecutorInfo(executor_id="e1", instance_id="i1", data_address="h:1")
    )
    held: tuple[HeldPartitions, ...] = ()
    sequence: int = 0
    messages: list = field(factory=list)
    fenced: bool = False
    crash_on: type | None = None

    def heartbeat(self):
        if self.fenced:
            raise Fenced("lost")
        self.sequence += 1
        return Heartbeat(executor=self.info, sequence=self.sequence, lapsed=False, held=self.held)

    def received(self, message):
        if self.crash_on is not None and isinstance(message, self.crash_on):
            raise RuntimeError("bug")
        self.messages.append(message)

    def report(self, tasks):
        return NodeReport(node_id="lies", metrics_text=b"held 2\n", tasks=(task(2, "leg"), task(0, "leg"))[:tasks])

    def updates(self):
        return [m for m in self.messages if isinstance(m, UpdatePartitions)]


class Node:
    """A running server or client on the shared loop."""

    def __init__(self, control, part, task):
        self._control, self.part, self._task = control, part, task

    def stop(self):
        self._control.wait_for(_end(self._task))


async def _end(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Control:
    """One loop, as a node has it, with servers and clients on it."""

    def __init__(self):
        self.loop = new_event_loop()
        self.workers = ThreadPoolExecutor(16)
        self.schedulers: list[SchedulerInfo] = []
        self.nodes: list[Node] = []
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def wait_for(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def serve(self, scheduler_id="s1", port=0, listed=True, handler=None, **options):
        handler = handler or Scheduler(scheduler_id, self.schedulers)
        server = ControlServer(f"127.0.0.1:{port}", scheduler_id, handler, self.workers, **options)
        address = str(self.wait_for(server.start()))
        if listed:
            self.schedulers.append(
                SchedulerInfo(scheduler_id=scheduler_id, instance_id="x", control_address=address)
            )
        node = self._run(server)
        node.handler, node.address = handler, address
        return node

    def execute(self, *seeds, executor=None, **options):
        executor = executor or Executor()
        options = {"heartbeat_ms": 100, "discovery_ms": 200, **options}
        client = ControlClient(seeds, executor, self.workers, SystemRuntime(), **options)
        node = self._run(client)
        node.executor = executor
        return node

    def _run(self, part):
        async def start():
            return asyncio.create_task(part.run())

        node = Node(self, part, self.wait_for(start()))
        self.nodes.append(node)
        return node

    def close(self):
        for node in self.nodes:
            node.stop()
        assert not self.wait_for(self._tasks_left())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.workers.shutdown(wait=True)

    async def _tasks_left(self):
        await asyncio.sleep(0.05)
        return [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and "run" in repr(t.get_coro())]


@pytest.fixture
def control():
    made = Control()
    yield made
    made.close()


def test_heartbeats_are_answered_with_grants(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address)
    kit.wait_until(lambda: len(node.executor.messages) >= 3)
    assert all(isinstance(message, Grant) for message in node.executor.messages)
    assert node.part.connected() == ("s1",)
    assert scheduler.part.connected() == ("i1",)
    assert [h.sequence for h in scheduler.handler.heard_all][:3] == [1, 2, 3]


def test_a_refusal_and_no_answer_at_all_keep_the_stream(control, kit):
    scheduler = control.serve()
    answers = iter([*[None] * 30, *[Refusal(sequence=0, reason="not_admitted", message="no")] * 1000])
    scheduler.handler.answer = lambda heartbeat: next(answers)
    node = control.execute(scheduler.address, silence_ms=2_000)
    kit.wait_until(lambda: len(scheduler.handler.heard_all) > 35)
    assert {type(message) for message in node.executor.messages} == {Refusal}
    assert [h.sequence for h in scheduler.handler.heard_all] == list(
        range(1, len(scheduler.handler.heard_all) + 1)
    )


def test_a_scheduler_that_cannot_decide_for_long_does_not_break_the_stream(control, kit):
    scheduler = control.serve()
    scheduler.handler.answer = lambda heartbeat: None
    node = control.execute(scheduler.address, silence_ms=300)
    kit.wait_until(lambda: len(scheduler.handler.heard_all) > 10)
    assert node.part.connected() == ("s1",)
    assert scheduler.handler.heard_all[0].sequence == 1
    assert len({id(peer) for peer in scheduler.part.connected()}) == 1


def test_an_update_reaches_the_instance_it_is_meant_for(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address)
    kit.wait_until(scheduler.part.connected)
    assert not scheduler.part.push("another", update(1, instance_id="another"))
    assert scheduler.part.push("i1", update(1))
    kit.wait_until(node.executor.updates)
    assert node.executor.updates() == [update(1)]


def test_a_poke_tells_every_scheduler_at_once_what_is_held_now(control, kit):
    schedulers = [control.serve("s1"), control.serve("s2")]
    node = control.execute(schedulers[0].address, heartbeat_ms=60_000)
    kit.wait_until(lambda: node.part.connected() == ("s1", "s2"))
    node.executor.held = (HeldPartitions(table="t", revision=3, active=(1,), epochs=(1,)),)
    node.part.poke()
    kit.wait_until(lambda: all(s.handler.heard_all[-1].held == node.executor.held for s in schedulers))


def test_every_scheduler_is_found_from_one_and_forgotten_when_it_is_gone(control, kit):
    first = control.serve("s1")
    node = control.execute(first.address)
    kit.wait_until(lambda: node.part.connected() == ("s1",))
    second = control.serve("s2")
    kit.wait_until(lambda: node.part.connected() == ("s1", "s2"))
    second.stop()
    del control.schedulers[1]
    kit.wait_until(lambda: node.part.connected() == ("s1",))
    kit.wait_until(lambda: set(node.part._keepers) == {first.address})


def test_two_addresses_of_one_scheduler_get_one_stream(control, kit):
    scheduler = control.serve()
    alias = scheduler.address.replace("127.0.0.1", "localhost")
    node = control.execute(alias, scheduler.address)
    kit.wait_until(lambda: node.executor.sequence > 10)
    assert len({h.sequence for h in scheduler.handler.heard_all}) == len(scheduler.handler.heard_all)
    assert scheduler.part.connected() == ("i1",)
    assert node.part.connected() == ("s1",)


def test_a_restarted_scheduler_hears_everything_again_within_seconds(control, kit):
    scheduler = control.serve()
    port = int(scheduler.address.rpartition(":")[2])
    held = (HeldPartitions(table="t", revision=3, active=(1,), epochs=(1,)),)
    node = control.execute(scheduler.address, executor=Executor(held=held))
    kit.wait_until(node.part.connected)
    scheduler.stop()
    kit.wait_until(lambda: not node.part.connected())
    time.sleep(0.5)
    again = control.serve(port=port, listed=False)
    kit.wait_until(lambda: again.handler.heard_all)
    assert again.handler.heard_all[0].held == held


def test_an_executor_that_starts_before_any_scheduler_finds_it_later(control, kit):
    scheduler = control.serve()
    port = int(scheduler.address.rpartition(":")[2])
    scheduler.stop()
    node = control.execute(scheduler.address)
    time.sleep(0.3)
    control.serve(port=port, listed=False)
    kit.wait_until(node.part.connected)


def test_a_newer_stream_of_an_instance_replaces_the_older_and_survives_its_end(control, kit):
    scheduler = control.serve()
    old = control.execute(scheduler.address, heartbeat_ms=60_000)
    kit.wait_until(scheduler.part.connected)
    new = control.execute(scheduler.address)
    kit.wait_until(new.part.connected)
    old.stop()
    time.sleep(0.3)
    kit.wait_until(lambda: scheduler.part.connected() == ("i1",))  # the old one may have come back once meanwhile
    kit.wait_until(lambda: scheduler.part.push("i1", update(1)) and new.executor.updates())
    assert not old.executor.updates()


def test_another_instance_of_the_same_executor_does_not_take_over_its_stream(control, kit):
    scheduler = control.serve()
    first = control.execute(scheduler.address)
    info = evolve(first.executor.info, instance_id="i2")
    second = control.execute(scheduler.address, executor=Executor(info=info))
    kit.wait_until(lambda: len(scheduler.part.connected()) == 2)
    scheduler.part.push("i1", update(1))
    kit.wait_until(first.executor.updates)
    assert not second.executor.updates()


def test_an_executor_that_joins_as_a_new_instance_keeps_its_stream_under_the_new_name(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address)
    kit.wait_until(scheduler.part.connected)
    node.executor.fenced = True
    time.sleep(0.25)
    node.executor.info = evolve(node.executor.info, instance_id="i2")
    node.executor.fenced = False
    kit.wait_until(lambda: scheduler.part.connected() == ("i2",))
    assert scheduler.part.push("i2", update(1, instance_id="i2"))
    kit.wait_until(node.executor.updates)


def test_a_message_that_cannot_be_taken_in_does_not_cost_the_lease(control, kit, caplog):
    scheduler = control.serve()
    node = control.execute(scheduler.address, executor=Executor(crash_on=UpdatePartitions))
    kit.wait_until(scheduler.part.connected)
    scheduler.part.push("i1", update(1))
    kit.wait_until(lambda: "could not be taken in" in caplog.text)
    count = len(node.executor.messages)
    kit.wait_until(lambda: len(node.executor.messages) > count + 2)
    assert [h.sequence for h in scheduler.handler.heard_all] == list(
        range(1, len(scheduler.handler.heard_all) + 1)
    )


def test_one_blocked_heartbeat_does_not_hold_up_the_other_executors(control, kit):
    scheduler = control.serve()
    scheduler.handler.block = threading.Event()
    control.execute(scheduler.address)
    kit.wait_until(lambda: scheduler.handler.heard_all)
    blocked, scheduler.handler.block = scheduler.handler.block, None
    other = control.execute(
        scheduler.address,
        executor=Executor(info=ExecutorInfo(executor_id="e2", instance_id="i2", data_address="")),
    )
    kit.wait_until(lambda: len(other.executor.messages) > 3)
    blocked.set()


SLOW_MS = 3_000


async def _open_unread(address, heartbeat):
    """A stream that says one thing and then never reads."""
    channel = open_control(address)
    stream = rpc.ControlStub(channel).ControlStream()
    await stream.write(heartbeat_to_message(heartbeat))
    return channel, stream


def _told(scheduler, node, message):
    """Say it until it is heard, as the cycles of a scheduler do."""
    scheduler.part.push("i1", message)
    return message in node.executor.updates()


async def _read_all(stream):
    while await stream.read() is not grpc.aio.EOF:
        pass


@pytest.mark.turn(3)
def test_a_peer_that_reads_slowly_is_cut_off_with_a_reason_and_slows_nobody(control, kit, caplog):
    caplog.set_level(logging.WARNING)
    scheduler = control.serve(write_timeout_ms=SLOW_MS)
    slow = Heartbeat(
        executor=ExecutorInfo(executor_id="slow", instance_id="slow", data_address=""), sequence=1, lapsed=False
    )
    channel, stream = control.wait_for(_open_unread(scheduler.address, slow))
    good = control.execute(scheduler.address)
    kit.wait_until(lambda: len(scheduler.part.connected()) == 2)
    latencies = []

    def flood():
        revision = len(latencies) + 1
        scheduler.part.push("slow", update(revision, instance_id="slow", partitions=20_000))
        started = time.monotonic()
        kit.wait_until(lambda: _told(scheduler, good, update(revision)))
        latencies.append(time.monotonic() - started)
        return "slow" not in scheduler.part.connected()

    kit.wait_until(flood)
    assert max(latencies) < SLOW_MS / 1e3
    kit.wait_until(lambda: "reads too slowly" in caplog.text)
    with pytest.raises(LINK_FAILURES):
        control.wait_for(_read_all(stream))
    control.wait_for(channel.close())


def test_a_peer_that_says_nothing_is_cut_off(control, kit, caplog):
    caplog.set_level(logging.WARNING)
    scheduler = control.serve(silence_ms=200)
    quiet = control.execute(scheduler.address, heartbeat_ms=60_000)
    kit.wait_until(lambda: "nothing was heard for 0.2 s" in caplog.text)
    kit.wait_until(lambda: len(scheduler.handler.heard_all) >= 2)
    assert quiet.executor.messages


def test_a_scheduler_that_falls_silent_is_left_and_tried_again(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address, silence_ms=300)
    kit.wait_until(node.part.connected)
    scheduler.handler.block = threading.Event()
    kit.wait_until(lambda: not node.part.connected())
    scheduler.handler.block.set()
    scheduler.handler.block = None
    kit.wait_until(node.part.connected)


def test_leaving_is_told_to_a_scheduler_that_commits_it(control, kit):
    refusing, committing = control.serve("s1"), control.serve("s2")
    node = control.execute(refusing.address)
    kit.wait_until(lambda: node.part.connected() == ("s1", "s2"))
    refusing.handler.answer = lambda heartbeat: None
    assert control.wait_for(node.part.leave("e1", "i1"))
    assert committing.handler.left == [("e1", "i1")]
    committing.handler.answer = refusing.handler.answer
    assert not control.wait_for(node.part.leave("e1", "i1"))


def test_no_text_of_a_crash_in_a_handler_reaches_an_executor(control):
    class Crashing(Scheduler):
        def heard(self, heartbeat):
            raise RuntimeError("secret in /root/key")

        def schedulers(self):
            raise RuntimeError("secret in /root/key")

    scheduler = control.serve(handler=Crashing("s1", []))
    heartbeat = heartbeat_to_message(Executor().heartbeat())

    async def ask():
        async with open_control(scheduler.address) as channel:
            await rpc.ControlStub(channel).GetSchedulers(pb.GetSchedulersRequest(), timeout=60)

    async def say():
        async with open_control(scheduler.address) as channel:
            stream = rpc.ControlStub(channel).ControlStream()
            await stream.write(heartbeat)
            await stream.read()
            raise AssertionError("the stream should have ended with an error")

    for work in (ask, say):
        with pytest.raises(LINK_FAILURES) as caught:
            control.wait_for(work())
        assert caught.value.details() == "internal error (RuntimeError)"


def test_a_control_port_in_use_is_a_config_error_that_names_it(control):
    taken = control.serve().address
    for address in (taken, "203.0.113.7:0"):
        server = ControlServer(address, "s2", Scheduler("s2", []), control.workers)
        with pytest.raises(ConfigError, match=f"cannot listen on {address}"):
            control.wait_for(server.start())


def test_a_seed_that_is_no_address_is_a_config_error(control):
    with pytest.raises(ConfigError, match="is not an address"):
        ControlClient(["nonsense"], Executor(), control.workers, SystemRuntime(), heartbeat_ms=100)


def test_garbage_on_the_control_port_is_refused_without_harm(control, kit):
    scheduler = control.serve()
    port = int(scheduler.address.rpartition(":")[2])
    for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 50):
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(junk)

    async def garbage():
        async with open_control(scheduler.address) as channel:
            call = channel.stream_stream("/ballista_py.control.v1.Control/ControlStream")()
            await call.write(b"\xff\xff\xff")
            return await call.read()

    with pytest.raises(LINK_FAILURES):
        control.wait_for(garbage())
    node = control.execute(scheduler.address)
    kit.wait_until(node.part.connected)


@pytest.fixture
def folder(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    for name in ("s1", "s2", "e1", "e2"):
        made.add(name, "scheduler" if name.startswith("s") else "executor")
    return made


def test_with_certificates_every_scheduler_is_found_and_proves_its_name(control, kit, folder):
    removed = Removed(str(folder.removed_file))
    schedulers = [control.serve(name, tls=folder.tls(name), removed=removed) for name in ("s1", "s2")]
    node = control.execute(schedulers[0].address, tls=folder.tls("e1"))
    kit.wait_until(lambda: node.part.connected() == ("s1", "s2"))
    assert {h.executor.executor_id for s in schedulers for h in s.handler.heard_all} == {"e1"}
    assert control.wait_for(node.part.leave("e1", "i1"))


def test_an_executor_cannot_speak_for_another(control, kit, folder, caplog):
    scheduler = control.serve("s1", tls=folder.tls("s1"))
    liar = control.execute(scheduler.address, tls=folder.tls("e2"))
    kit.wait_until(lambda: "the certificate is that of node 'e2', not of 'e1'" in caplog.text)
    assert not control.wait_for(liar.part.leave("e1", "i1"))
    assert not scheduler.handler.heard_all
    assert not scheduler.handler.left
    assert not scheduler.part.connected()


def test_a_scheduler_under_a_false_name_is_told_nothing(control, kit, folder):
    liar = control.serve("s1", tls=folder.tls("s2"))
    node = control.execute(liar.address, tls=folder.tls("e1"))
    time.sleep(1.0)
    assert not liar.handler.heard_all
    assert not node.part.connected()


def test_plain_text_and_foreign_certificates_do_not_reach_the_control_port(control, folder, tmp_path):
    foreign = CertificateFolder(tmp_path / "foreign", SystemRuntime())
    foreign.init()
    foreign.add("e1", "executor")
    folder.add("late", "executor", days=-1)
    mixed = evolve(foreign.tls("e1"), ca_file=str(folder.ca_file))
    scheduler = control.serve("s1", tls=folder.tls("s1"))

    async def ask(tls):
        async with open_control(scheduler.address, tls) as channel:
            return await rpc.ControlStub(channel).GetSchedulers(pb.GetSchedulersRequest(), timeout=60)

    assert control.wait_for(ask(folder.tls("e1"))).scheduler_id == "s1"
    for tls in (None, Tls(ca_file=str(folder.ca_file)), foreign.tls("e1"), mixed, folder.tls("late")):
        with pytest.raises(LINK_FAILURES):
            control.wait_for(ask(tls))


def test_a_removed_executor_is_cut_off_at_its_next_heartbeat(control, kit, folder, caplog):
    removed = Removed(str(folder.removed_file))
    scheduler = control.serve("s1", tls=folder.tls("s1"), removed=removed)
    node = control.execute(scheduler.address, tls=folder.tls("e1"))
    kit.wait_until(node.part.connected)
    folder.remove("e1")
    kit.wait_until(lambda: not scheduler.part.connected())
    kit.wait_until(lambda: "node 'e1' was removed from the cluster" in caplog.text)
    count = len(scheduler.handler.heard_all)
    time.sleep(0.5)
    assert len(scheduler.handler.heard_all) == count


def test_a_renewed_certificate_of_a_scheduler_counts_for_the_next_connection(control, kit, folder):
    folder.add("s1", "scheduler", days=0.5 / 86_400)  # half a second
    scheduler = control.serve("s1", tls=folder.tls("s1"))
    time.sleep(1.5)
    node = control.execute(scheduler.address, tls=folder.tls("e1"))
    time.sleep(0.5)
    assert not node.part.connected()
    folder.add("s1", "scheduler")
    kit.wait_until(node.part.connected)


def test_requests_reach_the_executor_and_a_poll_is_answered_at_once(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address, heartbeat_ms=60_000)
    kit.wait_until(lambda: scheduler.part.connected() and scheduler.handler.heard_all)
    sent = [RefreshDataset("t"), CancelTasks(("a", "b")), PollNow()]
    for message in sent:
        scheduler.part.push("i1", message)
    kit.wait_until(lambda: [m for m in node.executor.messages if not isinstance(m, Grant)] == sent)
    kit.wait_until(lambda: len(scheduler.handler.heard_all) == 2 or len(scheduler.handler.heard_all) == 3)


def test_the_definition_and_what_is_to_be_held_can_be_asked_for(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address)
    kit.wait_until(node.part.connected)
    assert control.wait_for(node.part.ask(ControlLink.definition)) == scheduler.handler.definition()
    found = control.wait_for(node.part.ask(lambda link: link.allocate("e1", "i1")))
    assert found == (update(5),)


def test_a_question_goes_to_another_scheduler_when_one_does_not_answer(control, kit):
    first, second = control.serve("s1"), control.serve("s2")
    node = control.execute(first.address)
    kit.wait_until(lambda: node.part.connected() == ("s1", "s2"))

    async def fussy(link):
        if link.address == first.address:
            raise LINK_FAILURES[1]("no")
        return await link.definition()

    assert control.wait_for(node.part.ask(fussy)).revision == 7
    second.stop()
    first.stop()
    kit.wait_until(lambda: not node.part.connected())
    with pytest.raises(TransportError, match="no scheduler answers"):
        control.wait_for(node.part.ask(ControlLink.definition))


def test_a_forbidden_secret_and_a_missing_one_look_alike_and_plain_tcp_gives_none(control, kit, folder, caplog):
    scheduler = control.serve("s1", tls=folder.tls("s1"))
    node = control.execute(scheduler.address, tls=folder.tls("e1"))
    kit.wait_until(node.part.connected)
    assert control.wait_for(node.part.ask(lambda link: link.expand_secret("db"))).reveal() == "hunter2"
    plain = control.serve("s2", listed=False)
    open_node = control.execute(plain.address)
    kit.wait_until(open_node.part.connected)
    said = set()
    for part, key in ((node.part, "other"), (node.part, ""), (open_node.part, "db")):
        with pytest.raises(ObjectMissing) as raised:
            control.wait_for(part.ask(lambda link, key=key: link.expand_secret(key)))
        said.add(str(raised.value))
    assert said == {"the definition references no such secret"}
    assert "over plain TCP" in caplog.text
    assert "hunter2" not in caplog.text


def test_metrics_and_tasks_of_all_are_gathered_and_nobody_reports_for_another(control, kit):
    scheduler = control.serve("s1")
    first = control.execute(scheduler.address)
    info = ExecutorInfo(executor_id="e2", instance_id="i2", data_address="")
    control.execute(scheduler.address, executor=Executor(info=info))
    kit.wait_until(lambda: len(scheduler.part.connected()) == 2)

    async def ask():
        async with open_control(scheduler.address) as channel:
            stub = rpc.ControlStub(channel)
            metrics = await stub.GetMetrics(pb.GetMetricsRequest(include_executors=True), timeout=60)
            own = await stub.GetMetrics(pb.GetMetricsRequest(), timeout=60)
            tasks = await stub.GetTaskHistory(pb.GetTaskHistoryRequest(limit=3), timeout=60)
            return metrics.reports, own.reports, tasks.tasks

    reports, own, tasks = control.wait_for(ask())
    assert {report.node_id: report.metrics_text for report in reports} == {
        "s1": b"up 1\n",
        "e1": b"held 2\n",
        "e2": b"held 2\n",
    }
    assert [report.node_id for report in own] == ["s1"]
    assert [(t.started_at_ms, t.kind) for t in tasks] == [(2, "leg"), (2, "leg"), (1, "own")]
    assert {t.node_id for t in tasks} == {"e1", "e2", "lies"}
    assert first.part.connected()


def test_an_executor_that_does_not_report_in_time_is_left_out(control, kit):
    scheduler = control.serve("s1")
    mute = heartbeat_to_message(Executor().heartbeat())

    async def ask():
        async with open_control(scheduler.address) as channel:
            stub = rpc.ControlStub(channel)
            stream = stub.ControlStream()
            await stream.write(mute)
            await stream.read()
            return (await stub.GetMetrics(pb.GetMetricsRequest(include_executors=True), timeout=60)).reports

    assert [report.node_id for report in control.wait_for(ask())] == ["s1"]


def test_messages_from_the_future_are_ignored_on_both_sides(control, kit):
    scheduler = control.serve()
    node = control.execute(scheduler.address)
    kit.wait_until(scheduler.part.connected)
    future = bytes([0xFA, 0x3E, 3]) + b"new"  # field 1007, which nobody knows yet
    known = pb.SchedulerMessage.FromString(future)
    peer = next(iter(scheduler.part._service.peers.values()))
    count = len(node.executor.messages)
    control.loop.call_soon_threadsafe(peer.outbox.put, Letter(PollNow(), known))
    kit.wait_until(lambda: len(node.executor.messages) > count + 3)
    assert all(isinstance(message, Grant) for message in node.executor.messages)
    beats = heartbeat_to_message(Executor().heartbeat()).SerializeToString()
    nested = pb.ExecutorMessage.FromString(beats)
    nested.heartbeat.MergeFromString(future)

    async def say():
        async with open_control(scheduler.address) as channel:
            call = channel.stream_stream("/ballista_py.control.v1.Control/ControlStream")()
            await call.write(future)
            await call.write(nested.SerializeToString())
            return pb.SchedulerMessage.FromString(await call.read())

    assert control.wait_for(say()).WhichOneof("body") == "grant"


def test_executor_and_scheduler_of_different_clusters_tell_each_other_nothing(control, kit, caplog):
    caplog.set_level(logging.INFO)
    scheduler = control.serve(cluster_id="one")
    node = control.execute(scheduler.address, cluster_id="another")
    kit.wait_until(lambda: "belongs to another cluster" in caplog.text)
    time.sleep(0.3)
    assert scheduler.handler.heard_all == []
    assert node.executor.messages == []
    assert node.part.connected() == ()


def test_an_executor_does_not_believe_a_scheduler_of_another_cluster_that_lets_it_in(control, kit, caplog):
    caplog.set_level(logging.INFO)
    scheduler = control.serve()
    control.wait_for(_pretend(scheduler, "another"))
    node = control.execute(scheduler.address, cluster_id="one")
    kit.wait_until(lambda: "belongs to another cluster" in caplog.text)
    assert scheduler.handler.heard_all == []
    assert node.executor.messages == []


async def _pretend(scheduler, cluster_id):
    scheduler.part._service._cluster_id = cluster_id


@pytest.mark.parametrize(("own", "named"), [("", "one"), ("one", ""), ("one", "one")])
def test_who_names_no_cluster_or_the_same_one_is_heard(control, kit, own, named):
    scheduler = control.serve(cluster_id=own)
    node = control.execute(scheduler.address, cluster_id=named)
    kit.wait_until(lambda: node.executor.messages)
    assert scheduler.handler.heard_all


def test_no_rpc_is_answered_for_another_cluster(control):
    scheduler = control.serve(cluster_id="one")

    async def ask():
        refused = []
        async with ControlLink(
            scheduler.address, Executor(), control.workers, 100, 1_000, cluster_id="another"
        ) as link:
            for question in (
                link.schedulers(),
                link.leave("e1", "i1"),
                link.definition(),
                link.expand_secret("db"),
                link.allocate("e1", "i1"),
                link.converse(),
            ):
                try:
                    await question
                except grpc.aio.AioRpcError as error:
                    refused.append(error.code())
        return refused

    assert control.wait_for(ask()) == [grpc.StatusCode.PERMISSION_DENIED] * 6
    assert scheduler.handler.left == []


def test_a_heartbeat_that_says_what_no_executor_says_is_not_heard(control, kit, caplog):
    caplog.set_level(logging.WARNING)
    scheduler = control.serve()
    info = ExecutorInfo(executor_id="e1", instance_id="odd", data_address="h:1", capacity=float("nan"))
    control.execute(scheduler.address, executor=Executor(info=info))
    kit.wait_until(lambda: "the capacity of an executor" in caplog.text)
    good = control.execute(scheduler.address)
    kit.wait_until(good.part.connected)
    kit.wait_until(lambda: scheduler.handler.heard_all)
    assert {heartbeat.executor.instance_id for heartbeat in scheduler.handler.heard_all} == {"i1"}


@pytest.mark.parametrize("method", [method.name for method in CONTROL_METHODS])
def test_bytes_that_are_no_message_are_their_senders_error(control, caplog, method):
    """They are read behind the gate, so gRPC prints no traceback for each."""
    scheduler = control.serve()
    with grpc.insecure_channel(scheduler.address) as channel, pytest.raises(grpc.RpcError) as refused:
        list(channel.stream_stream(f"/ballista_py.control.v1.Control/{method}")(iter([b"\xff" * 9]), timeout=60))
    assert refused.value.code() in (StatusCode.INVALID_ARGUMENT, StatusCode.UNAVAILABLE)
    assert "no message of the control protocol" in refused.value.details()
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 2_000])
def test_a_name_that_is_none_is_refused_by_single_calls_too(control, name):
    scheduler = control.serve()
    request = pb.LeaveRequest(executor_id=name, instance_id="i").SerializeToString()
    with grpc.insecure_channel(scheduler.address) as channel, pytest.raises(grpc.RpcError) as refused:
        list(channel.stream_stream("/ballista_py.control.v1.Control/Leave")(iter([request]), timeout=60))
    assert refused.value.code() is StatusCode.INVALID_ARGUMENT
    assert "the id of an executor" in refused.value.details()


def test_a_heartbeat_that_takes_much_once_it_is_read_is_not_read(control, kit, caplog):
    caplog.set_level(logging.WARNING)
    scheduler = control.serve()
    many = pb.ExecutorMessage(heartbeat=pb.Heartbeat(held=[pb.HeldPartitions() for _ in range(200_000)]))
    data, method = many.SerializeToString(), "/ballista_py.control.v1.Control/ControlStream"
    with grpc.insecure_channel(scheduler.address) as channel, pytest.raises(grpc.RpcError) as refused:
        list(channel.stream_stream(method)(iter([data]), timeout=60))
    assert "once it is read" in refused.value.details()
    good = control.execute(scheduler.address)
    kit.wait_until(good.part.connected)


def test_a_node_has_few_streams_and_the_newest_count(control, kit, folder):
    scheduler = control.serve("s1", tls=folder.tls("s1"))
    first = control.execute(scheduler.address, tls=folder.tls("e1"), heartbeat_ms=60_000)
    kit.wait_until(first.part.connected)
    infos = [ExecutorInfo(executor_id="e1", instance_id=f"n{number}", data_address="h:1") for number in range(4)]
    for info in infos:
        one = control.execute(
            scheduler.address, tls=folder.tls("e1"), executor=Executor(info=info), heartbeat_ms=60_000
        )
        kit.wait_until(one.part.connected)
    kit.wait_until(lambda: len(scheduler.part._service._open) <= 4)
    kit.wait_until(lambda: set(scheduler.part._service.peers) <= {f"n{number}" for number in range(4)} | {"i1"})


def test_nothing_of_a_message_is_taken_in_before_its_sender_is_known(control, folder):
    """Half a message of a stranger, of a removed node, or of one whose role may not ask is not waited for."""
    removed = Removed(str(folder.removed_file))
    scheduler = control.serve("s1", tls=folder.tls("s1"), removed=removed)
    pems = folder.tls("e2").read()
    folder.remove("e2")
    credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
    options = [("grpc.ssl_target_name_override", "s1.scheduler.ballista")]
    silent = threading.Event()

    def nothing():
        silent.wait(60)
        yield b""

    with grpc.secure_channel(scheduler.address, credentials, options) as channel:
        for verb in ("Leave", "ControlStream"):
            with pytest.raises(grpc.RpcError) as refused:
                list(channel.stream_stream(f"/ballista_py.control.v1.Control/{verb}")(nothing(), timeout=30))
            assert refused.value.code() is StatusCode.UNAUTHENTICATED
    silent.set()


def test_a_node_has_few_calls_at_once(control, folder, monkeypatch):
    monkeypatch.setattr(control_gate, "MESSAGE_S", 60.0)
    scheduler = control.serve("s1", tls=folder.tls("s1"))
    pems = folder.tls("e1").read()
    credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
    options = [("grpc.ssl_target_name_override", "s1.scheduler.ballista")]
    go_on = threading.Event()

    def later():
        go_on.wait(60)
        yield pb.GetSchedulersRequest().SerializeToString()

    with grpc.secure_channel(scheduler.address, credentials, options) as channel:
        method = channel.stream_stream("/ballista_py.control.v1.Control/GetSchedulers")
        calls = [method(later(), timeout=60) for _ in range(control_gate.MAX_CALLS_OF_NODE)]
        for _ in range(600):
            if scheduler.part._gate._open["e1"] == len(calls):
                break
            time.sleep(0.05)
        with pytest.raises(grpc.RpcError) as refused:
            list(method(iter([b""]), timeout=60))
        assert refused.value.code() is StatusCode.RESOURCE_EXHAUSTED
        go_on.set()
        assert all(len(list(call)) == 1 for call in calls)
    assert not scheduler.part._gate._open


def test_a_message_that_does_not_come_is_not_waited_for(control, monkeypatch):
    monkeypatch.setattr(control_gate, "MESSAGE_S", 0.2)
    scheduler = control.serve()
    never = threading.Event()

    def nothing():
        never.wait(60)
        yield b""

    with grpc.insecure_channel(scheduler.address) as channel, pytest.raises(grpc.RpcError) as refused:
        list(channel.stream_stream("/ballista_py.control.v1.Control/Leave")(nothing(), timeout=60))
    never.set()
    assert "did not come in 0.2 s" in refused.value.details()
