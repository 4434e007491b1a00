"""The columns in which a leg or a statement is to answer."""

from __future__ import annotations

import base64
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.errors import BallistaError, InvalidData, SqlError
from ballista_py.partitions.columns import conformed
from ballista_py.transport.arrow.door import read_schema


def output_schema(command: Mapping[str, Any]) -> pa.Schema | None:
    """The columns in which a leg is to answer, if its command says so."""
    output = command.get("output")
    return None if output is None else read_schema(base64.b64decode(output))


def answered(
    batches: Iterator[pa.RecordBatch], given: pa.Schema, asked: pa.Schema, who: str
) -> Iterator[pa.RecordBatch]:
    """The rows of legs under the names and types of the answer; whoever gave others is named before one is seen.

    Raises `InvalidData`, from the first row on, where what was `given` is not what was `asked`.
    """
    require_asked(given, asked, who)
    rows = conformed(batches, asked)
    while True:
        try:
            batch = next(rows, None)
        except (pa.ArrowException, ValueError, TypeError) as error:
            if isinstance(error, BallistaError):
                raise
            raise not_asked(who) from None
        if batch is None:
            return
        yield batch


def require_asked(given: pa.Schema, asked: pa.Schema, who: str, *, named: bool = False) -> None:
    """Raise `InvalidData` unless the columns are as many and of such kinds as were asked for, whatever their widths.

    Where they are `named`, by whoever reads them, they have to have those names.
    """
    if (
        len(given) != len(asked)
        or (named and given.names != asked.names)
        or any(map(_differ, given.types, asked.types))
    ):
        raise not_asked(who)


def not_asked(who: str) -> InvalidData:
    """That somebody gave other columns than he was asked for."""
    return InvalidData(
        f"{who} answered with other columns than it was asked for: if it is of another release than its scheduler, "
        "bring both to one, else remove it from the cluster"
    )


def blamed(error: BaseException, looks: Iterable[tuple[pa.Schema, pa.Schema, str]]) -> BaseException:
    """Whose fault it is that a merge failed: of who gave other columns than were asked for, if anybody did.

    Only what is no error of a statement that runs, or one of names and types, can be because of columns.
    """
    if isinstance(error, BallistaError) and not isinstance(error, SqlError):
        return error
    differ = _differ if isinstance(error, SqlError) else operator.ne
    for given, asked, who in looks:
        if given.names != asked.names or any(map(differ, given.types, asked.types)):
            return not_asked(who)
    return error


_FAMILIES = {
    "number": (pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating),
    "truth": (pa.types.is_boolean,),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary),
    "bytes": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
    "time": (pa.types.is_temporal,),
    "list": (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    "struct": (pa.types.is_struct,),
    "map": (pa.types.is_map,),
}


def _differ(given: pa.DataType, asked: pa.DataType) -> bool:
    """Whether two types are surely of different kinds: engines differ in widths, and some types are known to few."""
    families = {
        family for kind in (given, asked) for family, tests in _FAMILIES.items() if any(t(kind) for t in tests)
    }
    return given != asked and len(families) > 1
