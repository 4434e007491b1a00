"""What an application file may say: every field, with its kind and words about it. Pure, and the only list of them.

The reader, the JSON schema for editors and the table in `docs/from-spice.md` are made of it or held against it. The
fields bear the names that a spicepod gives them, where it has them; those that there is nothing for here are listed,
too, with what to do instead, so that nobody believes that they took effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from attrs import frozen

from ballista_py.coordinator.app.refused import DATASET, RUNTIME, TOP, VIEW, accelerated, accelerated_view, columns

Kind = Literal[
    "text",
    "query",
    "count",
    "number",
    "flag",
    "duration",
    "choice",
    "texts",
    "names",
    "keys",
    "options",
    "section",
    "sections",
]
MAX_DATASETS = 10_000
FORMATS = ("parquet", "csv", "json", "orc")


@frozen(kw_only=True)
class Field:
    """One field. `setting` is the option of a scheduler that it is; `refused` is what to do instead of giving it.

    Kinds: `query` is a text of several lines, `count` a whole number from 1 on, `names` a list of texts or one such as
    "(a, b)", `keys` a list of expressions or {name: expression}, `options` a mapping of names to values of one line.
    """

    name: str
    kind: Kind = "text"
    help: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    refused: str = ""
    ours: bool = False  # a spicepod has no such field
    setting: str = ""

    def known(self) -> dict[str, Field]:
        """The fields of a section, by name."""
        return {field.name: field for field in self.fields}


def _refused(reasons: dict[str, str]) -> tuple[Field, ...]:
    return tuple(Field(name=name, refused=reason) for name, reason in reasons.items())


_COLUMN = (
    Field(name="name", required=True, help="the name of the column"),
    Field(name="type", help="its type in SQL, as bigint or varchar", required=True, ours=True),
    Field(name="nullable", kind="flag", help="whether it may be null; default: true", ours=True),
    Field(name="default", help="an SQL constant that INSERT takes for it, if it names it not", ours=True),
    Field(name="description", help="words for people: the COMMENT on the column"),
    *_refused(columns()),
)
_ACCELERATION = (
    Field(name="enabled", kind="flag", choices=("true",), help="true: every dataset is a table of the cluster"),
    Field(
        name="refresh_mode",
        kind="choice",
        choices=("full", "append", "changes"),
        help="full: all rows of the source; append: those that the table lacks, found by time_column; changes: as the "
        "source tells them, of sources that do; default: full",
    ),
    Field(
        name="refresh_check_interval",
        kind="duration",
        help="between refreshes; default: when it is asked for",
    ),
    Field(
        name="refresh_append_overlap",
        help="how late a row may come: a time such as 1h, or a number for a time_column of integers",
    ),
    Field(
        name="on_schema_change",
        kind="choice",
        choices=("fail", "append"),
        help="when the source has more columns: fail, or append them to the table; default: fail",
        ours=True,
    ),
    Field(name="retention_sql", help="the DELETE of this table's rows that takes old ones away"),
    Field(name="retention_check_interval", kind="duration", help="between runs of retention_sql; default: 1h"),
    Field(
        name="retention_check_enabled",
        kind="flag",
        choices=("true",),
        help="true: a table with a retention_sql always has it run",
    ),
    Field(
        name="write_mode",
        help="write_through: statements change the source, and the table follows; default: read_only",
    ),
    Field(
        name="write_wait",
        kind="choice",
        choices=("source", "visible"),
        help="when such a statement is answered: once the source has it, or once it is visible; default: visible",
        ours=True,
    ),
    Field(
        name="partition_by",
        kind="keys",
        help="how rows are split: bucket(16, id), a column, or {name: expression}",
    ),
    Field(
        name="primary_key",
        kind="names",
        help="columns that are unique and not null, of a table without a source or that follows changes",
    ),
    *_refused(accelerated("a dataset")),
)
_DATASET = (
    Field(name="name", required=True, help="the name of the table"),
    Field(name="from", help="where its rows come from: a path or glob, file:, s3:// and others that Spark reads"),
    Field(
        name="params", kind="options", help="options of Spark's reader; `file_format` is parquet, csv, json or orc"
    ),
    Field(
        name="scan",
        kind="options",
        help="where its files lie and stay: `format` is parquet, delta or iceberg, with `path`, or `catalog.uri` and "
        "table",
        ours=True,
    ),
    Field(name="time_column", help="the column that grows with time, by which an append finds new rows"),
    Field(name="description", help="words for people: the COMMENT on the table"),
    Field(name="columns", kind="sections", fields=_COLUMN, help="the columns of a table without a source"),
    Field(
        name="distribution",
        kind="choice",
        choices=("partitioned", "replicated"),
        help="replicated: every executor keeps all of it; default: partitioned",
        ours=True,
    ),
    Field(
        name="colocate_with", help="a dataset with equal keys, whose partitions have the same owners", ours=True
    ),
    Field(name="checks", kind="texts", help="SQL conditions that no row may violate", ours=True),
    Field(
        name="file_format",
        kind="choice",
        choices=("parquet", "vortex"),
        help="how files of a table without a source are written; default: parquet",
        ours=True,
    ),
    Field(name="acceleration", kind="section", fields=_ACCELERATION, help="how the table is kept"),
    *_refused(DATASET),
)
_VIEW_ACCELERATION = (
    Field(name="enabled", kind="flag", choices=("true",), help="true: the rows of its query are kept"),
    Field(name="refresh_mode", kind="choice", choices=("full",), help="full: its query is run anew each time"),
    Field(
        name="refresh_check_interval",
        kind="duration",
        help="between looks whether a table that it reads has changed; default: 10s",
    ),
    Field(
        name="partition_by",
        kind="keys",
        required=True,
        help="an accelerated view has partition keys: bucket(16, id), a column, or {name: expression}",
    ),
    *_refused(accelerated_view()),
)
_VIEW = (
    Field(name="name", required=True, help="the name of the view"),
    Field(name="sql", kind="query", required=True, help="its query, in the engine's SQL"),
    Field(name="description", help="words for people: the COMMENT on the view"),
    Field(
        name="acceleration",
        kind="section",
        fields=_VIEW_ACCELERATION,
        help="its rows are kept, and follow the tables that it reads: a materialized view",
    ),
    *_refused(VIEW),
)
_MANAGEMENT = (
    Field(
        name="interval",
        kind="duration",
        help="between assignment cycles; default: 30s",
        setting="partition_assignment_interval",
    ),
    Field(
        name="max_assignments_per_cycle",
        kind="count",
        help="moves a cycle; default: 100",
        setting="max_partition_assignments_per_interval",
    ),
    Field(
        name="max_partitions_per_executor",
        kind="count",
        help="cap of each executor; default: 1000",
        setting="max_partitions_per_executor",
    ),
    Field(
        name="discovery_timeout",
        kind="duration",
        help="how long a look at a source may take; default: 60s",
        setting="partition_discovery_timeout",
    ),
    Field(
        name="discovery_interval",
        kind="duration",
        help="between looks at sources for new partitions; default: never",
        ours=True,
        setting="partition_discovery_interval",
    ),
)
_SCHEDULER = (
    Field(name="state_location", help="URL of the cluster's documents", setting="state_location"),
    Field(
        name="params",
        kind="options",
        help="of the object store there; keys and passwords by reference: ${secrets:name}",
        setting="store_options",
    ),
    Field(name="partition_management", kind="section", fields=_MANAGEMENT, help="how partitions get their owners"),
)
_PARAMS = (
    Field(name="replicas", kind="count", help="executors that hold each partition", ours=True, setting="replicas"),
    Field(
        name="max_replica_lag_ms",
        kind="duration",
        help="how old what replicas give may be; left out: not at all",
        ours=True,
        setting="max_replica_lag_ms",
    ),
    Field(
        name="statement_timeout_ms",
        kind="duration",
        help="how long a statement may take",
        ours=True,
        setting="statement_timeout_ms",
    ),
    Field(name="max_merge_bytes", kind="count", help="memory of merges", ours=True, setting="max_merge_bytes"),
)
_RUNTIME = (
    Field(name="scheduler", kind="section", fields=_SCHEDULER, help="what schedulers have in common"),
    Field(name="params", kind="section", fields=_PARAMS, help="settings that all schedulers share"),
    *_refused(RUNTIME),
)

_SPARES = Field(name="unless", kind="texts", help="groups, or user:NAME, for whom it does not count", ours=True)
_TABLES = Field(name="tables", kind="texts", required=True, ours=True, help="names of tables or views; '*': all")
_GRANT = (
    Field(name="to", kind="texts", required=True, ours=True, help="groups, user:NAME, or '*': everybody"),
    Field(
        name="may", kind="texts", required=True, ours=True,
        help="select, insert, change (UPDATE, DELETE, MERGE, TRUNCATE), create (and alter, drop)",
    ),
    _TABLES,
)  # fmt: skip
_ROWS = (
    _TABLES,
    Field(
        name="where", kind="query", required=True, ours=True,
        help="an SQL condition over one row, with current_user() and current_groups(): the others are not there",
    ),
    _SPARES,
)  # fmt: skip
_MASK = (
    _TABLES,
    Field(name="columns", kind="texts", required=True, ours=True, help="columns of these tables"),
    Field(
        name="value", kind="query", required=True, ours=True, help="an SQL expression over one row, shown instead"
    ),
    _SPARES,
)
_POLICIES = (
    Field(name="enabled", kind="flag", ours=True, help="false: everybody may do everything again; default: true"),
    Field(
        name="operators", kind="texts", ours=True, help="groups, or user:NAME, who may do everything, unfiltered"
    ),
    Field(name="grants", kind="sections", fields=_GRANT, ours=True, help="what is allowed; all else is denied"),
    Field(name="rows", kind="sections", fields=_ROWS, ours=True, help="which rows of tables there are for whom"),
    Field(
        name="masks", kind="sections", fields=_MASK, ours=True, help="what is shown instead of values, and to whom"
    ),
)

APPLICATION = Field(
    name="",
    kind="section",
    help="All that a cluster serves, in one file.",
    fields=(
        Field(name="version", kind="choice", choices=("v1",), required=True, help="the form of this file: v1"),
        Field(name="name", required=True, help="the name of the application; a cluster serves one"),
        Field(
            name="revision",
            kind="count",
            required=True,
            ours=True,
            help="raised with each change of the file: the newest applied one counts",
        ),
        Field(
            name="prune",
            kind="flag",
            ours=True,
            help="drop tables, with their rows, that earlier revisions named and this one does not; default: false",
        ),
        Field(name="datasets", kind="sections", fields=_DATASET, help="the tables"),
        Field(name="views", kind="sections", fields=_VIEW, help="the views, which are queries under names"),
        Field(
            name="policies",
            kind="section",
            fields=_POLICIES,
            ours=True,
            help="who may do what with which table; left out: as it was, which is everybody everything at first",
        ),
        Field(name="runtime", kind="section", fields=_RUNTIME, help="the schedulers"),
        *_refused(TOP),
    ),
)


def walk(field: Field = APPLICATION, above: str = "") -> Iterator[tuple[str, Field]]:
    """Every field below one, with its path, such as `datasets[].acceleration.engine`.

    >>> dict(walk())["runtime.scheduler.partition_management.interval"].setting
    'partition_assignment_interval'
    """
    for inner in field.fields:
        path = f"{above}{'.' if above else ''}{inner.name}{'[]' if inner.kind == 'sections' else ''}"
        yield path, inner
        yield from walk(inner, path)
