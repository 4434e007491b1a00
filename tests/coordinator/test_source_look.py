"""What a source of local files shows: the same text again only while nothing at all happened to them."""

import os
import time

import pytest
from attrs import frozen

from ballista_py.coordinator.refreshes.source_look import look_at
from ballista_py.runtime import SystemRuntime


@frozen
class Later:
    """The clock of this machine, a while from now: what was touched just now was touched long ago."""

    def wall_ms(self) -> int:
        return int(time.time() * 1e3) + 60_000


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.parquet").write_text("c")
    return tmp_path


def test_nothing_happened_and_it_shows_the_same(folder):
    first = look_at(str(folder), Later())
    assert first
    assert look_at({"format": "parquet", "path": f"file://{folder}"}, Later()) == first
    assert look_at(str(folder / "*.parquet"), Later()) == first


def rewritten(folder):
    path = folder / "a.parquet"
    before = path.stat()
    path.write_text("x")  # as long as it was
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # and as old


def came_and_went(folder):
    (folder / "sub" / "d.parquet").write_text("d")
    (folder / "sub" / "d.parquet").unlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "d.parquet").write_text("d"),
        lambda folder: (folder / "b.parquet").unlink(),
        lambda folder: (folder / "b.parquet").rename(folder / "sub" / "b.parquet"),
        lambda folder: os.replace(folder / "b.parquet", folder / "a.parquet"),
        rewritten,
        came_and_went,
    ],
)
def test_whatever_happens_to_a_file_it_shows_another_text(folder, change):
    before = look_at(str(folder), Later())
    time.sleep(0.05)  # beyond one tick of the file system's clock
    change(folder)
    assert look_at(str(folder), Later()) not in ("", before)


def test_what_was_touched_a_moment_ago_may_be_written_once_more(folder):
    assert look_at(str(folder), SystemRuntime()) == ""


@pytest.mark.parametrize(
    "source", ["s3://bucket/events", "/no/such/place", {"format": "jdbc", "url": "jdbc:postgresql://db/x"}]
)
def test_what_cannot_be_told_without_reading_gives_nothing(source):
    assert look_at(source, Later()) == ""
