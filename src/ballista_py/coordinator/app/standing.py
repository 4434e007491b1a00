"""Which of several files counts, and who applies it: pure rules over what the catalog says of the applied one.

The newest revision that was begun counts, of the one application that the cluster serves; it never goes back. One
instance applies it, and commits nothing once another one has taken over or a newer revision was begun: every commit
asks the very catalog that it replaces. What was applied is applied once: tables that people alter or drop afterwards
stay as they left them, until the next revision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Literal

from attrs import evolve

from ballista_py.coordinator.app.application import Application, label_of
from ballista_py.errors import ConfigError, TryLater
from ballista_py.state.documents.documents import AppliedApp, ClusterDocument

Standing = Literal["new", "unfinished", "elsewhere", "applied", "older", "different", "other"]
MARK_DIGITS = 16


def standing_of(app: Application, cluster: ClusterDocument, me: str) -> Standing:
    """What is to be made of a file.

    `new`: to be begun; `unfinished`: to be completed, by whom it is left to; `elsewhere`: another one is at it;
    `applied`: all is done. Never to be applied: `older` than the one that was begun, `different` from the one of the
    same revision, `other`: of another application.
    """
    found = cluster.app
    if found is None:
        return "new"
    if found.name != app.name:
        return "other"
    if app.revision != found.revision:
        return "new" if app.revision > found.revision else "older"
    if app.digest != found.digest:
        return "different"
    if found.complete:
        return "applied"
    return "unfinished" if found.by == me or not _is_at_it(found, cluster) else "elsewhere"


def objection_of(app: Application, cluster: ClusterDocument, standing: Standing) -> str:
    """Why a file is not applied, and what to do about it; nothing for one that is, or will be."""
    found = cluster.app
    if found is None or standing not in ("older", "different", "other"):
        return ""
    mine, theirs = app.label, label_of(found.name, found.revision, found.digest)
    if standing == "older":
        return f"{mine} is older than {theirs}, which counts: give every scheduler that file"
    if standing == "different":
        return (
            f"{mine} differs from {theirs}, which was applied under the same revision: give every scheduler one file, "
            f"with revision {found.revision + 1} if it is to count"
        )
    return f"{mine} is another application than {theirs}, which this cluster serves: set name to '{found.name}'"


def path_of(standing: Standing) -> str:
    """The field that `objection_of` is about."""
    return "name" if standing == "other" else "revision"


def begun(app: Application, cluster: ClusterDocument, me: str) -> ClusterDocument:
    """The catalog once `me` has begun the file, or taken over what another one has begun.

    Raises `ConfigError` for a file that does not count (any more), and `TryLater` while another one is at it.
    """
    standing = standing_of(app, cluster, me)
    if standing == "applied":
        return cluster
    if standing == "elsewhere":
        raise TryLater(f"{app.label} is being applied by another scheduler")
    objection = objection_of(app, cluster, standing)
    if objection:
        raise ConfigError(objection)
    known = _known_datasets(cluster)
    datasets = {**dict.fromkeys(sorted(named_in(app)), ""), **known}
    started = AppliedApp(
        name=app.name,
        revision=app.revision,
        digest=app.digest,
        by=me,
        datasets=datasets,
        settings=dict(app.settings),
    )
    return evolve(cluster, app=started)


def completed(app: Application, cluster: ClusterDocument, me: str, agreeing: Mapping[str, str]) -> ClusterDocument:
    """The catalog once all changes are made. Raises as `guard_of` does.

    `agreeing` are the tables that are as the file says, with their folders: they are the application's from now on. One
    that somebody else has made under a name of the file, and that is another one, is not.
    """
    guard_of(app, me)(cluster)
    assert cluster.app is not None
    named = named_in(app)
    kept = {
        name: agreeing.get(name, folder)
        for name, folder in cluster.app.datasets.items()
        if name in named or name in cluster.tables or name in cluster.views or name in cluster.scanned
    }
    return evolve(cluster, app=evolve(cluster.app, complete=True, datasets=kept))


def guard_of(app: Application, me: str, marks: Sequence[str] = ()) -> Callable[[ClusterDocument], None]:
    """What every commit for the file asks of the catalog that it replaces.

    It raises `ConfigError` once a newer revision was begun, another one has taken over, or a change of these `marks`
    was made already.
    """

    def guard(cluster: ClusterDocument) -> None:
        found = cluster.app
        is_mine = (
            found is not None
            and (found.name, found.revision, found.digest) == (app.name, app.revision, app.digest)
            and found.by == me
        )
        if not is_mine:
            now = "nothing" if found is None else label_of(found.name, found.revision, found.digest)
            raise ConfigError(f"{app.label} is applied by somebody else, or counts no more: it is {now} now")
        if any(mark in cluster.definitions for mark in marks):
            raise ConfigError(f"this change of {app.label} was made already")

    return guard


def mark_of_change(app: Application | AppliedApp, dataset: str) -> str:
    """What the catalog remembers of the change of one table for a file: it is made once.

    It is one mark whether the table is made, altered or dropped, so that one which somebody drops after it was altered
    for the file is not made again for it.
    """
    text = f"app\0{app.name}\0{app.revision}\0{app.digest}\0{dataset}"
    return sha256(text.encode()).hexdigest()[:MARK_DIGITS]


def _known_datasets(cluster: ClusterDocument) -> dict[str, str]:
    """The tables that earlier revisions named; the folder of one that was made, but not noted by then, is found out."""
    if cluster.app is None:
        return {}
    views = {one.name: one.mark for one in cluster.views.values()}
    views |= {one.name: one.mark for one in cluster.scanned.values()}
    there = {**{name: table.folder for name, table in cluster.tables.items()}, **views}
    return {
        name: there[name]
        if not folder and name in there and mark_of_change(cluster.app, name) in cluster.definitions
        else folder
        for name, folder in cluster.app.datasets.items()
    }


def named_in(app: Application) -> frozenset[str]:
    """The names of tables and views that a file gives."""
    return frozenset((*(one.name for one in app.datasets), *(one.name for one in app.views)))


def _is_at_it(found: AppliedApp, cluster: ClusterDocument) -> bool:
    """Whether who applies the revision is there still. Who is no member cannot be told from one that died."""
    return any(
        scheduler.instance_id == found.by and not scheduler.leaving for scheduler in cluster.schedulers.values()
    )
