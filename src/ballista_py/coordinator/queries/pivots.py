"""Which values a PIVOT without IN is for: they are asked first, as of the statements that the PIVOT itself will see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.queries.running_statement import RunningStatement
from ballista_py.errors import SqlError
from ballista_py.sql.own_words import own_places, without_position
from ballista_py.sql.parse.changes import Change, read_change
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.pivots import MAX_PIVOTS, MAX_VALUES, NOBODY, OVERTAKEN, mentions_pivot, open_pivot


def with_values(statement: str, run: Callable[[str], RunningStatement]) -> str:
    """The statement with the values of each PIVOT written out. Raises `SqlError`, and what running a query raises."""
    for _ in range(MAX_PIVOTS + 1):
        found = open_pivot(statement)
        if found is None:
            return statement
        statement = found.closed([_values(query, run) for query in found.asked])
    raise SqlError("the values of a PIVOT in the statement cannot be told: say with IN which they are")


@contextmanager
def in_words_of(statement: str, text: str) -> Iterator[None]:
    """Errors of `text`, which has the values, have no places and words in them that the user did not write."""
    try:
        with own_places(statement, text):
            yield
    except SqlError as error:
        if NOBODY in text and "empty set of columns" in error.message:
            raise SqlError("PIVOT gives no column here: there is no value, and nothing to group by") from None
        raise


def begun(running: RunningStatement) -> RunningStatement | None:
    """The statement, of which all rows of the tables were looked at; None if one of them has a value not asked for.

    Raises what its rows raise.
    """
    batches = running.batches()
    try:
        first = next(batches, None)
    except SqlError as error:
        if OVERTAKEN not in error.message:
            raise
        return None
    head: Iterator[pa.RecordBatch] = iter(() if first is None else (first,))
    return evolve(running, batches=chain(head, batches))


def change_of(statement: str) -> Change | None:
    """As `read_change`, of a statement whose query may have a PIVOT without IN, which is told when it is run.

    Raises `SqlError` for one in a statement that is no plain INSERT and no CREATE TABLE AS.
    """
    if not mentions_pivot(statement) or open_pivot(statement) is None:
        return read_change(statement)
    shaped = _left_out(statement)
    change = read_change(shaped)
    told = isinstance(change, CreateTable) or (isinstance(change, Insert) and change.whole is None)
    if not told or not isinstance(change, CreateTable | Insert) or change.query is None:
        raise SqlError(
            "PIVOT without IN can stand in a query, in INSERT without ON CONFLICT and RETURNING, and in CREATE TABLE "
            "AS: say with IN which values become columns"
        )
    start = len(change.query) - len(change.query.lstrip())
    return evolve(change, query=change.query[:start] + statement[start:])


def text_for_parser(statement: str) -> str:
    """The statement as the engine's parser takes it for one, which a PIVOT without IN is not."""
    return _left_out(statement) if mentions_pivot(statement) else statement


def _left_out(statement: str) -> str:
    for _ in range(MAX_PIVOTS + 1):
        found = open_pivot(statement)
        if found is None:
            break
        statement = found.left_out
    return statement


def _values(query: str, run: Callable[[str], RunningStatement]) -> list[str]:
    try:
        running = run(query)
        found: list[str] = []
        try:
            for batch in running.batches():
                found += batch.column(0).to_pylist()
                if len(found) > MAX_VALUES:
                    break
        finally:
            running.cancel()
    except SqlError as error:  # its place is one in a text that nobody wrote
        raise without_position(error) from None
    return found
