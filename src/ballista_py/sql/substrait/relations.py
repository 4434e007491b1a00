"""The relations of a plan as blocks, from the table upwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.blocks import Block, chosen, opened, wrapped
from ballista_py.sql.substrait.expressions import FieldReader
from ballista_py.sql.substrait.messages import Declared, unset
from ballista_py.sql.substrait.reads import TableRead, read_of
from ballista_py.sql.substrait.text_functions import literal_whole

_MOST_ROWS = (1 << 63) - 1
_TAKEN = "read, filter, project, aggregate, sort, fetch and window"


@frozen(eq=False)
class Relations:
    """What makes blocks of the relations of one plan over tables with these columns."""

    functions: Mapping[int, Declared]
    schemas: Mapping[str, pa.Schema]

    def block(self, message: Any) -> tuple[Block, TableRead]:
        """The block of a relation, and what is read below it.

        Raises `UnsupportedExpression` for a relation that is not taken, and `InvalidData` for what cannot be.
        """
        waiting: list[tuple[str, Any]] = []
        while True:
            kind = message.WhichOneof("rel_type")
            if kind is None:
                raise unset("a relation")
            said = getattr(message, kind)
            if kind == "read":
                break
            if kind not in _ABOVE:
                raise UnsupportedExpression(
                    f"a relation '{kind}' is not taken: possible are {_TAKEN} over one table"
                )
            if not said.HasField("input"):
                raise unset(f"what a relation '{kind}' is over")
            waiting.append((kind, said))
            message = said.input
        read = read_of(said, self.schemas)
        block = self._read(said, read)
        for kind, one in reversed(waiting):
            block = _ABOVE[kind](self, block, one)
        return block, read

    def _read(self, said: Any, read: TableRead) -> Block:
        reader = FieldReader(self.functions, read.base)
        where = tuple(
            reader.condition(getattr(said, name))
            for name in ("filter", "best_effort_filter")
            if said.HasField(name)
        )
        columns = tuple(read.base[place] for place in read.places)
        return _emitted(Block(source=read.table, level=0, columns=columns, where=where), said)

    def _reader(self, block: Block) -> FieldReader:
        return FieldReader(self.functions, block.columns)

    def _filter(self, block: Block, said: Any) -> Block:
        if not said.HasField("condition"):
            raise unset("a condition")
        block = opened(block)
        condition = self._reader(block).condition(said.condition)
        return _emitted(attrs.evolve(block, where=(*block.where, condition)), said)

    def _project(self, block: Block, said: Any) -> Block:
        width = len(block.columns) + len(said.expressions)
        emitted = _mapping(said, width)
        reader = self._reader(block)
        plain = [reader.plain_place(one) for one in said.expressions]
        places = [*range(len(block.columns)), *plain]
        asked = [places[place] for place in emitted]
        if all(place is not None and place < len(block.columns) for place in asked):
            return chosen(block, [place for place in asked if place is not None])
        block = opened(block)
        reader = self._reader(block)
        columns = (*block.columns, *(reader.value(one) for one in said.expressions))
        return chosen(attrs.evolve(block, columns=columns), emitted)

    def _aggregate(self, block: Block, said: Any) -> Block:
        if len(said.groupings) > 1:
            raise UnsupportedExpression("several grouping sets are not taken: send a plan for each of them")
        block = opened(block)
        reader = self._reader(block)
        keys = [reader.value(one) for one in _grouping(said)]
        measures = [reader.measure(one) for one in said.measures]
        if not (keys or measures):
            raise unset("the keys and measures of an aggregate")
        groups = tuple(key.tree for key in keys)
        made = Block(
            source=block.source, level=block.level, columns=(*keys, *measures), where=block.where, groups=groups
        )
        return _emitted(made, said)

    def _sort(self, block: Block, said: Any) -> Block:
        reader = self._reader(block)
        plain = all(reader.plain_place(one.expr) is not None for one in said.sorts)
        if block.cut or not (plain or block.plain):
            block = wrapped(block)
        return _emitted(attrs.evolve(block, order=self._reader(block).keys(said.sorts)), said)

    def _fetch(self, block: Block, said: Any) -> Block:
        offset = self._rows(said, "offset", 0)
        count = self._rows(said, "count", -1)
        if block.cut:
            block = wrapped(block)
        return _emitted(attrs.evolve(block, offset=offset, limit=None if count < 0 else count), said)

    def _rows(self, said: Any, name: str, unsaid: int) -> int:
        mode = said.WhichOneof(f"{name}_mode")
        if mode is None:
            return unsaid
        found = getattr(said, mode)
        if mode == f"{name}_expr":
            tree = FieldReader(self.functions, ()).value(found).tree
            if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Null):
                return unsaid
            whole = literal_whole(tree)
            if whole is None:
                raise UnsupportedExpression(f"a fetch takes its {name} as a number of the plan")
            found = whole
        if found < (0 if mode.endswith("_expr") else unsaid) or found > _MOST_ROWS:
            raise InvalidData(f"the plan is malformed: a fetch has no {name} of {found}")
        return int(found)

    def _window(self, block: Block, said: Any) -> Block:
        block = opened(block)
        reader = self._reader(block)
        found = tuple(reader.window(one, said.partition_expressions, said.sorts) for one in said.window_functions)
        return _emitted(attrs.evolve(block, columns=(*block.columns, *found)), said)


_ABOVE = {
    "filter": Relations._filter,
    "project": Relations._project,
    "aggregate": Relations._aggregate,
    "sort": Relations._sort,
    "fetch": Relations._fetch,
    "window": Relations._window,
}


def _grouping(said: Any) -> Sequence[Any]:
    """The keys of an aggregate: by their places among those of the relation, or, as it was before, in its grouping.

    Whoever writes for readers of both says them twice.
    """
    if not said.groupings:
        return ()
    one = said.groupings[0]
    if not one.expression_references:
        return list(one.grouping_expressions)
    if one.grouping_expressions and len(one.grouping_expressions) != len(one.expression_references):
        raise InvalidData("the plan is malformed: the keys of a grouping are said twice, and differ")
    if any(place >= len(said.grouping_expressions) for place in one.expression_references):
        raise InvalidData("the plan is malformed: a grouping has a key that is not there")
    return [said.grouping_expressions[place] for place in one.expression_references]


def _mapping(said: Any, width: int) -> Sequence[int]:
    """Which fields a relation gives, by their places."""
    if not said.HasField("common") or said.common.WhichOneof("emit_kind") != "emit":
        return range(width)
    places = said.common.emit.output_mapping
    if any(not 0 <= place < width for place in places):
        raise InvalidData(f"the plan is malformed: a relation gives a field that is not among its {width}")
    return list(places)


def _emitted(block: Block, said: Any) -> Block:
    places = _mapping(said, len(block.columns))
    return block if isinstance(places, range) else chosen(block, places)
