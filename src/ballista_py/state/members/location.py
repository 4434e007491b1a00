"""Whether a state location is a cluster's, or free to become one."""

from __future__ import annotations

from itertools import islice

from ballista_py.errors import ConfigError, ObjectMissing
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.identity import IDENTITY_KEY
from ballista_py.state.ownership.catalog_proof import require_unused
from ballista_py.state.stores.check import CHECK_PREFIX
from ballista_py.state.stores.store import ConditionalStore

OUR_PREFIXES = ("heartbeats/", "accelerations/", "snapshots/", "jobs/", CHECK_PREFIX)
_LOOKED_AT = 1_000
_NAMED = 3


def check_location(store: ConditionalStore, url: str) -> None:
    """Return if `store` holds a cluster of this release, or nothing that is not a cluster's.

    A location without `cluster.json` may hold what the first nodes of a cluster write before it. Raises
    `ConfigError` naming what else lies there, `DocumentLost` when tables do, `DocumentUnreadable` for a foreign
    `cluster.json` and `SchemaVersionUnsupported` for that of another release.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> check_location(store, "memory://fresh")
    >>> _ = store.create("holiday.jpg", b"")
    >>> check_location(store, "memory://fresh")
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: state location 'memory://fresh' holds something else than a cluster's state \
(holiday.jpg): take an empty one
    """
    try:
        ObjectState(store, CLUSTER_KEY, ClusterDocument).read()
        return
    except ObjectMissing:
        require_unused(store)
    keys = [entry.key for entry in islice(store.list(""), _LOOKED_AT)]
    foreign = [key for key in keys if not key.startswith(OUR_PREFIXES) and key not in (CLUSTER_KEY, IDENTITY_KEY)]
    if foreign:
        named = ", ".join(foreign[:_NAMED]) + (", …" if len(foreign) > _NAMED else "")
        raise ConfigError(
            f"state location '{url}' holds something else than a cluster's state ({named}): take an empty one"
        )
