"""The broadcasts of one statement: small relations that are complete before the legs that read them start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from attrs import Factory, define, evolve

from ballista_py.sql.plan import Fragment, Leg, relation_bytes


class BroadcastTooLargeError(Exception):
    """A relation that was to be broadcast is larger than it was estimated; the statement is planned without."""


@define
class Broadcasts:
    """Those that are complete, by name, and how many bytes of them went out with legs."""

    tables: dict[str, pa.Table] = Factory(dict)
    sent_bytes: int = 0
    _encoded: dict[int, bytes] = Factory(dict)  # by the identity of the table

    def add(self, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, max_bytes: int) -> None:
        """Take in all rows of one. Raises `BroadcastTooLargeError` as soon as they weigh more than `max_bytes`."""
        kept, weight = [], 0
        for batch in batches:
            kept.append(batch)
            weight += batch.nbytes
            if weight > max_bytes:
                raise BroadcastTooLargeError(f"broadcast '{name}' has more than {max_bytes:,} bytes")
        self.tables[name] = pa.Table.from_batches(kept, schema)

    def repeat(self, name: str, other: str) -> None:
        """Let one be the same as another, which is complete."""
        self.tables[name] = self.tables[other]

    def of(self, names: Iterable[str]) -> dict[str, pa.Table]:
        """The relations of these names."""
        return {name: self.tables[name] for name in names}

    def schemas_of(self, fragment: Fragment) -> Mapping[str, pa.Schema]:
        """The columns of what a fragment reads beside its tables."""
        return {name: self.tables[name].schema for name in fragment.uses}

    def loaded(self, legs: Iterable[Leg], fragment: Fragment) -> list[Leg]:
        """The legs of a fragment with the relations that they read."""
        relations = {name: self._bytes_of(name) for name in fragment.uses}
        found = [evolve(leg, relations=relations) if relations else leg for leg in legs]
        self.sent_bytes += len(found) * sum(map(len, relations.values()))
        return found

    def _bytes_of(self, name: str) -> bytes:
        """One as it travels; some are read at the merge only and never do."""
        rows = self.tables[name]
        if id(rows) not in self._encoded:
            self._encoded[id(rows)] = relation_bytes(rows)
        return self._encoded[id(rows)]
