"""What a scanned table is: a name for files that lie in a lake and stay there, and what a statement sees of them.

Nobody owns a part of such a table and nothing of it is kept: a statement reads one snapshot of it. To what plans the
statement a snapshot is a table like others, of a name that no table can have, split by nothing that is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import orjson
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec, require_table_name

MAX_SCANNED = 1_000  # of a cluster: everybody reads all of them with the catalog
MAX_SCAN_BYTES = 16_384  # of what one says of where it lies, as JSON
SCAN_FORMATS = ("iceberg", "delta", "parquet")
SCANNED_TYPE = "SCANNED"  # what one is called where tables are listed
SCANNED_MARK = "scan."  # what no mark of a table or a view begins with
AT = "@"  # stands in no name of a table
MAX_PARTS = 64
_FLAGS = {"true": True, "false": False}
_OWN = re.compile(r'"(?P<name>[^"@]+)@[0-9]+-[a-z0-9_-]{1,80}"(?: AS (?P<alias>"[^"]+"|\w+))?')
_ID = re.compile(r"[a-z0-9_-]{1,80}")
_NO_COLUMN = "__ballista_scanned"  # no table has one of that name


def _plain(scan: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(scan) if isinstance(scan, Mapping) else scan


@frozen(kw_only=True)
class ScannedTable:
    """The declaration of one scanned table, as `cluster.json` keeps it among the tables.

    `scan` says where it lies: its `format`, one of `SCAN_FORMATS`, with what that takes; secrets are references in it.
    It has the columns of its snapshot, which are asked for when it is read, so none are kept. `named` is the number of
    the commit that gave it its name, among all that named a table. `comment` is for people.

    Raises `ConfigError` for an unusable name, and a `scan` that is no mapping with one of the formats.
    """

    name: str = field()
    scan: Mapping[str, Any] = field(converter=_plain)
    named: int = 0
    comment: str | None = None

    @property
    def mark(self) -> str:
        """Another text for each scanned table that ever has the name; no other table or view has it."""
        return f"{SCANNED_MARK}{self.named}"

    @property
    def format(self) -> str:
        """How its files are kept together."""
        return str(self.scan["format"])

    @property
    def place(self) -> str:
        """Where it lies, for people: its path, or its name in its catalog. No secrets stand there."""
        return str(self.scan.get("path") or self.scan.get("table") or "")

    def refused(self, instead: str) -> SqlError:
        """The error for what cannot be done with files that lie elsewhere and stay as they are, and the way out."""
        return SqlError(f"table '{self.name}' is scanned where it lies ({self.format}, {self.place}): {instead}")

    def snapshot_name(self, snapshot: str) -> str:
        """What one of its snapshots is called in a statement that is planned.

        >>> ScannedTable(name="trips", scan={"format": "delta", "path": "/t"}, named=7).snapshot_name("3")
        'trips@7-3'
        """
        if not _ID.fullmatch(snapshot):
            raise ConfigError(f"table '{self.name}': a snapshot cannot be called {snapshot[:80]!a}")
        return f"{self.name}{AT}{self.named}-{snapshot}"

    @name.validator
    def _check_name(self, _attribute: object, name: str) -> None:
        require_table_name(name)

    @scan.validator
    def _check_scan(self, _attribute: object, scan: Any) -> None:
        if not isinstance(scan, Mapping) or scan.get("format") not in SCAN_FORMATS:
            raise ConfigError(
                f"table '{self.name}': 'scan' says where it lies, as {{'format': 'parquet', 'path': 's3://…/trips/'}}; "
                f"its format is one of {', '.join(SCAN_FORMATS)}"
            )
        try:
            size = len(orjson.dumps(scan))
        except (TypeError, ValueError):
            raise ConfigError(f"table '{self.name}': 'scan' takes texts, numbers and mappings of such") from None
        if size > MAX_SCAN_BYTES:
            raise ConfigError(f"table '{self.name}': 'scan' has {size:,} bytes, more than {MAX_SCAN_BYTES:,}")


@frozen(kw_only=True)
class SnapshotSpec(TableSpec):
    """A snapshot of a scanned table as a statement that is planned sees it; no document has one."""

    @staticmethod
    def require_name(name: str) -> None:
        """Its name is that of a table, the number of its naming and that of the snapshot."""
        require_table_name(scanned_name(name))


def scanned_name(name: str) -> str:
    """The table whose snapshot has that name; every other name is that of a table itself.

    >>> scanned_name("trips@7-3"), scanned_name("trips")
    ('trips', 'trips')
    """
    return name.partition(AT)[0]


def snapshot_of(name: str) -> tuple[int, str] | None:
    """The number of the naming and the snapshot that a name has; None for one that is none of a snapshot.

    >>> snapshot_of("trips@7-3"), snapshot_of("trips"), snapshot_of("a@b.com")
    ((7, '3'), None, None)
    """
    _, sign, rest = name.partition(AT)
    number, _, snapshot = rest.partition("-")
    if not sign or not number.isascii() or not number.isdigit() or not _ID.fullmatch(snapshot):
        return None
    return int(number), snapshot


def scan_of(options: Mapping[str, str]) -> dict[str, Any]:
    """A scan that was written as names and texts: `catalog.x` is `x` of its catalog, every other name with a dot one of
    its `options`. Raises `ConfigError` for a name that stands for one value and for several.

    >>> scan_of({"format": "iceberg", "catalog.uri": "http://c", "table": "ns.t", "s3.region": "eu"})
    {'format': 'iceberg', 'catalog': {'uri': 'http://c'}, 'table': 'ns.t', 'options': {'s3.region': 'eu'}}
    >>> scan_of({"format": "delta", "path": "/t", "shared": "true"})
    {'format': 'delta', 'path': '/t', 'shared': True}
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        first, dot, rest = key.partition(".")
        if not dot:
            found[key] = _FLAGS.get(value.lower(), value)
            continue
        inner, name = (first, rest) if first in ("catalog", "options") else ("options", key)
        if not isinstance(found.setdefault(inner, {}), dict):
            raise ConfigError(f"'{inner}' is one value and several")
        found[inner][name] = value
    return found


def external_table(name: str, scan: Mapping[str, Any]) -> str:
    """The statement that makes a scanned table of that name.

    Raises `ConfigError` for a value that is no text, number or flag, nor a mapping of such.

    >>> external_table("t", {"format": "delta", "path": "/lake/t"})
    'CREATE EXTERNAL TABLE "t" STORED AS DELTA LOCATION \\'/lake/t\\''
    """
    options: list[str] = []
    for key, value in scan.items():
        if key in ("format", "path"):
            continue
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for more, one in inner:
            if not isinstance(one, str | int | float):
                raise ConfigError(f"table '{name}': '{key}' of its scan takes texts, numbers and mappings of such")
            written = str(one).lower() if isinstance(one, bool) else str(one)
            options.append(f"{_literal(f'{key}.{more}' if more else str(key))} {_literal(written)}")
    place = f" LOCATION {_literal(str(scan['path']))}" if scan.get("path") else ""
    said = f" OPTIONS ({', '.join(options)})" if options else ""
    shown = '"' + name.replace('"', '""') + '"'
    return f"CREATE EXTERNAL TABLE {shown} STORED AS {str(scan.get('format')).upper()}{place}{said}"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def with_own_names(schema: pa.Schema) -> pa.Schema:
    """The columns of an answer; one that is called by its expression is called as that was written.

    >>> with_own_names(pa.schema([('(SELECT a FROM "t@1-2" AS t, "t@1-2" AS u)', pa.int64())])).names
    ['(SELECT a FROM t, t AS u)']
    """
    if not any(AT in name for name in schema.names):
        return schema
    names = [_OWN.sub(_as_written, name) for name in schema.names]
    fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
    return pa.schema(fields, schema.metadata)


def _as_written(found: re.Match[str]) -> str:
    name, alias = found["name"], found["alias"]
    shown = name if name.isidentifier() else f'"{name}"'
    return shown if alias is None or alias.strip('"') == name else f"{shown} AS {alias}"


def require_alone(name: str, others: Iterable[Any]) -> None:
    """Raise `ConfigError` if a scanned table is declared with what others have: a source, columns, partition keys.

    >>> require_alone("t", [None, ()])
    """
    if any(one is not None and (not hasattr(one, "__len__") or len(one)) for one in others):
        raise ConfigError(
            f"table '{name}' is scanned where it lies: its columns are those of its snapshot, it takes no source, "
            "schema, keys or checks and is split by its files; leave them out"
        )


def snapshot_spec(name: str, schema: pa.Schema) -> SnapshotSpec:
    """The snapshot of that name, with these columns, to whoever plans a statement: split, and not by a column."""
    return SnapshotSpec(name=name, schema=schema, spec=_unknown_spec(MAX_PARTS))


def snapshot_map(name: str, parts: int) -> PartitionMap:
    """The map that goes with it: nobody holds one of its parts, of which there are about as many as tasks."""
    spec = _unknown_spec(max(2, min(MAX_PARTS, parts)))
    return PartitionMap.build(name, spec, spec.static_values() or ())


@cache
def _unknown_spec(parts: int) -> PartitionSpec:
    schema = pa.schema([pa.field(_NO_COLUMN, pa.int64(), nullable=False)])
    return PartitionSpec.parse([f"bucket({parts}, {_NO_COLUMN})"], schema)
