"""What a table is: its columns, its partition keys, how it is spread and where its rows come from.

How a table may be called, and what its name is in keys of the object store.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError, PartitionKeysMissing, UnsupportedExpression
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionKey, PartitionSpec

MAX_PLAIN_CHARS = 128
MAX_BYTES = 63  # of a name with other characters, of which each takes up to three in a key
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_SIGNS = " _-"
_ESCAPE = "~"
_ESCAPED = re.compile(r"~([0-9a-f]{2})")


def require_table_name(name: str) -> None:
    """Raise `ConfigError` unless a table may be called so: letters and digits of any script, `_`, `-`, inner blanks.

    >>> require_table_name("größe 1")
    >>> require_table_name("a/b")
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: table name 'a/b' is not usable: '/' cannot be in it, but letters and \
digits of any script, '_', '-' and blanks
    """
    objection = _objection(name)
    if objection is not None:
        shown = "".join(c if c.isprintable() else "�" for c in (name if len(name) <= 128 else f"{name[:60]}…"))
        raise ConfigError(f"table name '{shown}' is not usable: {objection}")


def in_keys(name: str) -> str:
    """The name as keys of objects have it: its own letters, digits and `_` of ASCII, all else by its bytes.

    >>> in_keys("orders"), in_keys("a b")
    ('orders', 'a~20b')
    """
    if _KEPT.issuperset(name):
        return name
    return "".join(c if c in _KEPT else "".join(f"{_ESCAPE}{byte:02x}" for byte in c.encode()) for c in name)


def from_keys(text: str) -> str:
    """The name that `in_keys` wrote; a text that it did not write comes back in some form that is no table's name.

    >>> from_keys(in_keys("größe 1"))
    'größe 1'
    """
    if _ESCAPE not in text:
        return text
    parts = _ESCAPED.split(text)
    raw = b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))
    return raw.decode(errors="replace")


def folded(name: str) -> str:
    """The name of a table as it is kept: SQL makes no difference between A and a.

    Raises `ConfigError` for a capital letter outside of ASCII, which the engine tells from its small one.
    """
    small = name.lower()
    if small != "".join(c.lower() if c.isascii() else c for c in name):
        raise ConfigError(
            f"table name '{name[:MAX_PLAIN_CHARS]}' is not usable: only A to Z mean their small letters, write the "
            f"others small, as in '{small[:MAX_PLAIN_CHARS]}'"
        )
    return small


def _objection(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name != name.lower():
        return "take small letters, which mean capital ones, too"
    if name.isascii() and (_PLAIN.match(name) or len(name) > MAX_PLAIN_CHARS):
        many = len(name) > MAX_PLAIN_CHARS
        return f"at most {MAX_PLAIN_CHARS} characters" if many else None if name.strip("_") else "it has no letter"
    if len(name.encode(errors="replace")) > MAX_BYTES:
        return (
            f"at most {MAX_BYTES} bytes, or {MAX_PLAIN_CHARS} characters if they are all of a to z, 0 to 9 and '_'"
        )
    if unicodedata.normalize("NFC", name) != name:
        return "an accent is a letter of its own in it, write the letters with accents (form NFC of Unicode)"
    if name != name.strip(" "):
        return "it begins or ends with a blank"
    wrong = next((c for c in name if c not in _SIGNS and unicodedata.category(c)[0] not in "LMN"), None)
    if wrong is not None:
        shown = f"'{wrong}'" if wrong.isprintable() and not wrong.isspace() else f"the sign U+{ord(wrong):04X}"
        return f"{shown} cannot be in it, but letters and digits of any script, '_', '-' and blanks"
    return None if any(unicodedata.category(c)[0] in "LN" for c in name) else "it has no letter"


Distribution = Literal["partitioned", "replicated"]
FileFormatName = Literal["parquet", "vortex"]
_TAKEN = frozenset(("__partition", "__file_id"))
_TAKEN_PREFIX = "__ballista_"
CHANGE_FORMATS = frozenset(("postgres", "debezium"))  # of sources that are followed by their changes
LAKE_FORMATS = frozenset(("delta", "iceberg"))  # of those that are where they say so
FILE_FORMATS: tuple[FileFormatName, ...] = get_args(FileFormatName)
QUERY = "query"  # the format of the source of a materialized view
ROWS, LATER = "rows", "later"  # of one that is made without rows, which its first run brings


def follows_changes(source: Mapping[str, Any]) -> bool:
    """Whether a table of this source follows its changes, and is not filled by runs of the data pipeline.

    >>> follows_changes({"format": "delta", "path": "/t", "changes": True}), follows_changes({"format": "delta"})
    (True, False)
    """
    kind = source.get("format")
    return kind in CHANGE_FORMATS or (kind in LAKE_FORMATS and source.get("changes") in (True, "true"))


@frozen(kw_only=True)
class TableSpec:
    """The declaration of one table, as `cluster.json` keeps it.

    A *partitioned* table is split by the keys of `spec`; a *replicated* one has a single partition, kept whole by
    every executor (`spec` is `PartitionSpec.whole()`). Tables that name the same `group` have partition keys of
    equal form, and equal buckets of theirs have equal owners.

    `incarnation` tells tables of one name apart that follow each other: all that a table keeps lies under its
    `folder`, which no other table ever had. `primary_key` names columns whose values are unique and not null;
    `checks` are SQL conditions that no row may violate. Both are enforced by writes, not by sources. Writes make
    files of `file_format`; a table with a source is written by Spark, as Parquet.

    `definition` counts how often it was altered; `accepts_from` is the first one by which rows may have been made that
    are taken still. `gone` are the stored names of columns that it had (`planning.columns`). `comment` is for people.

    `named` is the number of the commit that gave it its name, among all that did so with any table: of two tables that
    somebody knows under one name the one with the higher number is the later one. A table whose map is `map_apart` has
    it under a key of its own, so that it can be there while another table has the name. One that was renamed was
    `made_as` another one: under that name it keeps all that it has. `refresh` says how it follows its source, and
    `retention` what it forgets. With the `write_mode` "write_through" statements change its source, and it follows;
    `write_wait` says whether their clients are answered once the source has it, or once the table shows it.

    Raises `PartitionKeysMissing` for a partitioned table without keys and `ConfigError` for an unusable name.
    """

    name: str = field()
    schema: pa.Schema
    spec: PartitionSpec
    distribution: Distribution = "partitioned"
    group: str | None = None
    source: Mapping[str, Any] | None = None
    incarnation: str = ""
    primary_key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    file_format: FileFormatName = "parquet"
    definition: int = 0
    accepts_from: int = 0
    gone: tuple[str, ...] = ()
    comment: str | None = None
    named: int = 0
    map_apart: bool = False
    made_as: str = ""
    refresh: Refresh | None = None
    retention: Retention | None = None
    write_mode: WriteMode = "read_only"
    write_wait: WriteWait = "visible"

    @property
    def map_name(self) -> str:
        """What its partition map is called: as the table when it was made, or as no table can be."""
        name = self.made_as or self.name
        return f"{name}.{self.incarnation}" if self.map_apart else name

    @property
    def folder(self) -> str:
        """What the table is called below `snapshots/`."""
        return table_folder(self.made_as or self.name, self.incarnation)

    @property
    def mark(self) -> str:
        """Another text for each table that ever has the name, and each definition of it."""
        return f"{self.incarnation}.{self.definition}" if self.definition else self.incarnation

    @property
    def by_changes(self) -> bool:
        """Whether it follows the changes of its source: those are decided as statements of a managed table are."""
        return self.source is not None and follows_changes(self.source)

    @property
    def is_written_through(self) -> bool:
        """Whether statements change its source."""
        return self.by_changes and self.write_mode == "write_through"

    @property
    def query(self) -> str | None:
        """The query whose rows a materialized view has; None for any other table."""
        if self.source is None or self.source.get("format") != QUERY:
            return None
        return str(self.source.get("sql", ""))

    @property
    def is_filled_later(self) -> bool:
        """Whether it is a materialized view that was made without rows."""
        return self.query is not None and self.source is not None and self.source.get(ROWS) == LATER

    @property
    def is_piped(self) -> bool:
        """Whether runs of the data pipeline bring its rows from a source, and nothing else changes them."""
        return self.source is not None and not self.by_changes and self.query is None

    def __attrs_post_init__(self) -> None:
        if self.distribution == "partitioned" and not self.spec.keys:
            raise PartitionKeysMissing(
                f"table '{self.name}' has no partition keys: say how its rows are split (partition_by=['bucket(16, "
                "id)'] or a column), or make it distribution='replicated'",
                table=self.name,
            )
        if self.file_format not in FILE_FORMATS:
            raise ConfigError(
                f"table '{self.name}': no format '{self.file_format}'; take {' or '.join(FILE_FORMATS)}"
            )
        if self.file_format != "parquet" and self.source is not None and self.query is None:
            raise ConfigError(
                f"table '{self.name}' has a source: its files are Parquet, whatever 'file_format' says"
            )
        if self.distribution == "replicated" and self.spec.keys:
            raise ConfigError(f"table '{self.name}' is replicated: a replicated table takes no 'partition_by'")
        self._check_primary_key()

    def _check_primary_key(self) -> None:
        unknown = sorted(set(self.primary_key) - set(self.schema.names))
        if unknown:
            raise ConfigError(f"table '{self.name}' has no column '{unknown[0]}' for its primary key")
        outside = sorted({column.name for column in self.spec.columns} - set(self.primary_key))
        if self.primary_key and outside:
            raise ConfigError(
                f"table '{self.name}' is split by '{outside[0]}', which its primary key lacks: one owner could not "
                "tell whether a key is taken"
            )

    @name.validator
    def _check_name(self, _attribute: object, name: str) -> None:
        self.require_name(name)

    @staticmethod
    def require_name(name: str) -> None:
        """Raise `ConfigError` unless a table of this kind may be called so."""
        require_table_name(name)


def no_keys_of_view(name: str) -> str:
    """What is said of a materialized view without partition keys."""
    return (
        f"Accelerated view '{name}' has no partition keys configured. Say how its rows are split, by a column or "
        "its buckets, as bucket(16, id)"
    )


def table_folder(name: str, incarnation: str) -> str:
    """What the table of that name and incarnation is called below `snapshots/`.

    >>> table_folder("orders", "5f2a")
    'orders-5f2a'
    """
    return f"{in_keys(name)}-{incarnation}" if incarnation else in_keys(name)


def check_names(table: str, columns: Iterable[str], *, managed: bool) -> None:
    """Raises `ConfigError` for a column of a new table whose name has a control character or a meaning of its own here.

    Every other name that is written into SQL is made so that it differs from those of the columns.
    """
    for name in columns:
        control = next((sign for sign in name if unicodedata.category(sign) == "Cc"), None)
        if control is not None:
            raise ConfigError(
                f"table '{table}' cannot have the sign U+{ord(control):04X} in the name of a column: call it otherwise"
            )
        lower = name.lower()
        if lower in _TAKEN or lower.startswith(_TAKEN_PREFIX) or (managed and lower == "rowid"):
            raise ConfigError(
                f"table '{table}' cannot have a column '{name}', a name that is taken: call it otherwise"
            )


def check_same_keys(table: str, kept: PartitionSpec, wanted: PartitionSpec) -> None:
    """Raises `UnsupportedExpression`, with the reason, if the keys `wanted` would put rows of the table, which lie by
    the keys `kept`, into other partitions."""
    try:
        kept.check_successor(wanted)
    except UnsupportedExpression as error:
        raise UnsupportedExpression(f"table '{table}': {error}") from None


def may_colocate(left: PartitionSpec, right: PartitionSpec) -> bool:
    """Whether equal key values of two tables mean equal partitions, so that the tables can share a group.

    True when the keys agree in number, kind, buckets and time zone and each pair reads columns of one type;
    all integer types count as one, because `bucket` gives equal integers of any width one bucket.
    """
    return (
        len(left.keys) == len(right.keys) > 0
        and left.time_zone == right.time_zone
        and all(_alike(a, b) for a, b in zip(left.keys, right.keys, strict=True))
    )


def _alike(left: PartitionKey, right: PartitionKey) -> bool:
    if left.kind == "function" or right.kind == "function" or left.kind != right.kind:
        return False
    if left.kind == "bucket":
        return left.buckets == right.buckets and _canonical(left.column_type) == _canonical(right.column_type)
    return bool(left.type == right.type)


def _canonical(kind: pa.DataType | None) -> pa.DataType | None:
    if kind is None:
        return None
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind
