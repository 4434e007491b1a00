"""Which source a column name means, by the rules of DuckDB.

A name means a column of the block's sources first, then an alias of its SELECT list, then a column of an
enclosing block. Where a rule depends on more than that, `UnplannableError` is raised instead of guessing: the
whole statement then runs at the merge, where the engine itself resolves it.
"""

from __future__ import annotations

from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.sql.bind.query import Query, Source, UnplannableError, column, relation_names


@frozen(eq=False)
class Visible:
    """A source as a block sees it: by the name the statement gave it, with the columns it shows.

    `columns` maps lower-case names to real ones; a name that occurs twice means the first. `order` is what `*`
    gives. `hidden` are columns that a USING folded into their left counterpart.
    """

    name: str
    source: Source
    columns: dict[str, str]
    order: tuple[str, ...]
    hidden: frozenset[str] = frozenset()


def visible(name: str, source: Source, shown: tuple[str, ...] | None = None) -> Visible:
    """`source` under `name`; `shown` are the column aliases of the FROM item, if it has some."""
    real = relation_names(source.relation)
    if shown is not None and len(shown) > len(real):
        raise UnplannableError(f"table '{name}' has more column aliases than columns")
    labels = (*(shown or ()), *real[len(shown or ()) :])
    columns: dict[str, str] = {}
    for label, column_name in zip(labels, real, strict=True):
        columns.setdefault(label.lower(), column_name)
    return Visible(name=name.lower(), source=source, columns=columns, order=real)


@define(eq=False)
class CommonTable:
    """A common table expression in scope. `uses` counts what is still to come of its references."""

    name: str
    query: Query
    uses: int


@define(eq=False)
class Scope:
    """The names that one block sees. `labels` are the aliases of its SELECT list, as far as they are known."""

    parent: Scope | None = None
    common: dict[str, CommonTable] = Factory(dict)
    sources: list[Visible] = Factory(list)
    labels: set[str] = Factory(set)

    def common_table(self, name: str) -> CommonTable | None:
        """The nearest common table expression of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.common:
                return scope.common[name]
            scope = scope.parent
        return None

    def own(self, name: str, table: str | None) -> exp.Column | None:
        """The column of this block that a name means, if any."""
        found: exp.Column | None = None
        for seen in self.sources:
            if table is not None and seen.name != table:
                continue
            real = seen.columns.get(name)
            if real is None or (table is None and name in seen.hidden):
                continue
            if found is not None:
                raise UnplannableError(f"column name '{name}' is ambiguous")
            found = column(seen.source.alias, real)
        return found

    def outer(self, name: str, table: str | None) -> exp.Column | None:
        """The column of the nearest enclosing block that a name means, if any."""
        scope = self.parent
        while scope is not None:
            found = scope.own(name, table)
            if found is not None:
                return found
            if table is None and name in scope.labels:
                raise UnplannableError(f"alias '{name}' of an enclosing block")
            if table is not None and any(seen.name == table for seen in scope.sources):
                return None
            scope = scope.parent
        return None
