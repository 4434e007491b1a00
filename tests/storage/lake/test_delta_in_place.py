"""Delta tables where they lie: their rows are those that deltalake reads, deletion vectors and all."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import uuid
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.lake.lakes import bag, check_agrees, framed, rows_of, vector

from ballista_py.errors import DocumentUnreadable, SourceLost, SourceUnfit
from ballista_py.scans.task import ScanCondition
from ballista_py.storage.lake.delta_log import z85
from ballista_py.storage.lake.table import open_table

deltalake = pytest.importorskip("deltalake")
VECTORS = {"delta.enableDeletionVectors": "true"}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def lake(place: Path):
    return open_table({"format": "delta", "path": str(place)})


def theirs(place: Path) -> list[dict]:
    return pa.RecordBatchReader.from_stream(deltalake.DeltaTable(str(place)).scan()).read_all().to_pylist()


def text85(data: bytes) -> str:
    return base64.b85encode(data).decode().translate(str.maketrans(_B85, _Z85))


class Log:
    """The log of a table, to which commits are written by hand."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def live(self) -> dict[str, dict]:
        """The files by their paths, as a replay of the commits has them."""
        found: dict[str, dict] = {}
        for commit in sorted((self.place / "_delta_log").glob("*[0-9].json")):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for one in actions:
                if "remove" in one:
                    found.pop(one["remove"]["path"], None)
            found.update({one["add"]["path"]: one["add"] for one in actions if "add" in one})
        return found

    def commit(self, *actions: dict) -> None:
        number = deltalake.DeltaTable(str(self.place)).version() + 1
        actions = (*actions, {"commitInfo": {"timestamp": 1_700_000_000_000 + number}})
        text = "".join(json.dumps(one) + "\n" for one in actions)
        (self.place / "_delta_log" / f"{number:020d}.json").write_text(text)

    def delete(self, path: str, positions, kind: str) -> None:
        """A commit that gives a file another vector."""
        add = dict(self.live()[path])
        body = vector(positions)
        said = {"sizeInBytes": len(body), "cardinality": len(set(positions))}
        if kind == "i":
            padded = body + b"\x00" * (-len(body) % 4)
            said |= {"storageType": "i", "pathOrInlineDv": text85(padded)}
        else:
            name = uuid.uuid4()
            folder = "ab" if kind == "u" else ""
            there = self.place / folder / f"deletion_vector_{name}.bin"
            there.parent.mkdir(exist_ok=True)
            there.write_bytes(b"\x01" + framed(vector([7])) + framed(body))
            offset = 1 + len(framed(vector([7])))
            place = f"{folder}{text85(name.bytes)}" if kind == "u" else f"file://{there}"
            said |= {"storageType": kind, "pathOrInlineDv": place, "offset": offset}
        gone = {name: add[name] for name in ("path", "partitionValues", "size")}
        if add.get("deletionVector"):
            gone["deletionVector"] = add["deletionVector"]
        remove = {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True, **gone}
        self.commit({"remove": remove}, {"add": {**add, "deletionVector": said}})


def some_rows(chance: random.Random, first: int, more: bool) -> pa.Table:
    count = chance.choice([1, 8, 60])
    rows = {
        "id": pa.array(range(first, first + count), pa.int64()),
        "k": pa.array([chance.choice([None, "a b", "c/d=ü%", "x"]) for _ in range(count)], pa.string()),
        "day": pa.array([chance.choice([None, dt.date(2024, 2, 29)]) for _ in range(count)], pa.date32()),
        "f": pa.array([chance.choice([None, float("nan"), -0.0, 2.5]) for _ in range(count)], pa.float64()),
        "s": pa.array([chance.choice(["", "z" * 90 + str(n), None]) for n in range(count)], pa.string()),
        "at": pa.array(
            [dt.datetime(2024, 1, 1, 0, 0, 0, chance.randrange(10**6), tzinfo=dt.UTC) for _ in range(count)],
            pa.timestamp("us", "UTC"),
        ),
        "st": pa.array([chance.choice([None, {"a": 1, "b": ["x", None]}]) for _ in range(count)],
                       pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    }  # fmt: skip
    if more:
        rows["more"] = pa.array([chance.choice([None, "m"]) for _ in range(count)], pa.string())
    return pa.table(rows)


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_of_a_table_are_read_as_deltalake_reads_them(tmp_path, seed):
    chance = random.Random(seed)
    place, log = tmp_path / "t", Log(tmp_path / "t")
    keys = chance.choice([[], ["k"], ["k", "day"]])
    settings = chance.choice([VECTORS, {"delta.columnMapping.mode": "name"}])
    first, more = 1, False
    lost: dict[str, set[int]] = {}
    deltalake.write_deltalake(str(place), some_rows(chance, 1, False), partition_by=keys, configuration=settings)
    for _ in range(10):
        first += 100
        what = chance.choice(["append", "append", "evolve", "delete", "checkpoint", "compact", "vector", "vector"])
        table = deltalake.DeltaTable(str(place))
        if what == "append" or (what == "evolve" and settings is not VECTORS):
            rows = some_rows(chance, first, more)
            merged = {"schema_mode": "merge"} if settings is VECTORS else {}  # of mapped ones it is not written
            deltalake.write_deltalake(str(place), rows, mode="append", **merged)
        elif what == "evolve":
            more = True
            deltalake.write_deltalake(
                str(place), some_rows(chance, first, True), mode="append", schema_mode="merge"
            )
        elif (
            what == "delete"
            and settings is VECTORS
            and not any(a.get("deletionVector") for a in log.live().values())
        ):
            table.delete(f"id % 7 = {chance.randrange(7)}")
        elif what == "checkpoint":
            table.create_checkpoint()
        elif what == "vector" and settings is VECTORS:
            path = chance.choice(sorted(log.live()))
            rows = pq.read_metadata(place / unquote(path)).num_rows
            gone = {number for number in range(rows) if chance.random() < 0.4} - lost.get(path, set())
            if gone:
                lost[path] = lost.get(path, set()) | gone
                log.delete(path, lost[path], chance.choice("iup"))
    check_agrees(chance, lake(place).snapshot(), theirs(place))


def test_a_version_and_a_time_are_read_as_they_were(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": [1, 2, 3]}), configuration=VECTORS)
    (path,) = log.live()
    log.delete(path, [0], "u")
    log.delete(path, [0, 1], "i")
    deltalake.DeltaTable(str(place)).create_checkpoint()
    deltalake.write_deltalake(str(place), pa.table({"id": [9]}), mode="append")
    found = [
        sorted(rows_of(lake(place).snapshot(version)).column("id").to_pylist()) for version in (0, "1", 2, None)
    ]
    assert found == [[1, 2, 3], [2, 3], [3], [3, 9]]
    assert lake(place).snapshot(timestamp_ms=2**41 * 2).id == "3"
    for version in (17, "none", "9" * 30):
        with pytest.raises(SourceLost):
            lake(place).snapshot(version)


def test_a_log_that_lost_a_commit_or_whose_vectors_are_elsewhere_is_refused(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": [1, 2, 3]}), configuration=VECTORS)
    (path,) = log.live()
    log.delete(path, [1], "u")
    snapshot = lake(place).snapshot()
    assert rows_of(snapshot).column("id").to_pylist() == [1, 3]
    add = dict(log.live()[path])
    add["deletionVector"] = {
        "storageType": "p", "pathOrInlineDv": "file:///etc/passwd", "offset": 0, "sizeInBytes": 9, "cardinality": 1,
    }  # fmt: skip
    log.commit({"add": add})
    with pytest.raises(SourceUnfit, match="does not lie below"):
        lake(place).snapshot().files()
    add["deletionVector"]["storageType"] = "q"
    log.commit({"add": add})
    with pytest.raises(SourceUnfit, match="kind that is not known"):
        lake(place).snapshot().files()


def test_a_log_that_can_be_read_in_two_ways_is_refused(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": [1, 2, 3]}), configuration=VECTORS)
    (path,) = log.live()
    log.delete(path, [1], "i")
    log.delete(path, [1], "i")  # one commit removes and adds the very same file with the very same vector
    with pytest.raises(SourceUnfit, match="two ways"):
        lake(place).snapshot()


@pytest.mark.parametrize("path", ["../../x.parquet", "/etc/x.parquet", "s3://b/x.parquet", "%2e%2e/x.parquet"])
def test_the_log_names_no_file_elsewhere(tmp_path, path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": [1]}))
    (own,) = log.live()
    log.commit({"add": {**log.live()[own], "path": path}})
    with pytest.raises(SourceUnfit, match="does not lie below"):
        lake(place).snapshot().files()


def test_a_spoilt_vector_is_refused(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": list(range(9))}), configuration=VECTORS)
    (path,) = log.live()
    log.delete(path, [1, 4], "u")
    (file,) = place.glob("ab/*.bin")
    data = file.read_bytes()
    snapshot = lake(place).snapshot()
    for at in range(len(data) - len(framed(vector([1, 4]))), len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x21]) + data[at + 1 :])
        with pytest.raises(DocumentUnreadable):
            rows_of(snapshot)
    file.write_bytes(data[:-3])
    with pytest.raises(DocumentUnreadable):
        rows_of(snapshot)


def test_features_that_are_not_known_are_refused_by_name(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    deltalake.write_deltalake(str(place), pa.table({"id": [1]}))
    features = {"readerFeatures": ["quantumRows"], "writerFeatures": ["quantumRows"]}
    log.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(SourceUnfit, match=r"quantumRows|feature"):
        lake(place).snapshot()
    with pytest.raises(SourceUnfit, match="no Delta table"):
        lake(tmp_path).snapshot()


def test_files_are_pruned_by_partitions_and_statistics_and_times_that_the_log_has_cut_are_found(tmp_path):
    place = tmp_path / "t"
    at = pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 999, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    for number in range(5):
        rows = pa.table({"id": pa.array([number], pa.int64()), "k": [f"k{number}"], "at": at})
        deltalake.write_deltalake(str(place), rows, partition_by=["k"], mode="append")
    snapshot = lake(place).snapshot()

    def count(column: str, operator: str, value: pa.Scalar) -> int:
        return len(snapshot.files([ScanCondition(column=column, operator=operator, values=(value,))]))

    assert count("id", ">=", pa.scalar(3)) == 2
    assert count("k", "=", pa.scalar("k1")) == 1
    assert count("at", "=", at[0]) == 5
    assert count("k", "in", pa.scalar("nothing")) == 0


@pytest.mark.parametrize("how", ["delete", "update", "compact"])
def test_bytes_are_read_in_the_form_in_which_a_rewrite_has_left_them(tmp_path, how):
    """deltalake writes views of bytes where it writes a file anew."""
    deep = pa.struct([("b", pa.binary())])
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "b": pa.array([b"a", b"b", None], pa.binary()),
            "s": pa.array([{"b": b"x"}, None, {"b": None}], deep),
            "l": pa.array([[b"1", None], [], None], pa.list_(pa.binary())),
        }
    )
    for _ in range(2):
        deltalake.write_deltalake(str(tmp_path), rows, mode="append")
    table = deltalake.DeltaTable(str(tmp_path))
    if how == "delete":
        table.delete("id = 2")
    elif how == "update":
        table.update(predicate="id = 1", updates={"id": "7"})
    else:
        table.optimize.compact()
    found = rows_of(open_table({"format": "delta", "path": str(tmp_path)}).snapshot())
    assert bag(found) == bag(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table())


def test_base_85_of_zeromq_is_read_back():
    for size in range(0, 40, 4):
        data = bytes((7 * n) % 256 for n in range(size))
        assert z85(text85(data)) == data
    for text in ("abc", "abcd\x00", "~~~~~"):
        with pytest.raises(ValueError):
            z85(text)


def test_columns_are_found_by_their_ids_where_the_table_says_so(tmp_path):
    place, log = tmp_path / "t", Log(tmp_path / "t")
    settings = {"delta.columnMapping.mode": "name"}
    deltalake.write_deltalake(str(place), pa.table({"id": [1, 2], "s": ["a", "b"]}), configuration=settings)
    commit = next((place / "_delta_log").glob("*0.json"))
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    metadata = next(one["metaData"] for one in actions if "metaData" in one)
    metadata["configuration"]["delta.columnMapping.mode"] = "id"
    fields = json.loads(metadata["schemaString"])
    for one in fields["fields"]:
        one["metadata"]["delta.columnMapping.physicalName"] += "x"  # so the id alone finds it
        one["name"] += "new"
    log.commit({"metaData": {**metadata, "schemaString": json.dumps(fields)}})
    assert bag(rows_of(lake(place).snapshot())) == bag([{"idnew": 1, "snew": "a"}, {"idnew": 2, "snew": "b"}])
