"""What repaired documents say, told from those that are there; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from ballista_py.partitions.map import PartitionMap
from ballista_py.state.documents.decisions import Decision, StatementsDocument
from ballista_py.storage.manifest import DataFile, ManifestDocument


def rows_of(manifest: ManifestDocument) -> tuple[DataFile, ...]:
    """The files of a partition, those too which statements wait to put there: they may be decided."""
    return (*manifest.files, *(file for prepared in manifest.prepared for file in prepared.add))


def is_behind(pmap: PartitionMap, partition: int, manifest: ManifestDocument) -> bool:
    """Whether a manifest knows of a later epoch of its partition, or of another owner at the same one."""
    epoch, owner = pmap.epoch(partition), pmap.owner(partition)
    if manifest.epoch != epoch:
        return manifest.epoch > epoch
    return bool(manifest.owner) and (owner is None or owner[1] != manifest.owner)


def decisions_after(
    now: StatementsDocument,
    folded: int,
    manifests: Mapping[str, ManifestDocument],
    is_applied: Callable[[str], bool],
) -> StatementsDocument:
    """The decisions as far as manifests tell: an open attempt committed if its statement was applied anywhere."""
    sequence = max(now.sequence, folded)
    number = max(now.decisions_made, sequence)
    open_attempts = {
        waiting.attempt: waiting.token
        for manifest in manifests.values()
        for waiting in manifest.prepared
        if now.on(waiting.attempt) is None
    }
    decisions: Sequence[Decision] = now.decisions
    for attempt, token in sorted(open_attempts.items()):
        number += 1
        committed = is_applied(token)
        decisions = (
            *decisions,
            Decision(
                attempt=attempt,
                token=token,
                committed=committed,
                settled=not committed,
                sequence=sequence if committed else 0,
                number=number,
            ),
        )
    number += 1  # whoever began before cannot commit any more
    return evolve(now, sequence=sequence, decisions_made=number, floor=number, decisions=tuple(decisions))
