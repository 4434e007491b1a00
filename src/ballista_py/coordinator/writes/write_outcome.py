"""What became of a statement in the partitions of a table, and what is to be done about it; pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal

from attrs import Factory, define

from ballista_py.errors import (
    BallistaError,
    OwnershipError,
    PartitionsUnassigned,
    RetriesExhausted,
    StoreError,
    TransportError,
    WriteError,
    WriteIncomplete,
    from_wire,
    to_wire,
)
from ballista_py.partitions.map import PartitionMap

WORTH_ANOTHER_TRY = (OwnershipError, TransportError, PartitionsUnassigned, StoreError, RetriesExhausted)
MAX_NAMED = 5

Step = Literal["done", "again", "over"]


@define
class Outcome:
    """What became of each partition: rows affected, or the error that kept it as it was.

    In those that are `idle` nothing waits for a decision.
    """

    affected: dict[int, int] = Factory(dict)
    errors: dict[int, BallistaError] = Factory(dict)
    idle: set[int] = Factory(set)

    @property
    def waiting(self) -> list[int]:
        """The partitions that wait for the decision."""
        return sorted(self.affected.keys() - self.idle)

    def add(self, said: Mapping[str, Mapping[str, Any]], asked: Container[int]) -> None:
        """Take in what an owner said of the partitions that it was asked for; of others it has nothing to say."""
        for partition, outcome in said.items():
            if int(partition) not in asked:
                continue
            if "error" in outcome:
                self.errors[int(partition)] = from_wire(outcome["error"])
            else:
                self.affected[int(partition)] = int(outcome["affected"])
                if outcome.get("idle"):
                    self.idle.add(int(partition))

    def take(self, other: Outcome) -> None:
        """Take in what became of more partitions."""
        self.affected.update(other.affected)
        self.errors.update(other.errors)
        self.idle |= other.idle


def next_step(errors: Mapping[int, BallistaError], *, may_repeat: bool) -> Step:
    """Whether a round was the last one: all is done, or another one may help, or it is over with errors.

    >>> next_step({}, may_repeat=False), next_step({3: TransportError("lost")}, may_repeat=True)
    ('done', 'again')
    """
    if not errors:
        return "done"
    hopeless = any(not isinstance(error, WORTH_ANOTHER_TRY) for error in errors.values())
    return "over" if hopeless or not may_repeat else "again"


def worst_of(errors: Mapping[int, BallistaError]) -> BallistaError:
    """The error to be told: one that no other try would help, if there is one."""
    return min(errors.values(), key=lambda error: isinstance(error, WORTH_ANOTHER_TRY))


def failure_of(
    table: str,
    pmap: PartitionMap,
    errors: Mapping[int, BallistaError],
    done: Mapping[int, int],
    reason: BallistaError,
) -> BallistaError:
    """The error of a statement that some partitions applied (`done`) and others did not, or none at all."""
    hopeless = not isinstance(reason, WORTH_ANOTHER_TRY)
    if not done and ((hopeless and len(errors) == 1) or isinstance(reason, WriteError)):
        return reason
    names = named(pmap, list(errors))
    where = f"partitions {', '.join(names)}" + (" and others" if len(errors) > len(names) else "")
    return WriteIncomplete(
        f"table '{table}': {len(errors) or 'some'} partition(s) did not apply the statement, "
        f"{len(done)} did ({where if names else 'which is not known'}: {to_wire(reason)['message']})"
        f"{'' if 'token' in reason.details else '; send it again with the same token'}",
        table=table,
        partitions=names,
    )


def named(pmap: PartitionMap, partitions: Sequence[int]) -> list[str]:
    """The text forms of the first few partitions."""
    return [pmap.path(partition) for partition in sorted(partitions)[:MAX_NAMED] if partition < len(pmap)]
