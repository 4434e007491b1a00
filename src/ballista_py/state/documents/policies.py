"""`policies.json`: the rules of who may do what with which table, and how they are put in the place of others.

`cluster.json` remembers their number, so each of the two documents shows an older copy of the other: policies below
that number are refused, and a catalog that knows of none finds them nevertheless.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import evolve, field, frozen

from ballista_py.errors import ConfigError, DocumentLost, DocumentOlder, ObjectExists, ObjectMissing
from ballista_py.partitions.policies import Policies
from ballista_py.runtime import Runtime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, PoliciesMark
from ballista_py.state.documents.lost_documents import way_out
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.stores.store import ConditionalStore

POLICIES_KEY = "policies.json"


@frozen(kw_only=True)
class PoliciesDocument:
    """The newest policies; `number` grows with each change. Without `on` everybody may do everything, as before there
    were any. They were given by `revision` of the file of `app`, and `digest` is that of what they say."""

    document_kind: ClassVar[str] = "policies"
    schema_version: ClassVar[int] = 1

    number: int
    policies: Policies = field(factory=Policies)
    on: bool = True
    app: str = ""
    revision: int = 0
    digest: str = ""


class PolicyShelf:
    """Reads and replaces them. Safe to share between threads."""

    def __init__(self, store: ConditionalStore, runtime: Runtime, committed_by: str = "") -> None:
        self._policies = ObjectState(
            store, POLICIES_KEY, PoliciesDocument, runtime=runtime, committed_by=committed_by
        )
        self._cluster = ObjectState(
            store, CLUSTER_KEY, ClusterDocument, runtime=runtime, retry=SHARED, committed_by=committed_by
        )

    def read(self, least: int = 0) -> PoliciesDocument | None:
        """The newest policies; None if there never were any.

        Raises `DocumentLost` or `DocumentOlder` for what is below the number that there has to be at `least`, or that
        was seen before, and what reading raises.
        """
        try:
            found = self._policies.read().document
        except ObjectMissing:
            if least:
                raise DocumentLost(f"document '{POLICIES_KEY}' is gone: {way_out()}", key=POLICIES_KEY) from None
            return None
        if found.number < least:
            raise DocumentOlder(
                f"document '{POLICIES_KEY}' is number {found.number}, and the catalog knows of {least}: {way_out()}",
                key=POLICIES_KEY,
            )
        return found

    def put(self, wanted: PoliciesDocument) -> PoliciesDocument:
        """Put policies in the place of those that are there, of whatever number; the same again changes nothing.

        They count from the moment at which they lie there: whoever dies then has changed them. Raises `ConfigError` for
        those of a file that is older than the one which gave the others, and what a commit raises.
        """

        def change(now: PoliciesDocument) -> PoliciesDocument:
            if wanted.app == now.app and wanted.revision < now.revision:
                raise ConfigError(
                    f"the policies are those of revision {now.revision} of '{now.app}', which is newer than "
                    f"{wanted.revision}"
                )
            if now.number >= least and (wanted.digest, wanted.on) == (now.digest, now.on):
                return evolve(now, app=wanted.app, revision=wanted.revision)
            return evolve(wanted, number=max(now.number, least) + 1)  # what is there may be an older copy

        least = self._least()
        first = evolve(wanted, number=least + 1)
        try:
            landed = self._policies.update(change).document
        except ObjectMissing:
            try:
                landed = self._policies.create(first).document
            except ObjectExists:
                landed = self._policies.update(change).document
        mark = PoliciesMark(number=landed.number, digest=landed.digest if landed.on else "")

        def marked(cluster: ClusterDocument) -> ClusterDocument:
            known = cluster.policies
            return cluster if known is not None and known.number >= mark.number else evolve(cluster, policies=mark)

        self._cluster.update(marked)
        return landed

    def _least(self) -> int:
        known = self._cluster.read().document.policies
        return 0 if known is None else known.number
