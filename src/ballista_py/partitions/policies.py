"""Who may do what with which table, which rows of it he sees, and what he is shown instead of a value; pure.

What is not granted is denied. Grants only add, and filters and masks count for everybody but those whom they spare: so
a group that is lost on its way takes rights away and gives none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal, TypeVar, get_args

from attrs import frozen

from ballista_py.errors import SqlError
from ballista_py.partitions.scanned_table import scanned_name

Action = Literal["select", "insert", "change", "create"]
ACTIONS: tuple[Action, ...] = get_args(Action)
EVERYBODY = EVERY_TABLE = "*"
USER = "user:"
MAX_RULES = 1_000
MAX_EXPRESSION_CHARS = 16_384


@frozen(kw_only=True)
class TableGrant:
    """Those in `to` (groups, `user:NAME`, or `*` for everybody) may do this with these tables (`*`: all of them)."""

    to: tuple[str, ...]
    may: tuple[Action, ...]
    tables: tuple[str, ...]


@frozen(kw_only=True)
class RowFilter:
    """Of these tables only rows for which `where` is true are there, for all but those in `spares`."""

    tables: tuple[str, ...]
    where: str
    spares: tuple[str, ...] = ()


@frozen(kw_only=True)
class ColumnMask:
    """`value`, an SQL expression over a row of these tables, stands in the place of these columns, for all but those
    in `spares`."""

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    value: str
    spares: tuple[str, ...] = ()


_Rule = TypeVar("_Rule", RowFilter, ColumnMask)


@frozen(kw_only=True)
class Policies:
    """All rules of a cluster. `operators` (groups and `user:NAME`) may do everything, unfiltered."""

    operators: tuple[str, ...] = ()
    grants: tuple[TableGrant, ...] = ()
    rows: tuple[RowFilter, ...] = ()
    masks: tuple[ColumnMask, ...] = ()

    def of(self, name: str, groups: Collection[str]) -> Rights:
        """The rights of a client of that name who is in these groups.

        >>> policies = Policies(grants=(TableGrant(to=("staff",), may=("select",), tables=("orders",)),))
        >>> rights = policies.of("anna", ["staff"])
        >>> rights.may("select", "orders"), rights.may("select", "lines"), rights.may("insert", "orders")
        (True, False, False)
        """
        return Rights(policies=self, name=name, groups=tuple(sorted(groups)))


@frozen
class Masked:
    """What stands in the place of a column."""

    column: str
    value: str


@frozen(kw_only=True)
class Rights:
    """What one client may do. Names of tables are in lower case."""

    policies: Policies
    name: str
    groups: tuple[str, ...]

    @property
    def is_operator(self) -> bool:
        """Whether everything is allowed, and nothing filtered."""
        return self._is_among(self.policies.operators)

    def may(self, action: Action, table: str) -> bool:
        """Whether the action is granted, on a table that there is or is not."""
        return self.is_operator or any(
            action in grant.may and _names(grant.tables, table) and self._is_among(grant.to)
            for grant in self.policies.grants
        )

    def may_anything(self, table: str) -> bool:
        """Whether the table is any of the client's business."""
        return any(self.may(action, table) for action in ACTIONS)

    def require(self, action: Action, table: str) -> None:
        """Raise `SqlError` for what is not granted."""
        if not self.may(action, table):
            raise SqlError(
                f"the policies of this cluster do not let client '{self.name}' {action} table '{table}'"
            )

    def require_operator(self, what: str) -> None:
        """Raise `SqlError` for whoever is no operator."""
        if not self.is_operator:
            raise SqlError(f"{what} is for operators of the cluster, and client '{self.name}' is none")

    def filters(self, table: str) -> tuple[str, ...]:
        """The conditions that every row of the table has to fulfil that is shown."""
        return tuple(one.where for one in self._that_count(self.policies.rows, table))

    def masks(self, table: str) -> tuple[Masked, ...]:
        """What stands in the place of columns of the table; of several of one column the first counts."""
        found: dict[str, Masked] = {}
        for one in self._that_count(self.policies.masks, table):
            for column in one.columns:
                found.setdefault(column.lower(), Masked(column, one.value))
        return tuple(found.values())

    def is_protected(self, table: str) -> bool:
        """Whether the client does not see all of the table as it is."""
        return bool(self.filters(table) or self.masks(table))

    def require_whole(self, table: str, what: str) -> None:
        """Raise `SqlError` for what needs all of a table as it is, and the client does not see that."""
        if self.is_protected(table):
            raise SqlError(
                f"{what} is not done for client '{self.name}' with table '{table}': policies hide rows or values of it"
            )

    def _that_count(self, rules: Iterable[_Rule], table: str) -> Iterator[_Rule]:
        if not self.is_operator:
            yield from (one for one in rules if _names(one.tables, table) and not self._is_among(one.spares))

    def _is_among(self, those: Collection[str]) -> bool:
        return EVERYBODY in those or f"{USER}{self.name}" in those or any(one in those for one in self.groups)


def _names(tables: Collection[str], table: str) -> bool:
    """Whether a table, or that of which it is a snapshot, is among those."""
    return EVERY_TABLE in tables or scanned_name(table) in tables
