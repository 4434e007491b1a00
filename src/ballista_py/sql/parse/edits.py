"""Texts with pieces exchanged, and which place of the text before a place of the new one is; pure."""

from __future__ import annotations

from collections.abc import Iterable

Edit = tuple[int, int, str]
"""From which character up to which one another text stands."""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with those pieces in their places, of which none meets another.

    >>> edited("values (1, default)", [(11, 18, "7"), (8, 8, "+")])
    'values (+1, 7)'
    """
    for start, end, piece in sorted(edits, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


def place_before(text: str, edits: Iterable[Edit], line: int, column: int) -> tuple[int, int] | None:
    """Line and column, from 1, that a place of the edited text has in the text; None for a place that it has not.

    A place inside of a new piece is where that piece was put.

    >>> edits = [(8, 8, "cast("), (9, 9, " as INT)"), (13, 13, "cast("), (14, 14, " as INT)")]
    >>> edited("values (a),\\n(b)", edits)
    'values (cast(a as INT)),\\n(cast(b as INT))'
    >>> place_before("values (a),\\n(b)", edits, 1, 14), place_before("values (a),\\n(b)", edits, 2, 7)
    ((1, 9), (2, 2))
    """
    made = edited(text, edits)
    lines = made.split("\n")
    if not (1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1):
        return None
    place, grown = sum(len(one) + 1 for one in lines[: line - 1]) + column - 1, 0
    for start, end, piece in sorted(edits):
        if place < start + grown:
            break
        if place < start + grown + len(piece):
            place, grown = start, 0
            break
        grown += len(piece) - (end - start)
    before = text[: place - grown]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
