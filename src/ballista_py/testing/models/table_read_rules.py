"""The rules of Table Read, and its classes as they would be without one of them: for the model `table_read`.

A class for each missing rule takes the place of the real one; the production classes know nothing of it.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve, field, fields, frozen

from ballista_py.transport.table_read.tokens.consuming import Action, GrantConsumer
from ballista_py.transport.table_read.tokens.exchange import ReadAccepted
from ballista_py.transport.table_read.tokens.grants import ReadAgent, _Live
from ballista_py.transport.table_read.tokens.messages import ReadDone, Replanned
from ballista_py.transport.table_read.tokens.positions import RowRange
from ballista_py.transport.table_read.tokens.serving import ServedReads, _Open, _ServedJob


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must break a judgement in some seed."""

    fence: bool = True  # rows count only under a live grant
    once: bool = True  # a grant counts by its first `ReadDone` and by no other
    range: bool = True  # that says how far it came, and what is missing is granted anew
    ask: bool = True  # where a grant is cut its Client says
    sibling: bool = True  # whoever takes what was cut off does not name the grant that lives
    ancestors: bool = True  # a successor names all that were superseded before it
    remember: bool = True  # a Server does not serve what it knows to be superseded
    trailer: bool = True  # an end without a trailer is none
    snapshot: bool = True  # what is planned anew is of the same snapshot
    order: bool = True  # nobody goes on at a position that means other rows there
    attempt: bool = True  # a Client listens to its last open only
    pulls: bool = True  # a Server serves the newest attempt that it accepted only
    life: bool = True  # a Client that was restarted begins with nothing
    pin: bool = True  # what a live lease names is not collected
    idle: bool = True  # a stream that nobody pulls is dropped
    lease: bool = True  # all of a job goes from a Server when its lease ends


class CountsSuperseded(ReadAgent):
    """Without `fence`."""

    _past: dict[str, _Live]

    def _supersede(self, live: _Live) -> None:
        super()._supersede(live)
        self._past = {**getattr(self, "_past", {}), live.grant.token: live}

    def _countable(self, done: ReadDone) -> _Live | None:
        past = getattr(self, "_past", {}).pop(done.token, None)
        if past is not None:
            self._live[done.token] = past
            self._token_of.setdefault(done.client, done.token)
        return super()._countable(done)


class CountsEach(ReadAgent):
    """Without `once`."""

    def _count(self, live: _Live, rows: RowRange) -> None:
        super()._count(live, rows)
        self._live[live.grant.token] = live
        self._token_of[live.grant.client] = live.grant.token


class CountsAll(ReadAgent):
    """Without `range`."""

    def _count(self, live: _Live, rows: RowRange) -> None:
        super()._count(live, live.rows)


class CutsByItself(ReadAgent):
    """Without `ask`."""

    def _cut(self, live: _Live) -> None:
        sections, end = live.grant.sections, live.rows.end
        if sections is not None and end is not None:
            half = self._rows_left(live) // 2
            self._end_at(live, sections.after(live.position, half))

    def _is_granted(self, live: _Live, rows: RowRange) -> bool:
        return rows.start == live.rows.start


class ThiefIsChild(ReadAgent):
    """Without `sibling`."""

    def _ancestors_of_rest(self, live: _Live) -> tuple[str, ...]:
        return (*live.grant.ancestors, live.grant.token)


class NamesParent(ReadAgent):
    """Without `ancestors`."""

    def _ancestors_of_successor(self, live: _Live) -> tuple[str, ...]:
        return (live.grant.token,)


class TakesAnySnapshot(ReadAgent):
    """Without `snapshot`, at the Agent."""

    def _require_same(self, snapshot: str) -> None:
        return


class ReadsAnySnapshot(GrantConsumer):
    """Without `snapshot`, at the Client."""

    def _replanned(self, replanned: Replanned) -> tuple[Action, ...]:
        self.grant = evolve(self.grant, snapshot=replanned.snapshot)
        return super()._replanned(replanned)


class EndsAtAnEnd(GrantConsumer):
    """Without `trailer`."""

    def _closed(self) -> tuple[Action, ...]:
        return self._finish()


class GoesOnAnywhere(GrantConsumer):
    """Without `order`."""

    def _can_take(self, reply: ReadAccepted) -> bool:
        return True

    def _accepted(self, reply: ReadAccepted) -> tuple[Action, ...]:
        actions = super()._accepted(reply)
        self._attempt.can_go_on = True
        return actions


class HearsAnyAttempt(GrantConsumer):
    """Without `attempt`."""

    def _is_current(self, attempt: int) -> bool:
        return True


class TakesUpOldGrants(GrantConsumer):
    """Without `life`."""

    def _require_own(self) -> None:
        self.client = self.grant.client


class ForgetsSuperseded(ServedReads):
    """Without `remember`."""

    def _remember(self, job: _ServedJob, token: str) -> None:
        return


class ServesAnyAttempt(ServedReads):
    """Without `pulls`."""

    def _is_current(self, one: _Open, attempt: int) -> bool:
        return True


class KeepsIdle(ServedReads):
    """Without `idle`."""

    def _is_idle(self, one: _Open, now_ms: float) -> bool:
        return False


class OutlivesLeases(ServedReads):
    """Without `lease`."""

    def _is_over(self, job: _ServedJob, now_ms: float) -> bool:
        return False


@frozen
class Parts:
    """The classes that a history is made of."""

    agent: type[ReadAgent] = ReadAgent
    consumer: type[GrantConsumer] = GrantConsumer
    reads: type[ServedReads] = ServedReads
    rules: Rules = field(factory=Rules)


WITHOUT: dict[str, dict[str, Any]] = {
    "fence": {"agent": CountsSuperseded},
    "once": {"agent": CountsEach},
    "range": {"agent": CountsAll},
    "ask": {"agent": CutsByItself},
    "sibling": {"agent": ThiefIsChild},
    "ancestors": {"agent": NamesParent},
    "remember": {"reads": ForgetsSuperseded},
    "trailer": {"consumer": EndsAtAnEnd},
    "snapshot": {"agent": TakesAnySnapshot, "consumer": ReadsAnySnapshot},
    "order": {"consumer": GoesOnAnywhere},
    "attempt": {"consumer": HearsAnyAttempt},
    "pulls": {"reads": ServesAnyAttempt},
    "life": {"consumer": TakesUpOldGrants},
    "pin": {},  # of the collector, which the model plays
    "idle": {"reads": KeepsIdle},
    "lease": {"reads": OutlivesLeases},
}


def parts_of(rules: Rules) -> Parts:
    """The classes with these rules; of two missing ones of a class the last one counts."""
    parts = Parts(rules=rules)
    for rule in fields(Rules):
        if not getattr(rules, rule.name):
            parts = evolve(parts, **WITHOUT[rule.name])
    return parts


def variants() -> dict[str, Rules]:
    """All rules, and each without one of them."""
    names = [rule.name for rule in fields(Rules)]
    return {"all rules": Rules(), **{f"without {name}": evolve(Rules(), **{name: False}) for name in names}}
