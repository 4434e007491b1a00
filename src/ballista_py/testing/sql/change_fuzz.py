"""Compare random changes of partitioned tables with one node, for as long as one likes.

python -m ballista_py.testing.sql.change_fuzz --statements 10000 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import attrs
import pyarrow as pa

from ballista_py.errors import BallistaError, MergeTooLarge, SqlError
from ballista_py.runtime import seeded_chance
from ballista_py.testing.sql.changes import CHANGED, change_statement
from ballista_py.testing.sql.single_node import InProcessCluster, PartitionBy

# By table, and whether `id` is its primary key.
LAYOUTS: Sequence[tuple[dict[str, PartitionBy], bool]] = (
    ({"t": "bucket(4, id)", "u": "region"}, False),
    ({"t": ["region", "d"], "u": None}, False),
    ({"t": "truncate(id, 4)", "u": "bucket(3, s)"}, False),
    ({"t": None, "u": "year(d)"}, False),
    ({"t": "bucket(4, id)", "u": "truncate(id, 3)"}, True),
    ({"t": "id", "u": None}, True),
)
MAX_ROWS = 400


@attrs.frozen
class Counted:
    """What a run compared: statements that one node took, and those that it refused."""

    compared: int = 0
    refused: int = 0


def compare_changes(seed: int, statements: int, note: Callable[[str], None] = lambda _text: None) -> Counted:
    """Compare so many statements, on the layout of the seed. Raises `AssertionError` at the first that differs."""
    chance, found = seeded_chance(seed), Counted()
    layout, keyed = LAYOUTS[seed % len(LAYOUTS)]
    with InProcessCluster(executors=3) as cluster:

        def put(name: str, rows: pa.Table) -> None:
            schema = pa.schema([f.with_nullable(not (keyed and f.name == "id")) for f in CHANGED])
            key = ("id",) if keyed else ()
            cluster.add(name, rows.cast(schema), layout[name], primary_key=key)

        for name in layout:
            put(name, CHANGED.empty_table())
        for number in range(statements):
            statement = change_statement(chance, keyed=keyed)
            table = "t" if _changes(statement, "t") else "u"
            note(statement)
            try:
                rows = cluster.check_change(statement)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, statement {number}: {error}") from error
            except (SqlError, MergeTooLarge, BallistaError, pa.ArrowException):
                found = attrs.evolve(found, refused=found.refused + 1)
                continue
            found = attrs.evolve(found, compared=found.compared + 1)
            put(table, rows if rows.num_rows <= MAX_ROWS else rows.slice(0, MAX_ROWS // 2))
    return found


def _changes(statement: str, table: str) -> bool:
    words = statement.replace("\n", " ").split()
    place = next(
        n
        for n, word in enumerate(words)
        if word in ("update", "from", "truncate", "into") and words[n - 1] != "do"
    )
    return words[place + 1] == table


def main() -> None:
    """Print how many were compared, or the first that differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=200)
    given = parser.parse_args()
    compared = refused = wrong = 0
    for seed in range(given.seed, given.seed + max(1, given.statements // given.each)):
        try:
            found = compare_changes(seed, given.each)
            compared, refused = compared + found.compared, refused + found.refused
        except AssertionError as error:
            wrong += 1
            print(error)
    print(f"{compared} changes compared, {refused} refused by one node, {wrong} of the seeds differ")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
