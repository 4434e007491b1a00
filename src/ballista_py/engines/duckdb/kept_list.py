"""Which data files the rows in a database file are of, noted in that file for the process that opens it next.

The list is written when the file is about to be packed. From the first change on until then the file says of itself
that it has changed; and as it has no log, a process that dies leaves it as it was packed last. So a file that does not
say so agrees with its list, and any other one is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa
from attrs import frozen

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import DocumentUnreadable

_FORM = 1
STATE, _TABLES, _FILES = '"kept state"', '"kept tables"', '"kept files"'
_TABLE_FIELDS = pa.schema(
    [
        ("native", pa.string()),
        ("name", pa.string()),
        ("columns", pa.binary()),
        ("definition", pa.int64()),
        ("last_label", pa.int64()),
        ("last_gone", pa.int64()),
    ]
)
_FILE_FIELDS = pa.schema(
    [
        ("native", pa.string()),
        ("mark", pa.string()),
        ("rows", pa.int64()),
        ("labels", pa.list_(pa.int64())),
        ("large", pa.string()),
    ]
)
Large = Mapping[str, Mapping[int, int]]  # by column: how many values by the power of two that none exceeds


@frozen(kw_only=True)
class KeptFile:
    """The rows of one data file: under which labels, and how large their large values are.

    `mark` tells the file from every other one; without it nobody asks for them again.
    """

    mark: str
    rows: int
    labels: frozenset[int]
    large: Large


@frozen(kw_only=True)
class KeptTable:
    """A native table and the files in it. `schema` is that of the table by its `definition`.

    `last_label` and `last_gone` are the last labels that were given out.
    """

    native: str
    name: str
    schema: pa.Schema
    definition: int
    last_label: int
    last_gone: int
    files: tuple[KeptFile, ...]


def begin(connection: duckdb.DuckDBPyConnection, held: str, identity: str) -> None:
    """Make an empty list in the database `held`, of whom `identity` says whose it is."""
    connection.execute(f"create table {held}.{STATE} as select $1 as release, $2 as identity, false as changed",
                       [release(), identity])  # fmt: skip
    for name, fields in ((_TABLES, _TABLE_FIELDS), (_FILES, _FILE_FIELDS)):
        connection.register("fields", fields.empty_table())
        connection.execute(f'create table {held}.{name} as from "fields"')
        connection.unregister("fields")


def release() -> str:
    """Which form of the file this release reads: another one of DuckDB, or of ours, may lay rows out otherwise."""
    return f"{_FORM} {duckdb.__version__}"


def write(connection: duckdb.DuckDBPyConnection, held: str, tables: Iterable[KeptTable]) -> None:
    """Put these in the place of what the list says, and note that it agrees with the rows; in one transaction."""
    rows: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for table in tables:
        columns = table.schema.serialize().to_pybytes()
        rows.append(
            {
                "native": table.native,
                "name": table.name,
                "columns": columns,
                "definition": table.definition,
                "last_label": table.last_label,
                "last_gone": table.last_gone,
            }
        )
        files += (
            {
                "native": table.native,
                "mark": file.mark,
                "rows": file.rows,
                "labels": sorted(file.labels),
                "large": orjson.dumps(file.large, option=orjson.OPT_NON_STR_KEYS).decode() if file.large else "",
            }
            for file in table.files
        )
    connection.execute("begin")
    try:
        for name, found, fields in ((_TABLES, rows, _TABLE_FIELDS), (_FILES, files, _FILE_FIELDS)):
            connection.execute(f"delete from {held}.{name}")
            connection.register("entries", pa.Table.from_pylist(found, schema=fields))
            try:
                connection.execute(f'insert into {held}.{name} from "entries"')
            finally:
                connection.unregister("entries")
        connection.execute(f"update {held}.{STATE} set changed = false")
        connection.execute("commit")
    except BaseException:
        with suppress(duckdb.Error):  # of a database that can be used no more
            connection.execute("rollback")
        raise


def read(connection: duckdb.DuckDBPyConnection, held: str, identity: str) -> list[KeptTable]:
    """What the list says. Raises `DocumentUnreadable`, with the reason, for a file that is not to be used, and what
    DuckDB raises for one that it cannot read."""
    found = connection.execute(f"select release, identity, changed from {held}.{STATE}").fetchall()
    if len(found) != 1 or found[0][0] != release():
        raise DocumentUnreadable("another release has written them")
    if found[0][1] != identity:
        raise DocumentUnreadable("they are of another cluster, state location or executor")
    if found[0][2] is not False:
        raise DocumentUnreadable("they are not those that the list beside them names")
    try:
        return _read(connection, held)
    except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise DocumentUnreadable(f"the list of them cannot be read ({type(error).__name__})") from error


def _read(connection: duckdb.DuckDBPyConnection, held: str) -> list[KeptTable]:
    files: dict[str, list[KeptFile]] = {}
    for row in connection.sql(f"from {held}.{_FILES}").to_arrow_table().cast(_FILE_FIELDS).to_pylist():
        large = orjson.loads(row["large"]) if row["large"] else {}
        files.setdefault(row["native"], []).append(
            KeptFile(
                mark=row["mark"],
                rows=row["rows"],
                labels=frozenset(row["labels"]),
                large={name: {int(power): n for power, n in counts.items()} for name, counts in large.items()},
            )
        )
    return [
        KeptTable(
            native=row["native"],
            name=row["name"],
            schema=pa.ipc.read_schema(pa.py_buffer(row["columns"])),
            definition=row["definition"],
            last_label=row["last_label"],
            last_gone=row["last_gone"],
            files=tuple(files.get(row["native"], ())),
        )
        for row in connection.sql(f"from {held}.{_TABLES}").to_arrow_table().cast(_TABLE_FIELDS).to_pylist()
    ]
