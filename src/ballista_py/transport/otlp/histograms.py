"""Exponential histograms with their buckets written out: pure.

Bucket `i` of such a histogram holds values above base**i and up to base**(i+1), where base is 2**(2**-scale); negative
values lie the other way round, and what is near 0 has a bucket of its own.
"""

from __future__ import annotations

from typing import Any

from ballista_py.errors import InvalidData

MAX_BUCKETS = 1_024
_SCALES = range(-10, 21)  # what exporters may use
_LARGEST = 1_024.0  # a power of two beyond this is no number any more


def explicit(point: Any, name: str) -> tuple[list[float], list[int]]:
    """Ascending bounds of a point of the exponential histogram `name`, and the counts between and around them.

    Empty for a point that counted nothing. Raises `InvalidData` for what no exporter sends.
    """
    positive, negative = list(point.positive.bucket_counts), list(point.negative.bucket_counts)
    if len(positive) + len(negative) > MAX_BUCKETS:
        raise InvalidData(f"a point of histogram '{name}' has more than {MAX_BUCKETS:,} buckets")
    if point.scale not in _SCALES:
        raise InvalidData(f"a point of histogram '{name}' has the scale {point.scale}, which is none")
    if not (positive or negative or point.zero_count):
        return [], []
    below = [-bound for bound in reversed(_edges(point.scale, point.negative.offset, len(negative), name))]
    above = _edges(point.scale, point.positive.offset, len(positive), name)
    before = [0, *reversed(negative)] if negative else []
    after = [*positive, 0] if positive else []
    return below + above, [*before, point.zero_count, *after]  # between the two sides lies what is near 0


def _edges(scale: int, offset: int, buckets: int, name: str) -> list[float]:
    """The bounds of so many buckets, ascending; none of no bucket."""
    if not buckets:
        return []
    powers = [(offset + place) * 2.0**-scale for place in range(buckets + 1)]
    if max(map(abs, powers)) > _LARGEST:
        raise InvalidData(f"a point of histogram '{name}' has a bucket of numbers that there are not")
    return [2.0**power if power < _LARGEST else float("inf") for power in powers]
