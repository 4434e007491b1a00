"""Where executors answer clients that hold tickets."""

from __future__ import annotations

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.transport.security.signed_tickets import safe_location


def served_at(view: ClusterView, *, is_plain: bool) -> dict[str, str]:
    """The URI of each executor, of those that clients may be sent to."""
    found = {
        name: safe_location(view.locations.get(name), address, is_plain=is_plain)
        for name, address in view.addresses.items()
    }
    return {name: location for name, location in found.items() if location is not None}
