"""The fence: an epoch written into the very document that later writes must pass.

Knowing one's epoch is not enough, because a paused former owner does not know that it is one. So an owner makes
its epoch visible at the resource before it serves; from that instant nothing stamped older is accepted there.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from attrs import evolve

from ballista_py.errors import Fenced
from ballista_py.state.documents.object_state import ObjectState, Versioned


class HasEpoch(Protocol):
    """Any document with a field `epoch`."""

    @property
    def epoch(self) -> int: ...


D = TypeVar("D", bound=HasEpoch)


def require_epoch(document: HasEpoch, epoch: int, key: str) -> None:
    """What a change stamped `epoch` starts with: `Fenced` unless exactly that epoch is active."""
    if document.epoch != epoch:
        newer = document.epoch > epoch
        reason = f"epoch {document.epoch} is active" if newer else f"only epoch {document.epoch} is active so far"
        raise Fenced(f"'{key}' refuses epoch {epoch}: {reason}", key=key, epoch=epoch, active=document.epoch)


def activate(state: ObjectState[D], epoch: int) -> Versioned[D]:
    """Write `epoch` into the document, so that from now on nothing older is accepted there.

    Activating the active epoch again changes nothing. Raises `Fenced` if a newer one is active, and what
    `ObjectState.update` raises.
    """

    def change(document: D) -> D:
        if document.epoch >= epoch:
            require_epoch(document, epoch, state.key)
            return document
        return evolve(document, epoch=epoch)  # type: ignore[misc]  # ObjectState takes attrs classes only

    return state.update(change)
