"""Who may run jobs, and who is gone: the membership of schedulers as jobs see it.

An instance that is missing from `cluster.json`, or leaves, acts no more and never comes back: each `join` makes a new
one. So a job of such an instance is of nobody, whatever became of its process.
"""

from __future__ import annotations

from attrs import frozen

from ballista_py.state.members.membership import Membership


@frozen
class SchedulerMembers:
    """A `JobMembers` over the membership of this scheduler."""

    membership: Membership

    def me(self) -> tuple[str, str]:
        """See `JobMembers.me`."""
        self.membership.require()
        return self.membership.scheduler_id, self.membership.instance_id

    def instances(self) -> frozenset[str]:
        """See `JobMembers.instances`."""
        listed = self.membership.cluster.read().document.schedulers.values()
        return frozenset(one.instance_id for one in listed if not one.leaving)

    def leads(self) -> bool:
        """Whether no scheduler with a smaller id is there to do what one of them is enough for."""
        return not any(peer.scheduler_id < self.membership.scheduler_id for peer in self.membership.peers())
