"""The scheduler's end of the chain of leases: whom it hears, whom it grants, whom it must re-admit first.

A grant never outlives the scheduler's own lease. An executor whose lease ran out, that is new here, that was silent
above `ttl_ms`, or that says something else of itself than before (a capacity of 0 drains it) gets nothing until its
re-admission stands in `cluster.json`: first a beat says that the silence is over, then one commit admits all who wait,
then they are granted. So losing and re-admitting meet in one document. A heartbeat that was not answered with a grant
does not count as heard.

Executors that did not answer a call, so that nobody is sent there before they are heard again.

A lease runs on for a while after its holder died, and until then every plan would lead to it. One call that failed
condemns that instance, at this scheduler and at once; one heartbeat that is received after it acquits it. This only
chooses between copies: who owns a partition is not touched by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from attrs import Factory, define, evolve, frozen

from ballista_py.partitions.map import Owner
from ballista_py.state.documents.documents import MAX_EXECUTORS, ClusterDocument
from ballista_py.state.members.control import (
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    Refusal,
    RefusalReason,
)
from ballista_py.state.members.membership import Membership


@frozen
class Suspects:
    """Who is condemned, and since when. A value.

    >>> suspects = Suspects().condemned(("e1", "i1"), 50.0)
    >>> sorted(suspects.among({("e1", "i1"), ("e1", "i2")}, {"i1": 49.0}))
    [('e1', 'i1')]
    >>> suspects.among({("e1", "i1")}, {"i1": 51.0})
    frozenset()
    """

    since_ms: Mapping[Owner, float] = Factory(dict)

    def condemned(self, executor: Owner, at_ms: float) -> Suspects:
        """With one more: a call to it failed that began at `at_ms`."""
        return evolve(self, since_ms={**self.since_ms, executor: max(at_ms, self.since_ms.get(executor, at_ms))})

    def among(self, members: Collection[Owner], heard_ms: Mapping[str, float]) -> frozenset[Owner]:
        """Those of the members that are condemned; `heard_ms` is when each instance was heard last."""
        return frozenset(
            owner
            for owner, at_ms in self.since_ms.items()
            if owner in members and heard_ms.get(owner[1], float("-inf")) <= at_ms
        )

    def to_leave_out(
        self, members: Collection[Owner], heard_ms: Mapping[str, float]
    ) -> tuple[frozenset[Owner], ...]:
        """Whom to ask nothing: all that are condemned first, then ever fewer, and in the end nobody.

        Who was condemned first is asked first again: it may have come back and not be heard yet.
        """
        condemned = self.among(members, heard_ms)
        newest = sorted(condemned, key=lambda owner: (-self.since_ms[owner], owner))
        return tuple(frozenset(newest[:count]) for count in range(len(newest), -1, -1))

    def only(self, members: Collection[Owner]) -> Suspects:
        """Without those who are members no more: an instance that is gone never comes back."""
        return evolve(self, since_ms={owner: at_ms for owner, at_ms in self.since_ms.items() if owner in members})


Verdict = Literal["admitted"] | RefusalReason

_MESSAGES: Mapping[RefusalReason, str] = {
    "lost": "executor '{id}' was declared lost: it drops what it holds and joins as a new instance",
    "already_registered": "executor id {id} is already registered",
    "not_admitted": "executor '{id}' was not admitted: the cluster has as many executors as it can hold",
    "scheduler_lapsed": "the scheduler cannot prove now that it lives; ask another one",
}
_FORGET_AFTER_PATIENCES = 2


@frozen(kw_only=True)
class AdmissionReport:
    """What one tick decided: `answers` by executor instance, also given to the next heartbeat of each."""

    admitted: tuple[ExecutorInfo, ...] = ()
    refused: tuple[ExecutorInfo, ...] = ()
    answers: Mapping[str, Grant | Refusal] = Factory(dict)


@define(kw_only=True)
class _Known:
    """One executor instance as this scheduler knows it; changed under the registry's lock only."""

    newest: Heartbeat
    contact_ms: float  # when anything came from it last
    granted_ms: float | None = None  # when it was last answered with a grant
    readmitting_ms: float | None = None  # since when its re-admission is under way
    waiting: bool = False  # for a re-admission; nothing is granted before it
    lost: bool = False  # for ever
    answer: Grant | Refusal | None = None  # made by a tick, not yet picked up


def admit(document: ClusterDocument, heartbeat: Heartbeat) -> tuple[Verdict, ClusterDocument]:
    """Decide on one executor that asks to be admitted, or admitted again; pure.

    One that had a lease, or that was removed, and is not listed is lost: it is never admitted again.
    """
    executor = heartbeat.executor
    found = document.executors.get(executor.executor_id)
    if found is not None and found.info.instance_id == executor.instance_id:
        return "admitted", document.admit(executor)
    if heartbeat.admitted or executor.instance_id in document.lost_instances:
        return "lost", document
    if found is not None:
        return "already_registered", document
    if len(document.executors) >= MAX_EXECUTORS:
        return "not_admitted", document
    return "admitted", document.admit(executor)


class ExecutorRegistry:
    """The executors that one scheduler hears. Safe to share between threads."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._runtime = membership.runtime
        self._lock = self._runtime.lock()
        self._known: dict[str, _Known] = {}
        self._instance = membership.instance_id

    def heard(self, heartbeat: Heartbeat) -> Grant | Refusal | None:
        """Answer one heartbeat. None: it waits for the next `tick`, and is answered with a later heartbeat.

        Never asks the store. The answer names the sequence that it answers, which may be an earlier one.
        """
        executor = heartbeat.executor
        with self._lock:
            self._forget_former_instance()
            now_ms = self._runtime.monotonic_ms()
            known = self._known.get(executor.instance_id)
            if known is None:
                if len(self._known) >= 2 * MAX_EXECUTORS:
                    return _refusal(heartbeat, "not_admitted")
                known = self._known[executor.instance_id] = _Known(newest=heartbeat, contact_ms=now_ms)
            if known.newest.executor.executor_id != executor.executor_id:
                return _refusal(heartbeat, "already_registered")
            if heartbeat.sequence >= known.newest.sequence:
                if heartbeat.executor != known.newest.executor:  # `cluster.json` says something else of it
                    known.waiting = True
                known.newest, known.contact_ms = heartbeat, now_ms
            return self._answer(known, heartbeat, now_ms)

    def heard_ms(self) -> dict[str, float]:
        """By instance, when its newest heartbeat came in; monotonic time."""
        with self._lock:
            return {instance: known.contact_ms for instance, known in self._known.items()}

    def tick(self) -> AdmissionReport:
        """Re-admit everybody who waits, in one commit after one beat; with nobody it asks nothing of the store.

        Raises `Fenced` or `LeaseExpired` when this scheduler may not act, and errors of the store; who waits
        goes on waiting.
        """
        me = self._membership.instance_id
        waiting = self._begin()
        if not waiting:
            return AdmissionReport()
        verdicts: dict[str, Verdict] = {}

        def change(document: ClusterDocument) -> ClusterDocument:
            verdicts.clear()
            self._membership.guard(document, me)
            for heartbeat in waiting:
                verdicts[heartbeat.executor.instance_id], document = admit(document, heartbeat)
            return document

        settled = False
        try:
            self._membership.require()
            self._membership.beat(self.silences)
            self._membership.cluster.update(change)
            settled = me == self._membership.instance_id
        finally:
            answers = self._end(waiting, verdicts if settled else {})
        granted = {instance for instance, verdict in verdicts.items() if verdict == "admitted"}
        return AdmissionReport(
            admitted=tuple(h.executor for h in waiting if h.executor.instance_id in granted),
            refused=tuple(h.executor for h in waiting if h.executor.instance_id not in granted),
            answers=answers,
        )

    def silences(self) -> Mapping[str, float]:
        """For how long each executor instance has been granted nothing, in ms; for `Membership.beat`."""
        with self._lock:
            self._forget_former_instance()
            now_ms = self._runtime.monotonic_ms()
            return {
                instance: now_ms - since_ms
                for instance, known in sorted(self._known.items())
                if (since_ms := _heard_ms(known)) is not None
            }

    def held(self) -> Mapping[tuple[str, str], tuple[HeldPartitions, ...]]:
        """What the executors granted within `ttl_ms` report to hold, by (executor id, instance id)."""
        with self._lock:
            self._forget_former_instance()
            since_ms = self._runtime.monotonic_ms() - self._membership.ttl_ms
            return {
                (known.newest.executor.executor_id, instance): known.newest.held
                for instance, known in sorted(self._known.items())
                if known.granted_ms is not None and known.granted_ms >= since_ms and not known.lost
            }

    def newest(self) -> tuple[Heartbeat, ...]:
        """The newest heartbeat of every executor granted within `ttl_ms`, by instance id."""
        with self._lock:
            self._forget_former_instance()
            now_ms = self._runtime.monotonic_ms()
            return tuple(known.newest for _, known in sorted(self._known.items()) if self._hears(known, now_ms))

    def loads(self) -> dict[str, int]:
        """How much each executor computed when it was heard last, in percent, by executor id."""
        return {heartbeat.executor.executor_id: heartbeat.load for heartbeat in self.newest()}

    def leave(self, executor_id: str, instance_id: str) -> None:
        """Remove an executor that has stopped serving for good and says so; its partitions are orphans at once.

        Raises what `tick` raises. An executor that is not listed is fine.
        """

        me = self._membership.instance_id

        def change(document: ClusterDocument) -> ClusterDocument:
            self._membership.guard(document, me)
            return document.without_executors(frozenset({(executor_id, instance_id)}))

        self._membership.cluster.update(change)
        with self._lock:
            known = self._known.get(instance_id)
            if known is not None and known.newest.executor.executor_id == executor_id:
                del self._known[instance_id]

    def _answer(self, known: _Known, heartbeat: Heartbeat, now_ms: float) -> Grant | Refusal | None:
        if not self._membership.valid():
            return _refusal(heartbeat, "scheduler_lapsed")
        if known.lost:
            return _refusal(heartbeat, "lost")
        if not heartbeat.lapsed and not known.waiting and self._hears(known, now_ms):
            known.granted_ms, known.answer = now_ms, None
            return self._grant(heartbeat)
        answer, known.answer = known.answer, None
        known.waiting = known.waiting or answer is None
        return answer

    def _hears(self, known: _Known, now_ms: float) -> bool:
        return known.granted_ms is not None and now_ms - known.granted_ms <= self._membership.ttl_ms

    def _grant(self, heartbeat: Heartbeat) -> Grant:
        """A lease that ends with this scheduler's own at the latest."""
        return Grant(
            sequence=heartbeat.sequence, lease_ms=min(self._membership.ttl_ms, self._membership.remaining_ms())
        )

    def _begin(self) -> list[Heartbeat]:
        """Who waits now, by executor id. From here on every beat says that their silence is over."""
        with self._lock:
            self._forget_former_instance()
            now_ms = self._runtime.monotonic_ms()
            self._forget_silent(now_ms)
            waiting = []
            for _, known in sorted(self._known.items()):
                if known.waiting and now_ms - known.contact_ms <= self._membership.ttl_ms:
                    known.readmitting_ms = now_ms
                    waiting.append(known.newest)
            return sorted(waiting, key=lambda heartbeat: heartbeat.executor.executor_id)

    def _end(self, waiting: list[Heartbeat], verdicts: Mapping[str, Verdict]) -> Mapping[str, Grant | Refusal]:
        """Answer those who have a verdict; without a valid lease nobody is granted anything."""
        answers: dict[str, Grant | Refusal] = {}
        with self._lock:
            now_ms = self._runtime.monotonic_ms()
            for heartbeat in waiting:
                instance = heartbeat.executor.instance_id
                known = self._known.get(instance)
                if known is None:
                    continue
                known.readmitting_ms = None
                verdict = verdicts.get(instance)
                if verdict == "admitted" and self._membership.valid():
                    answers[instance] = self._grant(heartbeat)
                    known.granted_ms, known.answer = now_ms, answers[instance]
                    known.waiting = known.newest.executor != heartbeat.executor  # it said more meanwhile
                elif verdict is not None and verdict != "admitted":
                    answers[instance] = _refusal(heartbeat, verdict)
                    known.waiting, known.answer, known.lost = False, answers[instance], verdict == "lost"
        return answers

    def _forget_silent(self, now_ms: float) -> None:
        """Drop who has been silent for so long that the uptime says the same."""
        limit_ms = _FORGET_AFTER_PATIENCES * self._membership.patience_ms
        self._known = {i: known for i, known in self._known.items() if now_ms - known.contact_ms <= limit_ms}

    def _forget_former_instance(self) -> None:
        """A scheduler that joined anew has heard nobody yet."""
        if self._instance != self._membership.instance_id:
            self._instance = self._membership.instance_id
            self._known.clear()


def _heard_ms(known: _Known) -> float | None:
    times = [time for time in (known.granted_ms, known.readmitting_ms) if time is not None]
    return max(times) if times else None


def _refusal(heartbeat: Heartbeat, reason: RefusalReason) -> Refusal:
    message = _MESSAGES[reason].format(id=heartbeat.executor.executor_id)
    return Refusal(sequence=heartbeat.sequence, reason=reason, message=message)
