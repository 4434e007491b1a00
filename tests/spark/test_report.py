"""What a run reports about partitions that came out far too large. No Spark is needed for that."""

from __future__ import annotations

from ballista_py.spark.report import MaterializeReport, WrittenPartition

MB = 1_000_000


def report(**sizes: int) -> MaterializeReport:
    partitions = {
        (None if name == "null" else name,): WrittenPartition(rows=size // 100, bytes=size, files=1)
        for name, size in sizes.items()
    }
    return MaterializeReport(table="events", run_id="r", partitions=partitions)


def test_partitions_far_above_the_mean_of_the_others_are_named_with_their_size():
    found = report(eu=900 * MB, us=100 * MB, null=500 * MB, asia=50 * MB, mars=50 * MB)
    assert [part.value for part in found.skewed(factor=1.7)] == [("eu",), (None,)]
    (worst,) = found.skewed()
    assert (worst.rows, worst.bytes, worst.times_the_mean) == (9 * MB, 900 * MB, 900 / 175)
    assert found.skew_text() == (
        "table 'events': partition (eu) holds 9,000,000 rows in 900.0 MB, 5.1 times the mean of the others. "
        "Take a key that spreads the rows, such as bucket(N, column)"
    )
    assert "(null) holds" in str(found.skewed(1.7)[1])


def test_even_small_and_single_partitions_are_no_skew():
    assert report(eu=100 * MB, us=90 * MB).skew_text() is None
    assert report(eu=3 * MB, us=0, asia=0).skewed() == ()
    assert report(eu=3 * MB, us=0, asia=0).skewed(min_bytes=MB)[0].value == ("eu",)
    assert report(eu=900 * MB).skewed() == ()
    assert report().skewed() == ()


def test_of_many_large_partitions_a_few_are_named():
    sizes = {f"big{n}": 500 * MB for n in range(7)} | {f"small{n}": MB for n in range(100)}
    text = report(**sizes).skew_text()
    assert text is not None
    assert text.count("holds") == 5
    assert "and 2 more" in text
