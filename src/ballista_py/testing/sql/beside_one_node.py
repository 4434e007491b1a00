"""A running cluster beside one DuckDB: each statement goes to both, and both must then be the same.

What is compared: the count or the rows that a statement gives, whether it is refused, which tables there are, and of
the tables that it touched what DESCRIBE says and their rows. What is no statement of DuckDB is put into some that are:
`CREATE TABLE … LIKE` into the columns it takes, `INSERT OVERWRITE` into a DELETE and an INSERT.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, SqlError
from ballista_py.runtime import seeded_chance
from ballista_py.sql.parse.changes import quoted, read_change, text_for_engine
from ballista_py.sql.parse.creates import DEFAULTS, INDEXES, CreateLike, CreateTable
from ballista_py.sql.parse.edits import edited
from ballista_py.sql.parse.insert_values import Meant, conversions
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.testing.sql.definitions import Shape, definition_statement

# What one DuckDB cannot do to a table with an index, and what a cluster refuses with these words and says why.
_NOT_THERE = re.compile(
    r"depend on it|depends on it|Cannot (change|alter|drop|rename) .*index|an index depends|"
    r"UNIQUE or PRIMARY KEY constraint specified",
    re.I,
)
_NOT_HERE = re.compile(
    r"is part of how it is split|is part of its primary key|so a type only grows|which a table "
    r"does not keep|has two columns named|its primary key lacks|which its query reads|more than once in one statement|"
    r"PARTITION gives its",
    re.IGNORECASE,
)
PartitionBy = str | Sequence[str] | None
_SPLIT_BY = re.compile(r"PARTITIONED BY \((.*)\)")


class Client(Protocol):
    """Who takes statements: a `Client`, or a `LocalCluster`."""

    def sql(self, query: str) -> pa.Table: ...
    def ingest(self, table: str, data: pa.Table) -> int: ...


@define
class BesideOneNode:
    """Runs statements on both. Tables of DuckDB must be those of the cluster when it begins, or there are none."""

    client: Client
    single: Any = field(factory=duckdb.connect)

    def add(self, name: str, rows: pa.Table, partition_by: PartitionBy, key: Sequence[str] = ()) -> None:
        """Make a table of these rows on both; without `partition_by` every executor has it whole."""
        self.single.register("given rows", rows)
        self.single.execute(f'create table {quoted(name)} as from "given rows"')
        self.single.unregister("given rows")
        if key:
            self.single.execute(f"alter table {quoted(name)} add primary key ({', '.join(map(quoted, key))})")
        keys = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
        self.client.sql(
            f"create table {quoted(name)} {_declared(name, frozenset((INDEXES,)), True, self.single)}"
            + (f" partitioned by ({', '.join(keys)})" if keys else "")
        )
        self.client.ingest(name, rows.cast(self.single.sql(f"from {quoted(name)}").to_arrow_table().schema))

    def check(self, sql: str) -> str:
        """Whether the statement was done by both (`same`), `refused` by both, or by one that cannot do it (`apart`).

        Raises `AssertionError` when they differ.
        """
        if statement_kind(sql) != "change":
            wrong = difference(self.client.sql(sql), self.single.sql(sql).to_arrow_table())
            if wrong is not None:
                raise AssertionError(f"{wrong}\n{sql}")
            return "same"
        saved = {name: self.single.sql(f"from {quoted(name)}").to_arrow_table() for name in self._touched(sql)}
        try:
            expected = self._expected(sql)
        except (duckdb.Error, SqlError) as error:
            if _NOT_THERE.search(str(error)):
                return "apart"
            for name, rows in saved.items():
                self._put_back(name, rows)
            return self._require_refused(sql, str(error))
        try:
            found = self.client.sql(sql)
        except BallistaError as error:
            if not _NOT_HERE.search(str(error)):
                raise AssertionError(f"it fails: {error}\n{sql}") from error
            self._as_on_cluster()
            return "apart"
        wrong = self._difference(found, expected) or self._tables_differ(sql)
        assert wrong is None, f"{wrong}\n{sql}"
        return "same"

    def shapes(self) -> list[Shape]:
        """The tables as they are."""
        return [self._shape(name) for name in self.names()]

    def names(self) -> list[str]:
        """Of the tables of DuckDB, sorted."""
        return [
            str(name) for (name,) in self.single.execute("select name from (show tables) order by 1").fetchall()
        ]

    def _shape(self, name: str) -> Shape:
        rows = self.single.execute(f"describe {quoted(name)}").fetchall()
        (made,) = self.client.sql(f"show create table {quoted(name)}")["statement"].to_pylist()
        split = _SPLIT_BY.search(made)
        words = split[1].split(", ") if split else []
        return Shape(
            name=name,
            columns=tuple((str(row[0]), str(row[1])) for row in rows),
            split_by=tuple(str(row[0]) for row in rows if {row[0], quoted(row[0])} & {*words}),
            key=tuple(str(row[0]) for row in rows if row[3] == "PRI"),
            required=tuple(str(row[0]) for row in rows if row[2] == "NO"),
        )

    def _touched(self, sql: str) -> Sequence[str]:
        """The tables to compare: that of the statement; all after one that makes, ends or renames tables."""
        try:
            change = read_change(sql)
        except SqlError:
            return ()
        named = getattr(change, "table", None)
        return [name for name in self.names() if name == named]

    def _expected(self, sql: str) -> pa.Table | int | None:
        """What DuckDB gives: rows, a count, or neither."""
        found: pa.Table | int | None = None
        for text in one_node_statements(sql, self.single):
            done = self.single.execute(text)
            if done.description is None:
                continue
            with warnings.catch_warnings(action="ignore"):  # of a copy
                rows = done.to_arrow_table()
            is_count = rows.column_names == ["Count"] and not re.search(r"\breturning\b", sql, re.IGNORECASE)
            found = (rows["Count"].to_pylist() or [None])[0] if is_count else rows if rows.num_columns else None
        if found is not None and not isinstance(found, int) and "returning" not in sql.lower():
            return None
        return found

    def _require_refused(self, sql: str, reason: str) -> str:
        try:
            self.client.sql(sql)
        except BallistaError as error:
            wrong = str(error) if "internal error" in str(error) else self._tables_differ(sql)
        else:
            wrong = f"it is done, though one node says: {reason}"
        if wrong is not None:
            raise AssertionError(f"{wrong}\n{sql}")
        return "refused"

    def _difference(self, found: pa.Table, expected: pa.Table | int | None) -> str | None:
        if isinstance(expected, pa.Table):
            return difference(found, expected)
        if expected is None or found.to_pylist() == [{"affected_rows": expected}]:
            return None
        return f"{found.to_pylist()} instead of {expected} row(s)"

    def _tables_differ(self, sql: str) -> str | None:
        there = self.client.sql("show tables")["name"].to_pylist()
        if there != self.names():
            return f"tables {there} instead of {self.names()}"
        defines = re.match(r"\s*(create|alter|drop)\b", sql, re.IGNORECASE)
        for name in there if defines else self._touched(sql):
            for query in (f"describe {quoted(name)}", f"from {quoted(name)}"):
                wrong = difference(self.client.sql(query), self.single.sql(query).to_arrow_table())
                if wrong is not None:
                    return f"{query}: {wrong}"
        return None

    def _put_back(self, name: str, rows: pa.Table) -> None:
        """The rows as they were before a statement of which one node did the first half."""
        if self.single.sql(f"from {quoted(name)}").to_arrow_table().equals(rows):
            return
        self.single.execute(f"delete from {quoted(name)}")
        self.single.register("saved rows", rows)
        self.single.execute(f'insert into {quoted(name)} from "saved rows"')
        self.single.unregister("saved rows")

    def _as_on_cluster(self) -> None:
        """Make the tables of DuckDB anew, as those of the cluster are."""
        for name in self.names():
            self.single.execute(f"drop table {quoted(name)}")
        for name in self.client.sql("show tables")["name"].to_pylist():
            (made,) = self.client.sql(f"show create table {quoted(name)}")["statement"].to_pylist()
            self.single.execute(text_for_engine(made) or made)
            self.single.register("saved rows", self.client.sql(f"from {quoted(name)}"))
            self.single.execute(f'insert into {quoted(name)} from "saved rows"')
            self.single.unregister("saved rows")


def one_node_statements(sql: str, single: Any) -> list[str]:
    """The statements by which one DuckDB, which has the tables, does the same. Raises `SqlError`."""
    change = read_change(sql)
    if isinstance(change, CreateLike):
        written = [_declared(piece.source, piece.copied, change.whole, single) for piece in change.pieces]
        return one_node_statements(change.expanded(written), single)
    if isinstance(change, Insert) and change.overwrites:
        return _overwritten(change, single)
    if isinstance(change, CreateTable):
        return [change.declaration]
    return [text_for_engine(sql) or sql]


def _declared(source: str, copied: frozenset[str], whole: bool, single: Any) -> str:
    """The columns of a table, as a CREATE TABLE declares them, with what LIKE copies of it."""
    rows = single.execute(f"describe {quoted(source)}").fetchall()
    items = [
        f"{quoted(row[0])} {row[1]}{' not null' if row[2] == 'NO' else ''}"
        + (f" default {row[4]}" if row[4] is not None and DEFAULTS in copied else "")
        for row in rows
    ]
    key = [quoted(row[0]) for row in rows if row[3] == "PRI"]
    if key and INDEXES in copied:
        items.append(f"primary key ({', '.join(key)})")
    return f"({', '.join(items)})" if whole else ", ".join(items)


def _overwritten(change: Insert, single: Any) -> list[str]:
    """A DELETE of the rows that are replaced, and the INSERT."""
    fixed = dict(change.fixed)
    rows = single.execute(f"describe {quoted(change.table)}").fetchall()
    meant = {str(row[0]): Meant(str(row[1]), row[4]) for row in rows}
    named = change.columns or [name for name in meant if name.lower() not in fixed]
    query = edited(change.query, conversions(change.query, [meant[name] for name in named if name in meant]))
    same = " and ".join(f"{quoted(name)} is not distinct from {value}" for name, value in fixed.items())
    given = "".join(f", {value} as {quoted(name)}" for name, value in fixed.items())
    into = " by name" if change.by_name else f" ({', '.join(map(quoted, [*named, *fixed]))})"
    return [
        f"delete from {quoted(change.table)}" + (f" where {same}" if same else ""),
        f"insert into {quoted(change.table)}{into} select *{given} from ({query}\n)",
    ]


def compare_definitions(client: Client, seed: int, statements: int) -> Counter[str]:
    """Run so many random statements on a cluster without tables and on one node; how many were done, refused, apart.

    The tables are dropped at last. Raises `AssertionError` at the first that differs.
    """
    chance, found = seeded_chance(seed), Counter[str]()
    with duckdb.connect() as single:
        both = BesideOneNode(client, single)
        try:
            for number in range(statements):
                sql = definition_statement(chance, both.shapes())
                try:
                    found[both.check(sql)] += 1
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, statement {number}: {error}") from error
        finally:
            for name in client.sql("show tables")["name"].to_pylist():
                client.sql(f"drop table {quoted(name)}")
    return found


def check_on_cluster(
    client: Client, sql: str, tables: Mapping[str, pa.Table], partition_by: Mapping[str, PartitionBy],
    primary_key: Mapping[str, Sequence[str]],
) -> None:  # fmt: skip
    """Make the tables on a cluster and on one node, run the statement on both, compare them, and drop the tables.

    Raises `AssertionError` where they differ, and for a table that the cluster has already.
    """
    there = client.sql("show tables")["name"].to_pylist()
    if there:
        raise AssertionError(f"the cluster must have no tables to begin with, and has {', '.join(there)}")
    with duckdb.connect() as single:
        both = BesideOneNode(client, single)
        try:
            for name, rows in tables.items():
                both.add(name, rows, partition_by.get(name), primary_key.get(name, ()))
            both.check(sql)
        finally:
            for name in client.sql("show tables")["name"].to_pylist():
                client.sql(f"drop table {quoted(name)}")
