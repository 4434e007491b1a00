"""What a materialized view must be before it is made, and what its query reads; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from attrs import frozen
from sqlglot.tokenizer_core import TokenType

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.written_views import ReadsNames, all_read, cycle_of
from ballista_py.coordinator.tables.follows import BY_CHANCE
from ballista_py.engines.engine import Engine
from ballista_py.errors import ConfigError, PartitionKeysMissing, SqlError
from ballista_py.partitions.refresh import Refresh
from ballista_py.partitions.sql_view import MAX_VIEW_CHARS
from ballista_py.partitions.table import TableSpec, no_keys_of_view
from ballista_py.sql.bind.now import OF_THE_MOMENT, WORDS_OF_THE_MOMENT
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.sql.parse.parsing import tokenized
from ballista_py.sql.parse.table_references import table_references

_SAMPLED = ("using", "sample")
BY_ITSELF = Refresh(every="10s")  # of a view that says nothing else: when a table that it reads has changed


@frozen
class _Query:
    reads: tuple[str, ...]


def query_of(change: CreateTable, engine: Engine) -> str:
    """The query of a materialized view. Raises `ConfigError` and `SqlError` for what no such view can be."""
    name, query = change.table, (change.query or "").strip().rstrip(";").rstrip()
    if change.columns is not None or not query:
        raise SqlError(f"materialized view '{name}' takes its columns from its query: say AS and the query alone")
    if not change.partition_by:
        raise PartitionKeysMissing(f"{no_keys_of_view(name)}: PARTITIONED BY (…) before AS", table=name)
    if statement_kind(query) != "query":
        raise SqlError(f"materialized view '{name}' is to be of a query of tables and views")
    if len(query) > MAX_VIEW_CHARS:
        raise SqlError(
            f"the query of materialized view '{name}' has {len(query):,} characters: {MAX_VIEW_CHARS:,} are the most"
        )
    if engine.parameters(query):
        raise SqlError(f"materialized view '{name}' has a parameter in its query: write a value")
    if change.refresh is None and changes_by_itself([query]):
        raise ConfigError(
            f"materialized view '{name}' has other rows at another time, whatever its tables hold: say how often it is "
            "to be made anew, WITH (refresh_check_interval = '5m')"
        )
    return query


def changes_by_itself(texts: Iterable[str]) -> bool:
    """Whether queries of these texts may give other rows of the same tables, by the time of their run or by chance.

    >>> changes_by_itself(["select age from t"]), changes_by_itself(["select age(at) from t"])
    (False, True)
    """
    for text in texts:
        tokens = tokenized(text)
        for token, behind in zip_longest(tokens, tokens[1:]):
            word, next_word = token.text.lower(), "" if behind is None else behind.text.lower()
            is_name = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
            if not is_name and (word in ("tablesample", *WORDS_OF_THE_MOMENT) or (word, next_word) == _SAMPLED):
                return True
            if next_word == "(" and word in OF_THE_MOMENT | BY_CHANCE:
                return True
    return False


def require_other_reads(name: str, query: str, view: ClusterView) -> None:
    """Raise `SqlError` for a materialized view that would read itself, also through views and others of its kind."""
    kept: dict[str, ReadsNames] = {
        table.name: _Query(reads_of(table.query)) for table in view.catalog.tables.values() if table.query
    }
    known: dict[str, ReadsNames] = {**view.sql_views, **kept}
    way = cycle_of(name, reads_of(query), known)
    if way is not None:
        raise SqlError(f"materialized view '{name}' would read itself: {' reads '.join(way)}")


def reads_of(query: str) -> tuple[str, ...]:
    """The names of tables and views in a query."""
    return tuple(dict.fromkeys(found.name for found in table_references(tokenized(query))))


def tables_read(query: str, view: ClusterView) -> Mapping[str, TableSpec | None]:
    """The tables that a query reads, through views, too; None for one that is not there."""
    names = all_read(reads_of(query), view.sql_views) - view.sql_views.keys()
    return {name: view.catalog.tables.get(name) for name in sorted(names)}
