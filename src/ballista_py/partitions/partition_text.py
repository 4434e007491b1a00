"""Partition maps for people: one line for logs and a prompt, a small table for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ballista_py.partitions.map import Owner, PartitionMap

SHOWN_ROWS = 12


def summary(pmap: PartitionMap) -> str:
    """One line: table, revision, keys, how many partitions there are and how they are owned."""
    keys = ", ".join(f"{key.name}={key.expression}" for key in pmap.spec.keys) or "whole"
    live = pmap.ids()
    owners = np.unique(pmap.owner_index[live, 0])
    unassigned = int(np.count_nonzero(pmap.owner_index[live, 0] < 0))
    parts = [f"{len(live):,} partitions", f"{np.count_nonzero(owners >= 0):,} owners"]
    for count, word in (
        (unassigned, "unassigned"),
        (int(np.count_nonzero(pmap.target_index[live] >= 0)), "moving"),
    ):
        parts += [f"{count:,} {word}"] if count else []
    return f"<PartitionMap {pmap.table} by {keys}, revision {pmap.revision}: {', '.join(parts)}>"


def html(pmap: PartitionMap) -> str:
    """The summary over a table of the first partitions."""
    live = pmap.ids()
    names = ["partition", *(key.name for key in pmap.spec.keys), "owner", "replicas", "target", "epoch", "weight"]
    rows = [_row(pmap, partition) for partition in live[:SHOWN_ROWS].tolist()]
    if len(live) > SHOWN_ROWS:
        rows.append([f"… {len(live) - SHOWN_ROWS:,} more", *[""] * (len(names) - 1)])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<p>{escape(summary(pmap)[1:-1])}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(pmap: PartitionMap, partition: int) -> list[str]:
    owner = pmap.owner(partition)
    return [
        str(partition),
        *("null" if item is None else str(item) for item in pmap.value(partition)),
        _name(owner),
        ", ".join(_name(other) for other in pmap.owners(partition) if other != owner),
        _name(pmap.target(partition)),
        str(pmap.epoch(partition)),
        f"{pmap.weight(partition):g}",
    ]


def _name(owner: Owner | None) -> str:
    return "" if owner is None else owner[0]
