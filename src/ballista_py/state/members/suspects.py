"""Executors that did not answer a call, so that nobody is sent there before they are heard again.

A lease runs on for a while after its holder died, and until then every plan would lead to it. One call that failed
condemns that instance, at this scheduler and at once; one heartbeat that is received after it acquits it. This only
chooses between copies: who owns a partition is not touched by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import Factory, evolve, frozen

from ballista_py.partitions.map import Owner


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
