"""A folder of plain files: its tables, what is refused by name, and that one version of a file is read or none."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.coordinator.reads.plain_reads import filled
from ballista_py.errors import (
    ConfigError,
    DocumentUnreadable,
    SchemaMismatch,
    SnapshotGone,
    StoreUnavailable,
    TryLater,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.plain.folders import LocalFolder, PlainFile, open_folder
from ballista_py.storage.plain.footers import PlainFiles, PlainSection, PlainShape, sections_of
from ballista_py.storage.plain.tables import tables_of

ROWS = pa.table({"id": range(100), "word": [f"w{n % 3}" for n in range(100)]})


def write(path, rows=ROWS, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    fixed = {
        "use_dictionary": False,
        "compression": "none",
        "write_statistics": False,
    }  # other rows, as many bytes
    pq.write_table(rows, path, **fixed, **options)
    return path


def named(*paths: str, odd: str = "") -> list[PlainFile]:
    return [PlainFile(path=path, size=1, version="1", odd=odd) for path in paths]


@pytest.fixture
def files(tmp_path):
    return PlainFiles(LocalFolder(str(tmp_path), SystemRuntime()), SystemRuntime())


def settled() -> None:
    """Let times of files that were written just now be past."""
    time.sleep(0.06)


def whole(files: PlainFiles, file: PlainFile) -> PlainSection:
    (found,) = sections_of(file, files.shape(file), 1 << 60)
    return found


def test_folders_and_files_beside_them_are_tables():
    found = tables_of(
        named(
            "Orders/2024/a.parquet",
            "Orders/b.parquet",
            "small.parquet",
            "notes.txt",
            "Orders/read.me",
            "empty/x.csv",
        )
    )
    assert {name: [file.path for file in files] for name, files in found.files.items()} == {
        "orders": ["Orders/2024/a.parquet", "Orders/b.parquet"],
        "small": ["small.parquet"],
    }
    assert not found.refused
    assert found.prefixes["orders"] == "Orders/"


def test_what_is_hidden_is_not_looked_at():
    hidden = named("t/_SUCCESS", "t/_temporary/0/a.parquet", "t/.a.parquet.crc", ".x/a.parquet", "_y.parquet")
    assert list(tables_of([*hidden, *named("t/a.parquet")]).files["t"]) == named("t/a.parquet")
    assert set(tables_of(hidden).files) == set()


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["t/_delta_log/0.json", "t/a.parquet"], "Delta"),
        (["t/.hoodie/x", "t/a.parquet"], "Hudi"),
        (["t/metadata/v1.metadata.json", "t/data/a.parquet"], "Iceberg"),
        (["t/day=1/a.parquet"], "'t/day=1/a.parquet' has a value of a column"),
        (["t/a.parquet", "T/b.parquet"], "'T/' and 't/' would both be called so"),
        (["t/a.parquet", "t.parquet"], "'t.parquet' and 't/' would both be called so"),
    ],
)
def test_what_means_more_than_its_rows_is_refused_by_name(paths, said):
    found = tables_of(named(*paths, "other.parquet"))
    assert set(found.files) == {"other"}
    assert said in found.refused["t"]


def test_a_table_with_a_file_that_cannot_be_read_is_none():
    found = tables_of([*named("t/a.parquet"), *named("t/b.parquet", odd="no regular file")])
    assert "'t/b.parquet' is no regular file" in found.refused["t"]
    assert tables_of(named("a!b/x.parquet")).refused.keys() == {"a!b"}


def test_links_pipes_and_names_that_are_no_text_are_told_apart(tmp_path, files):
    write(tmp_path / "t" / "a.parquet")
    (tmp_path / "t" / "nowhere.parquet").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "t" / "pipe.parquet")
    with open(os.fsencode(tmp_path / "t") + b"/\xff.parquet", "wb"):
        pass
    (tmp_path / "linked").symlink_to(tmp_path / "t")
    settled()
    odd = {file.path.rpartition("/")[2]: file.odd for file in files.folder.files()}
    assert odd.pop("a.parquet") == ""
    assert odd == {
        "nowhere.parquet": "a link to nowhere",
        "pipe.parquet": "no regular file",
        "\udcff.parquet": "a name that cannot be used",
        "linked": "no regular file",
    }


def test_only_what_lies_below_a_prefix_is_listed(tmp_path, files):
    for name in ("t/a.parquet", "t/deep/b.parquet", "tt/c.parquet", "t.parquet"):
        write(tmp_path / name)
    settled()
    assert [file.path for file in files.folder.files("t/")] == ["t/a.parquet", "t/deep/b.parquet"]
    assert [file.path for file in files.folder.files("t.parquet")] == ["t.parquet"]


def test_rows_are_those_of_the_file(tmp_path, files):
    write(tmp_path / "t" / "a.parquet", row_group_size=30)
    settled()
    (file,) = files.folder.files()
    shape = files.shape(file)
    assert [rows for rows, _ in shape.groups] == [30, 30, 30, 10]
    found = [batch for one in sections_of(file, shape, 1) for batch in files.batches(one, shape.schema)]
    assert pa.Table.from_batches(found).equals(ROWS)
    one = pa.schema([shape.schema.field("word")])
    assert pa.Table.from_batches(files.batches(whole(files, file), one)).equals(ROWS.select(["word"]))


def overwrite_in_place(path):
    """Other rows in the same file, of the same size, with the times that it had."""
    before = path.stat()
    data = path.read_bytes()
    other = path.with_suffix(".other")
    groups = pq.read_metadata(path).num_row_groups
    write(other, pa.table({"id": range(100, 200), "word": ROWS["word"]}), row_group_size=100 // groups)
    changed = other.read_bytes()
    assert len(changed) == len(data)
    with path.open("r+b") as file:
        file.write(changed)
    other.unlink()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path):
    write(path.with_suffix(".new"), ROWS.slice(1))
    path.with_suffix(".new").rename(path)


def cut(path):
    os.truncate(path, 50)


@pytest.mark.parametrize("change", [overwrite_in_place, replace, cut, lambda path: path.unlink()])
def test_a_changed_file_is_never_read(tmp_path, files, change):
    path = write(tmp_path / "t.parquet")
    settled()
    (file,) = files.folder.files()
    section = whole(files, file)
    change(path)
    with pytest.raises(SnapshotGone, match=r"'t.parquet' was changed or removed"):
        list(files.batches(section, files.shape(file).schema))
    with pytest.raises(SnapshotGone):
        PlainFiles(files.folder, SystemRuntime()).shape(file)


@pytest.mark.parametrize("change", [overwrite_in_place, cut])
def test_a_file_that_changes_while_it_is_read_gives_no_row_of_after_that(tmp_path, files, change):
    path = write(tmp_path / "t.parquet", row_group_size=10)
    settled()
    (file,) = files.folder.files()
    batches = files.batches(whole(files, file), files.shape(file).schema)
    seen = [next(batches), next(batches)]
    change(path)
    with pytest.raises(SnapshotGone):  # noqa: PT012  # what came before is looked at, too
        for batch in batches:
            seen.append(batch)  # noqa: PERF402
    assert pa.Table.from_batches(seen).equals(ROWS.slice(0, 20))


def test_a_file_that_is_being_written_is_waited_for(tmp_path, files):
    """Else it could change within one step of the clock that its times are counted in, and look the same."""
    old = write(tmp_path / "old.parquet")
    os.utime(old, (4e9, 4e9))  # as if it were of the year 2096
    settled()
    path = write(tmp_path / "t.parquet")
    started = time.monotonic()
    _, file = files.folder.files()
    assert time.monotonic() - started > 0.04
    assert path.stat().st_ctime_ns / 1e9 < time.time() - 0.04
    assert file.size == path.stat().st_size


def test_a_folder_that_is_never_still_is_told(tmp_path):
    path = write(tmp_path / "t.parquet")

    class Touched(SystemRuntime):
        """Whenever somebody waits, the file is changed; now is when that was."""

        looks = 0

        def wall_ms(self) -> int:
            return path.stat().st_ctime_ns // 1_000_000

        def sleep_ms(self, duration_ms: float) -> None:
            self.looks += 1
            path.write_bytes(b"x")

    runtime = Touched()
    with pytest.raises(TryLater, match="being changed all the time"):
        LocalFolder(str(tmp_path), runtime).files()
    assert runtime.looks > 9


def test_damaged_files_are_named(tmp_path, files):
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    (tmp_path / "b.parquet").write_bytes(b"")
    settled()
    for file in files.folder.files():
        with pytest.raises(DocumentUnreadable, match=file.path):
            files.shape(file)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ROWS.select(["id"]), "no column 'word'"),
        (ROWS.append_column("more", ROWS["id"]), "a column 'more', which others have not"),
        (ROWS.set_column(0, "id", ROWS["word"]), "its column 'id' is string, where others have int64"),
        (
            pa.table([ROWS["id"], ROWS["word"], ROWS["id"]], names=["id", "word", "ID"]),
            "two columns named 'id' and 'ID'",
        ),
    ],
)
def test_files_of_a_table_have_the_same_columns_or_are_named(tmp_path, files, other, said):
    write(tmp_path / "t" / "b.parquet", other)
    settled()
    (file,) = files.folder.files()
    with pytest.raises(SchemaMismatch, match=said):
        files.fits(file, ROWS.schema)


def test_columns_in_another_order_or_as_dictionaries_are_the_same(tmp_path, files):
    other = pa.table({"word": ROWS["word"].dictionary_encode(), "id": ROWS["id"]})
    write(tmp_path / "t" / "b.parquet", other)
    settled()
    (file,) = files.folder.files()
    files.fits(file, ROWS.schema)
    assert pa.Table.from_batches(files.batches(whole(files, file), ROWS.schema)).equals(ROWS)


@pytest.mark.parametrize("location", ["relative/path", "gs://bucket/x", "memory://x", "file://relative", ""])
def test_what_cannot_be_served_is_refused(location):
    with pytest.raises(ConfigError, match="absolute path"):
        open_folder(location, SystemRuntime())


def test_a_folder_that_is_missing_or_takes_no_options_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        open_folder(str(tmp_path / "none"), SystemRuntime())
    with pytest.raises(ConfigError, match="takes no store option 'key'"):
        open_folder(str(tmp_path), SystemRuntime(), key="x")
    assert open_folder(f"file://{tmp_path}", SystemRuntime()).root == str(tmp_path)


def test_what_became_a_folder_or_a_file_is_told(tmp_path):
    files = LocalFolder(str(tmp_path / "t"), SystemRuntime())
    write(tmp_path / "t" / "a.parquet")
    settled()
    (file,) = files.files()
    (tmp_path / "t" / "a.parquet").unlink()
    (tmp_path / "t" / "a.parquet").mkdir()
    with pytest.raises(SnapshotGone), files.open(file):
        pass
    (tmp_path / "t").rename(tmp_path / "away")
    (tmp_path / "t").write_text("no folder")
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        files.files()


shapes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=8)


@given(st.lists(shapes, max_size=8), st.integers(1, 100), st.integers(1, 5))
def test_every_row_group_is_in_one_part_in_its_order(held, target, most):
    found, wanted = [], []
    for number, groups in enumerate(held):
        file = PlainFile(path=f"{number}", size=1, version="1")
        shape = PlainShape(schema=pa.schema([]), groups=tuple(groups))
        found += sections_of(file, shape, target)
        wanted += [(number, place) for place, (rows, _) in enumerate(groups) if rows]
    parts = filled(found, target, most)
    assert len(parts) <= most
    assert all(parts)
    read = [
        (int(one.file.path), place)
        for part in parts
        for one in part
        for place in range(one.first, one.first + one.count)
    ]
    assert [place for place in read if held[place[0]][place[1]][0]] == wanted
    assert len(read) == len(set(read))
    for one in found:
        groups = held[int(one.file.path)][one.first : one.first + one.count]
        full = [(rows, size) for rows, size in groups if rows]
        assert (one.rows, one.bytes) == (sum(rows for rows, _ in full), sum(size for _, size in full))
        assert one.bytes <= target or len(full) == 1


def test_a_part_of_more_files_than_a_ticket_names_is_refused():
    many = [
        PlainSection(file=PlainFile(path="x" * 900, size=1, version="1"), first=0, count=1, rows=1, bytes=1)
        for _ in range(5_000)
    ]
    with pytest.raises(ConfigError, match="allow more partitions"):
        filled(many, 1 << 30, 1)
    assert max(map(len, filled(many, 1 << 30, 10))) <= 1_000
