"""Who may call what: one table of every verb of every port, and the check that each port asks before it acts.

What is not in the table is refused, whoever asks. A port that proves nothing of its callers (no certificates, no
tokens) answers every verb of its table to everybody who reaches it. `docs/security.md` shows the same table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from attrs import field, frozen

from ballista_py.errors import TransportError, Unauthenticated
from ballista_py.transport.flight.commands import (
    ADOPT,
    APPLY,
    BASE,
    CANCEL,
    CREATE_TABLE,
    EXECUTE,
    EXPLAIN,
    INGEST,
    JOB_ACTIONS,
    JOB_ROWS,
    LEG,
    MEMBERS,
    RECONCILE_ALL,
    REFRESH,
    RELOAD,
    REWRITE,
    SETTLE,
    SQL,
    TABLES,
    TASKS,
    WRITE,
)

Kind = Literal["scheduler", "executor", "client", "viewer", "ticket", "anyone"]
PortName = Literal["public", "control", "data", "parts", "tables", "http", "metrics"]
SHOWN_CHARS = 80

METADATA = (
    "CommandGetCatalogs", "CommandGetCrossReference", "CommandGetDbSchemas", "CommandGetExportedKeys",
    "CommandGetImportedKeys", "CommandGetPrimaryKeys", "CommandGetSqlInfo", "CommandGetTableTypes",
    "CommandGetTables", "CommandGetXdbcTypeInfo",
)  # fmt: skip
READ_ACTIONS = tuple(f"ballista_py.tableread.v1.{name}" for name in ("Close", "Locate", "Plan", "Renew"))
WRITE_ACTIONS = tuple(f"ballista_py.tablewrite.v1.{name}Write" for name in ("Abort", "Begin", "Commit", "Renew"))
QUERIES = ("CommandPreparedStatementQuery", "CommandStatementQuery", "CommandStatementSubstraitPlan")
POLLED = ("CommandPreparedStatementQuery", "CommandStatementQuery", "TicketStatementQuery")
PUTS = (
    "CommandPreparedStatementQuery", "CommandPreparedStatementUpdate", "CommandStatementIngest",
    "CommandStatementSubstraitPlan", "CommandStatementUpdate",
)  # fmt: skip
SQL_ACTIONS = (
    "BeginSavepoint", "BeginTransaction", "CancelFlightInfo", "CancelQuery", "ClosePreparedStatement", "CloseSession",
    "CreatePreparedStatement", "CreatePreparedSubstraitPlan", "EndSavepoint", "EndTransaction", "GetSessionOptions",
    "SetSessionOptions",
)  # fmt: skip


# What a node still answers that is about to stop.
LOOKING = frozenset({"DoGet", "GET", "HEAD", "DELETE", "ListActions"})
ENDING = frozenset(
    f"DoAction {name}"
    for name in (
        MEMBERS,
        "CancelFlightInfo",
        "CancelQuery",
        "ClosePreparedStatement",
        "CloseSession",
        *(action for action in READ_ACTIONS if not action.endswith(".Plan")),
        *(action for action in WRITE_ACTIONS if not action.endswith(".BeginWrite")),
    )
)


@frozen
class Caller:
    """Who calls. `name` is for limits and logs; `kind` is what was proved, None where the port asks for no proof."""

    name: str
    kind: Kind | None = None


@frozen
class Access:
    """The verbs of one port, and which kinds of callers may use each.

    >>> Access("http", {"GET /health": ("anyone",)}).check("GET /health", Caller("10.0.0.7", "client"))
    """

    port: str
    verbs: Mapping[str, Collection[Kind]] = field(repr=False)

    def check(self, verb: str, caller: Caller) -> None:
        """That the caller may use the verb.

        Raises `TransportError` for a verb that the port does not have, and `Unauthenticated` for one that is not
        for this caller.
        """
        who = self.verbs.get(verb)
        if who is None:
            raise TransportError(f"the {self.port} port does not answer {_short(verb)}")
        if caller.kind is not None and caller.kind not in who and "anyone" not in who:
            raise Unauthenticated(
                f"{verb} is not for {_called(caller)}: the {self.port} port answers it to a {' or a '.join(who)}"
            )

    def check_registered(self, verbs: Iterable[str]) -> None:
        """That whoever built the port has put every handler in the table. Raises `AssertionError` naming the others."""
        missing = sorted(set(verbs) - set(self.verbs))
        assert not missing, (
            f"handlers of the {self.port} port that nobody is allowed to call: {', '.join(missing)}"
        )

    def begins(self, verb: str) -> bool:
        """Whether the verb asks for something new; the others belong to what was begun, or only look.

        >>> access = Access("public", {})
        >>> access.begins("DoExchange sql"), access.begins("DoGet TicketStatementQuery")
        (True, False)
        """
        return verb.partition(" ")[0] not in LOOKING and verb not in ENDING

    def methods(self) -> frozenset[str]:
        """The first words of the verbs."""
        return frozenset(verb.partition(" ")[0] for verb in self.verbs)


def _short(verb: str) -> str:
    """A verb that a caller has made up, in one line."""
    text = "".join(letter for letter in verb if letter.isprintable())
    return f"'{text}'" if len(text) <= SHOWN_CHARS else f"'{text[:SHOWN_CHARS]}…'"


def _called(caller: Caller) -> str:
    return f"the {caller.kind} '{caller.name}'" if caller.name else f"a {caller.kind}"


def _each(methods: Iterable[str], names: Iterable[str], *who: Kind) -> dict[str, tuple[Kind, ...]]:
    names = tuple(names)
    return {f"{method} {name}".strip(): who for method in methods for name in names}


PUBLIC = Access(
    "public",
    {
        **_each(["DoExchange"], (SQL, EXECUTE, INGEST, CREATE_TABLE, JOB_ROWS), "client"),
        **_each(
            ["DoAction"], (EXPLAIN, TABLES, MEMBERS, RECONCILE_ALL, REFRESH, TASKS, CANCEL, *SQL_ACTIONS), "client"
        ),
        **_each(["DoAction"], (*JOB_ACTIONS, *READ_ACTIONS, *WRITE_ACTIONS), "client"),
        **_each(["GetFlightInfo", "GetSchema"], (*QUERIES, *METADATA), "client"),
        **_each(["PollFlightInfo"], POLLED, "client"),
        **_each(["DoGet"], ("TicketStatementQuery", *METADATA), "client"),
        **_each(["DoPut"], PUTS, "client"),
        **_each(["Handshake", "ListActions"], [""], "client"),
        **_each(["Export"], ["metrics"], "client"),
    },
)
CONTROL = Access(
    "control",
    {
        **_each(["rpc"], ("GetSchedulers", "GetAppDefinition"), "executor", "scheduler"),
        **_each(["rpc"], ("ControlStream", "Leave", "AllocateInitialPartitions", "ExpandSecret"), "executor"),
        **_each(["rpc"], ("GetTaskHistory", "GetMetrics"), "scheduler"),
    },
)
DATA = Access(
    "data", _each(["DoExchange"], (LEG, BASE, WRITE, APPLY, ADOPT, REWRITE, SETTLE, RELOAD), "scheduler")
)
PARTS = Access(
    "parts",
    {
        **_each(["DoGet"], ["TicketStatementQuery"], "ticket"),
        **_each(["DoExchange"], ["table_read", "table_write"], "ticket"),
    },
)
TABLE_SERVER = Access(
    "tables",
    {
        **_each(["DoAction"], (MEMBERS, *READ_ACTIONS), "client"),
        **_each(["DoExchange"], ["table_read"], "ticket", "client"),
    },
)
# Without certificates clients fetch parts where schedulers send legs.
PLAIN_DATA = Access("data", {**DATA.verbs, **PARTS.verbs})
HTTP = Access(
    "http",
    {
        **_each(["GET"], ("/health", "/ready"), "anyone"),
        **_each(["GET"], ("/", "/page/{name}"), "anyone"),  # files of the package, the same at every node
        **_each(["GET"], ("/openapi.json", "/status", "/tasks"), "client", "viewer"),
        **_each(["GET"], ("/v1/datasets", "/v1/nodes", "/v1/status", "/v1/tasks"), "client", "viewer"),
        **_each(["GET"], ("/v1/events", "/v1/tasks/{task_id}/plan"), "client", "viewer"),
        **_each(["POST"], ("/v1/sql", "/v1/datasets/{name}/acceleration/refresh"), "client"),
        **_each(["DELETE"], ("/v1/tasks/{task_id}", "/v1/jobs/{job_id}"), "client"),
        **_each(["POST"], ["/v1/jobs"], "client"),
        **_each(["GET"], ("/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/results"), "client"),
    },
)
# Of no node: an application that shares a read job listens there, for as long as the job lasts.
AGENT = Access("agent", _each(["DoAction"], ["ballista_py.tableread.v1.ToAgent"], "client"))
METRICS = Access("metrics", _each(["GET"], ["/metrics"], "client", "viewer"))
OPEN_METRICS = Access("metrics", _each(["GET"], ["/metrics"], "anyone"))  # what `open_metrics` makes of it

PORTS: Mapping[PortName, Access] = {
    "public": PUBLIC,
    "control": CONTROL,
    "data": DATA,
    "parts": PARTS,
    "tables": TABLE_SERVER,
    "http": HTTP,
    "metrics": METRICS,
}
