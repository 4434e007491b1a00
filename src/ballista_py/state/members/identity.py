"""Which cluster a state location belongs to, so that nodes of a copy of it know that they are another one.

A copied location names the nodes of the cluster that it was copied from, and they may be alive. An id inside a
document would be copied with it, so the identity is made of an id and of when the object that holds it came to lie
where it does: a copy lies there since another instant, on every store.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from ballista_py.errors import ObjectExists, OutcomeUnknown, StoreUnavailable
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.store import ConditionalStore, local_path

IDENTITY_KEY = "identity"
_DIGEST_BYTES = 16
_TRIES = 5
_WAIT_MS = 200.0


def cluster_identity(store: ConditionalStore, *, runtime: Runtime | None = None) -> str:
    """The same text for everybody who asks of one state location, and another one for each copy of it.

    The first to ask makes the object under `IDENTITY_KEY`; it is never written again. Moving a location within its
    file system changes nothing; restoring it from elsewhere makes another cluster of it, as does a change of the
    owner, the rights or the links of that one file: then restart all nodes. A file system that keeps no time of
    change tells no copies.

    Raises what a store in trouble raises, once it was asked `_TRIES` times.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> cluster_identity(store) == cluster_identity(store) != cluster_identity(MemoryStore())
    True
    """
    runtime = runtime or SystemRuntime()
    for left in reversed(range(_TRIES)):
        try:
            with suppress(ObjectExists):
                store.create(IDENTITY_KEY, runtime.new_id().encode())
            made = store.get(IDENTITY_KEY).data + _lies_since(store).encode()
            break
        except (StoreUnavailable, OutcomeUnknown):  # a node does not end over one lost reply
            if not left:
                raise
            runtime.sleep_ms(_WAIT_MS)
    return hashlib.blake2b(made, digest_size=_DIGEST_BYTES).hexdigest()


def _lies_since(store: ConditionalStore) -> str:
    """Differs between an object and its copy. The time of a file's last change is that of the copying, always:
    unlike that of its last modification no program can set it.
    """
    path = local_path(store, IDENTITY_KEY)
    if path is not None:
        return str(os.stat(path).st_ctime_ns)
    for entry in store.list(IDENTITY_KEY):
        if entry.key == IDENTITY_KEY:
            return str(entry.modified_ms)
    raise StoreUnavailable(f"object '{IDENTITY_KEY}' is not listed, though it is there", key=IDENTITY_KEY)
