"""Refusing whoever belongs to another cluster: calls name the cluster that their sender belongs to.

A caller that names none is let in: it is a client that has not heard of a cluster yet, or a node of an older
release.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from ballista_py.errors import WrongCluster
from ballista_py.transport.security.access import Caller
from ballista_py.transport.security.callers import CLUSTER_HEADER, Callers, Headers, header


def check_cluster(claimed: str, own: str) -> None:
    """Raises `WrongCluster` if both are known and differ."""
    if claimed and own and claimed != own:
        raise WrongCluster(
            "the node belongs to another cluster: its state location and this one's are not the same; "
            "one may be a copy of the other"
        )


@frozen
class OfOneCluster:
    """`Callers` that also belong to the cluster `cluster_id`, as far as they say."""

    callers: Callers
    cluster_id: str

    def claimed(self, headers: Headers) -> str:
        found = self.callers.claimed(headers)
        check_cluster(header(headers, CLUSTER_HEADER), self.cluster_id)
        return found

    def proved(self, claimed: str, context: Any) -> Caller:
        return self.callers.proved(claimed, context)

    def still(self, name: str) -> None:
        self.callers.still(name)
