"""Every error that ballista_py raises, in one tree, grouped by what the caller does next::

    BallistaError
    ├── StoreError              the object store answered, or did not
    │   ├── ObjectMissing           nothing is stored under the key
    │   ├── ObjectExists            create found an object under the key
    │   ├── VersionConflict         replace found another version: read again and retry
    │   ├── OutcomeUnknown          the request was sent, the reply was lost: read back before anything else
    │   ├── StoreUnavailable        surely nothing was written: try again later
    │   └── UnsafeStore             the store breaks a promise that coordination needs: use another store
    ├── DocumentError           a shared document cannot be changed as asked
    │   ├── RetriesExhausted        too many conflicts in a row: try again later
    │   ├── SchemaVersionUnsupported  written by another release: upgrade or downgrade this one
    │   ├── DocumentUnreadable      the object is not such a document: this location holds something else
    │   ├── DocumentLost            it was there and is gone: put it back, or `ballista-py storage repair`
    │   ├── DocumentOlder           an older copy was put in its place: put the newest back, or repair
    │   └── InvariantViolated       the change would break the document's invariant: nothing was written
    ├── OwnershipError          this process may not act in that role
    │   ├── AlreadyRegistered       another live process holds the id
    │   ├── Fenced                  a newer owner has been activated: stop acting
    │   ├── LeaseExpired            the lease ran out: wait for a renewal
    │   └── NotOwner                the partition has another owner: read the map again and re-plan
    │       └── TableAltered            the table has another definition: read the catalog again and re-plan
    ├── PlanningError           the statement cannot be planned
    │   ├── SqlError                the text is not SQL that this cluster can run
    │   ├── Unsupported             this cluster does not do that: the message says what it does instead
    │   ├── UnsupportedExpression   a partition key or a type outside the grammar
    │   ├── PartitionKeysMissing    the table declares no `partition_by`
    │   ├── PartitionsUnassigned    a needed partition has no owner now: wait or add executors
    │   ├── NotRunning              what is to be cancelled does not run, or not here: there is nothing to end
    │   ├── MergeTooLarge           the merge would hold too much: filter more or run it on Spark
    │   └── TimeLimit               the statement was not done in its time: ask for less, or allow more time
    ├── WriteError              a write was not applied
    │   ├── SchemaMismatch          the rows do not fit the table
    │   ├── WriteIncomplete         some partitions did not apply: send it again with the same token
    │   ├── NotVisibleYet           it is written at the table's source, and not visible yet: it will be
    │   └── PositionMoved           the table stands at another position of its source: read on from that one
    ├── SourceError             the source of a table cannot be followed
    │   ├── SourceUnavailable       it cannot be reached, or is busy: try again later
    │   ├── SourceLost              the log that the table needs is gone there: take a new copy
    │   └── SourceUnfit             what it holds or does cannot be followed: the message says what to do there
    ├── JobError                a job cannot be had, or not finished
    │   ├── JobMissing              this client has no such job: it was never submitted, or is forgotten by now
    │   ├── JobRefused              the state of the job does not allow that: the message says what does
    │   │   └── JobSuperseded           another attempt runs the job by now: what this one did is nothing
    │   ├── JobCancelled            the job was cancelled: it has no result
    │   ├── JobResultTooLarge       its result has more than a job's may have: ask for less
    │   └── JobAbandoned            every scheduler that ran it is gone: find out why before it is submitted again
    ├── SnapshotGone            a read job was closed, or not renewed in time: read again
    ├── TransportError          the conversation with a node failed
    │   ├── SchedulerLost           the scheduler is gone: connect to another
    │   ├── Unauthenticated         no valid credentials
    │   ├── WrongCluster            the node belongs to another cluster: talk to one of your own
    │   ├── NodeSilent              a node did not answer what needs all of them: ask again when it does
    │   └── TryLater                the node is busy or not ready
    ├── InvalidData             a peer sent no valid Arrow data or command: mend the sender, sending it again is no use
    └── ConfigError             the configuration or the environment is wrong
        └── MissingExtra            an optional dependency is not installed

A message says what happened to which object and what to do about it, in one line. Every class has a stable
`code`; `to_wire` and `from_wire` carry an error between nodes without tracebacks.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar

from ballista_py.one_line import one_line, plain_details, printable, without_places


class BallistaError(Exception):
    """The root of the tree. `details` holds values that a program may want; they survive the wire."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))


class StoreError(BallistaError):
    """The object store answered with a refusal, or did not answer."""

    code = "store"


class ObjectMissing(StoreError):
    """Nothing is stored under the key."""

    code = "store.missing"


class ObjectExists(StoreError):
    """`create` found an object under the key; nothing was written."""

    code = "store.exists"


class VersionConflict(StoreError):
    """`replace` found another version, or no object; nothing was written by this request."""

    code = "store.conflict"


class OutcomeUnknown(StoreError):
    """The request was sent and no reply came: it may or may not have landed."""

    code = "store.outcome_unknown"


class StoreUnavailable(StoreError):
    """The store refused or could not be reached; surely nothing was written."""

    code = "store.unavailable"


class UnsafeStore(StoreError):
    """The store breaks a promise that coordination needs, such as conditional writes."""

    code = "store.unsafe"


class DocumentError(BallistaError):
    """A shared document cannot be read or changed as asked."""

    code = "document"


class RetriesExhausted(DocumentError):
    """Every attempt to commit met a conflict or an unavailable store; the change was not applied."""

    code = "document.retries_exhausted"


class SchemaVersionUnsupported(DocumentError):
    """The document was written by a release with another schema version."""

    code = "document.schema_version"


class DocumentUnreadable(DocumentError):
    """The object under the key is not a document of the expected kind."""

    code = "document.unreadable"


class DocumentLost(DocumentError):
    """A document is missing that something else proves to have been there; nobody acts as if it had never been."""

    code = "document.lost"


class DocumentOlder(DocumentError):
    """A document is older than something else proves it to have been: somebody put an older copy in its place."""

    code = "document.older"


class InvariantViolated(DocumentError):
    """A change would break the document's invariant; nothing was written."""

    code = "document.invariant"


class OwnershipError(BallistaError):
    """This process may not act in the role it claims."""

    code = "ownership"


class AlreadyRegistered(OwnershipError):
    """Another live process holds the id."""

    code = "ownership.already_registered"


class Fenced(OwnershipError):
    """A newer owner or instance has been activated; this one must stop acting at once."""

    code = "ownership.fenced"


class LeaseExpired(OwnershipError):
    """The lease of this process ran out; nothing may be served until it is renewed."""

    code = "ownership.lease_expired"


class NotOwner(OwnershipError):
    """The node is not the active owner of every partition that was asked for."""

    code = "ownership.not_owner"


class TableAltered(NotOwner):
    """The table was altered since the statement was planned; nothing was done. Read the catalog and plan again."""

    code = "ownership.not_owner.altered"


class PlanningError(BallistaError):
    """The statement or the table definition cannot be planned."""

    code = "planning"


class SqlError(PlanningError):
    """The text does not parse, or names what does not exist. `details` may hold `line` and `column`."""

    code = "planning.sql"


class Unsupported(PlanningError):
    """Something that this cluster does not do, and that a client may well ask of another."""

    code = "planning.unsupported"


class UnsupportedExpression(PlanningError):
    """An expression or a type that partition keys do not admit."""

    code = "planning.unsupported_expression"


class PartitionKeysMissing(PlanningError):
    """The table declares no partition keys."""

    code = "planning.partition_keys_missing"


class PartitionsUnassigned(PlanningError):
    """A partition that the query needs has no executor now."""

    code = "planning.partitions_unassigned"


class NotRunning(PlanningError):
    """What is to be cancelled does not run, or not here."""

    code = "planning.not_running"


class MergeTooLarge(PlanningError):
    """The merge would hold more than `max_merge_bytes`."""

    code = "planning.merge_too_large"


class TimeLimit(PlanningError):
    """The statement took longer than it may."""

    code = "planning.time_limit"


class WriteError(BallistaError):
    """A write was not applied."""

    code = "write"


class SchemaMismatch(WriteError):
    """The rows do not fit the table's schema; nothing was applied."""

    code = "write.schema_mismatch"


class WriteIncomplete(WriteError):
    """Some partitions did not apply the statement; sending it again with the same token completes it."""

    code = "write.incomplete"


class NotVisibleYet(WriteError):
    """The statement was committed at the table's source, and the table does not show it yet; it will."""

    code = "write.not_visible_yet"


class PositionMoved(WriteError):
    """Changes of a source are not those that follow the table's position; none was applied."""

    code = "write.position_moved"

    @classmethod
    def at(cls, table: str, since: object, position: object) -> PositionMoved:
        """The error for changes after `since` of a table that stands at `position`."""
        return cls(
            f"table '{table}' stands at position {position or 'none'} of its source, and not at {since or 'none'}, "
            "after which these changes come: read on from there",
            table=table,
        )


class SourceError(BallistaError):
    """The source of a table cannot be followed; the table is as it was."""

    code = "source"


class SourceUnavailable(SourceError):
    """The source cannot be reached, or is busy; the same may succeed later."""

    code = "source.unavailable"


class SourceLost(SourceError):
    """The source has no log any more of what the table lacks; only a new copy helps."""

    code = "source.lost"


class SourceUnfit(SourceError):
    """Something of the source cannot be followed as it is; the message says what, and what to do about it."""

    code = "source.unfit"


class JobError(BallistaError):
    """A job cannot be had, or could not be finished."""

    code = "job"


class JobMissing(JobError):
    """The client has no job of that id: it was never submitted, or its time is over and it is forgotten."""

    code = "job.missing"


class JobRefused(JobError):
    """The state of the job does not allow what was asked; nothing was changed."""

    code = "job.refused"


class JobSuperseded(JobRefused):
    """An attempt is not the one that runs the job any more: what it did is nothing."""

    code = "job.refused.superseded"


class JobCancelled(JobError):
    """The job was cancelled before it had a result."""

    code = "job.cancelled"


class JobResultTooLarge(JobError):
    """The result of the job has more bytes, or chunks, than that of a job may have."""

    code = "job.result_too_large"


class JobAbandoned(JobError):
    """As many schedulers as may run a job began it, and each was gone before it had ended it."""

    code = "job.abandoned"


class SnapshotGone(BallistaError):
    """A read or write job is over: it was ended, or not renewed in time, and its files may be gone. Begin again."""

    code = "snapshot_gone"


class TransportError(BallistaError):
    """The conversation with a node failed."""

    code = "transport"


class SchedulerLost(TransportError):
    """The scheduler went away while it worked on the request."""

    code = "transport.scheduler_lost"


class Unauthenticated(TransportError):
    """The peer showed no valid credentials."""

    code = "transport.unauthenticated"


class WrongCluster(TransportError):
    """The node belongs to another cluster; nothing was done."""

    code = "transport.wrong_cluster"


class TryLater(TransportError):
    """The node is busy or not ready; the same request may succeed later."""

    code = "transport.try_later"


class NodeSilent(TransportError):
    """A node did not answer a question that needs the answers of all; ask again when it does, or counts as dead."""

    code = "transport.node_silent"


class InvalidData(BallistaError):
    """A peer sent rows or columns that are not valid Arrow data, or more than a bound; none of it was used."""

    code = "invalid_data"


class ConfigError(BallistaError):
    """The configuration or the environment is wrong; the message names the field or the file."""

    code = "config"


class MissingExtra(ConfigError):
    """An optional dependency is not installed; the message names the `pip install` line."""

    code = "config.missing_extra"

    @classmethod
    def of(cls, package: str, extra: str) -> MissingExtra:
        """The error for `package`, which comes with `extra`."""
        said = f"{package} is not installed. Run: pip install 'ballista_py[{extra}]'"
        return cls(said, package=package, extra=extra)


MAX_CODE_CHARS = 256
MAX_MESSAGE_CHARS = 8_192
_OF_STATEMENTS = (PlanningError, WriteError, InvalidData)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def named(error: BaseException) -> BaseException:
    """The error as one of the tree where it says that a node has too little of something; else itself.

    >>> named(MemoryError()).code
    'planning.merge_too_large'
    """
    if isinstance(error, MemoryError):
        return MergeTooLarge("the node has no memory left for this: ask for less at once, or give its nodes more")
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return TryLater("the node has no disk space, files or threads left for this: try again later")
    return error


def to_wire(error: BaseException) -> dict[str, Any]:
    """The error as JSON-ready values: `code`, `message`, `details`.

    The one door of every error that leaves a node. One outside the tree becomes a bare `error` that carries its class
    name only, because its text may hold paths or secrets of the node; one about the node names no file of it and no
    object of its store but shared documents. Those about a statement or its rows say what their sender wrote.

    >>> to_wire(ConfigError("TLS: /etc/pki/node.pem cannot be read: No such file or directory"))["message"]
    'TLS: a file of the node cannot be read: No such file or directory'
    """
    error = named(error)
    if isinstance(error, _OF_STATEMENTS):
        return {"code": error.code, "message": printable(error.message), "details": error.details}
    if isinstance(error, BallistaError):
        key, file = (str(error.details.get(name) or "") for name in ("key", "file"))
        details = {
            name: without_places(value, key, file) if isinstance(value, str) else value
            for name, value in error.details.items()
            if name != "file"
        }
        message = without_places(printable(error.message), key, file)
        return {"code": error.code, "message": message, "details": details}
    return {"code": BallistaError.code, "message": f"internal error ({type(error).__name__})", "details": {}}


def from_wire(wire: dict[str, Any]) -> BallistaError:
    """The error that `to_wire` described, as text that can be shown, whatever a peer made of it; a code from a newer
    release becomes its nearest known ancestor."""
    code = str(wire.get("code", ""))[:MAX_CODE_CHARS]
    by_code = _classes_by_code()
    while code and code not in by_code:
        code = code.rpartition(".")[0]
    kind, message = by_code.get(code, BallistaError), one_line(str(wire.get("message", "")), MAX_MESSAGE_CHARS)
    return _rebuild(kind, message, plain_details(wire.get("details")))


def _rebuild(kind: type[BallistaError], message: str, details: dict[str, Any]) -> BallistaError:
    error = kind(message)
    error.details = details
    return error


def _classes_by_code() -> dict[str, type[BallistaError]]:
    pending: list[type[BallistaError]] = [BallistaError]
    for kind in pending:  # which grows meanwhile
        pending.extend(kind.__subclasses__())
    return {kind.code: kind for kind in pending}
