"""Which of the values that were given is meant by which parameter of a statement: one rule for every way in.

Values come as columns. Those of an object are called `$name`, so that it can be told from a list, whose columns drivers
call as they like (`0`, `1`, nothing at all); a driver that binds by name may leave out the `$`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ballista_py.errors import SqlError
from ballista_py.one_line import printable
from ballista_py.sql.own_words import meant

MARK = "$"
_MOST_NAMED = 5
_MOST_CHARS = 60


def marked(name: str) -> str:
    """What the column of a value is called that was given by this name.

    >>> marked("id"), marked("$id")
    ('$id', '$id')
    """
    return name if name.startswith(MARK) else MARK + name


def columns_of(names: Sequence[str], given: Sequence[str]) -> tuple[int, ...]:
    """The column for each of the statement's parameters, `names`, among those that were `given`, by what it is called.

    A statement whose parameters have names (`$id`) takes columns with exactly these names, each once, in any order; one
    with `?` or `$1` takes as many as it has, in their order, whatever a driver calls them, and none of an object.

    Raises `SqlError` that says which values are missing, surplus or there twice, and which name was probably meant.

    >>> columns_of(["id", "v"], ["$v", "$id"]), columns_of(["1", "2"], ["0", "1"])
    ((1, 0), (0, 1))
    >>> columns_of(["name"], ["$nmae"])
    Traceback (most recent call last):
    ballista_py.errors.SqlError: $name has no value; the statement has no parameter $nmae: did you mean '$name'?
    """
    if all(name.isdigit() for name in names):
        return _in_order(names, given)
    if not any(_is_name(one) for one in given):
        raise SqlError(
            f"the parameters of the statement have names: give values by name, for {_listed(names)}, not a list"
        )
    places = {one.removeprefix(MARK): place for place, one in enumerate(given)}
    twice = [name for name, times in Counter(one.removeprefix(MARK) for one in given).items() if times > 1]
    known = set(names)
    missing, surplus = (
        [name for name in names if name not in places],
        [name for name in places if name not in known],
    )
    if not (missing or surplus or twice):
        return tuple(places[name] for name in names)
    said = [f"{_listed(missing)} {'has' if len(missing) == 1 else 'have'} no value"] if missing else []
    said += [f"{_listed(twice)} {'was' if len(twice) == 1 else 'were'} given twice"] if twice else []
    if surplus:
        said.append(f"the statement has no parameter {_listed(surplus)}{_likely(surplus[0], missing or names)}")
    raise SqlError("; ".join(said))


def _in_order(names: Sequence[str], given: Sequence[str]) -> tuple[int, ...]:
    if any(one.startswith(MARK) for one in given):
        raise SqlError(
            f"the parameters of the statement have no names, so values for them are given in a list, in order: "
            f"{len(names)} of them"
        )
    if len(given) != len(names):
        raise SqlError(f"the statement has {len(names)} parameter(s), {len(given)} values were bound")
    return tuple(range(len(names)))


def _is_name(column: str) -> bool:
    return column.startswith(MARK) or not (column.isdigit() or not column)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    shown = [MARK + printable(name[:_MOST_CHARS]) for name in found[:_MOST_NAMED]]
    return ", ".join(shown) + (f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else "")


def _likely(name: str, known: Iterable[str]) -> str:
    return meant(MARK + name[:_MOST_CHARS], [MARK + one for one in known])


__all__ = ["columns_of", "marked"]
