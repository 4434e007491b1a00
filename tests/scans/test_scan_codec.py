"""Scan tasks as bytes: what goes in comes out, and nothing else goes in."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from decimal import Decimal

import orjson
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import BallistaError, InvalidData
from ballista_py.scans import codec
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import (
    FIELD_ID,
    DeletionVector,
    EqualityDeletes,
    FileSlice,
    PositionDeletes,
    ScanCondition,
    ScanTask,
)
from ballista_py.scans.typed_values import key_of
from ballista_py.secret import Secret

WHOLE = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
PATHS = NAMES.map(lambda text: f"s3://bucket/{text}")
METADATA = st.none() | st.dictionaries(
    st.binary(max_size=6) | st.just(FIELD_ID), st.binary(max_size=6), min_size=1, max_size=3
)
UNITS = st.sampled_from(["s", "ms", "us", "ns"])


@st.composite
def decimals(draw):
    make, most = draw(
        st.sampled_from([(pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)])
    )
    precision = draw(st.integers(1, most))
    return make(precision, draw(st.integers(0, precision)))


FLAT = st.one_of(
    st.sampled_from([
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
        pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    ]),
    st.builds(pa.timestamp, UNITS, st.sampled_from([None, "UTC", "+02:00", "America/New_York"])),
    st.integers(1, 20).map(pa.binary),
    decimals(),
)  # fmt: skip


def fields_of(kinds):
    def column(name, kind, nullable, metadata):
        return pa.field(name, kind, nullable or pa.types.is_null(kind), metadata)

    return st.builds(column, NAMES, kinds, st.booleans(), METADATA)


def deeper(kinds):
    field = fields_of(kinds)
    key = st.builds(pa.field, NAMES, FLAT, st.just(False), METADATA)
    return st.one_of(
        field.map(pa.list_),
        field.map(pa.large_list),
        st.builds(pa.list_, field, st.integers(0, 5)),
        st.lists(field, max_size=3).map(pa.struct),
        st.builds(lambda k, v, kept: pa.map_(k, v, keys_sorted=kept), key, field, st.booleans()),
    )


TYPES = st.recursive(FLAT | UNITS.map(pa.duration) | st.just(pa.null()), deeper, max_leaves=5)
SCHEMAS = st.builds(
    pa.schema, st.lists(fields_of(TYPES), max_size=4, unique_by=lambda column: column.name), METADATA
)


def fitting(kind):
    """Values of a flat type, at its ends too."""
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        bits = kind.bit_width - signed
        return st.integers(-(2**bits) if signed else 0, 2**bits - 1)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda units: Decimal(units).scaleb(-kind.scale, EXACT))
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    return st.binary(max_size=20) if "binary" in str(kind) else NAMES


EXACT = decimal.Context(prec=100)


def made(value, kind):
    if value is not None and (pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)):
        return pa.array([value], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)[0]
    if value is not None and pa.types.is_floating(kind):
        return pa.scalar(value, pa.float64()).cast(kind)
    return pa.scalar(value, kind)


@st.composite
def values(draw, nulls=True):
    kind = draw(FLAT)
    return made(draw(st.none() | fitting(kind) if nulls else fitting(kind)), kind)


@st.composite
def conditions(draw):
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null"]))
    kind = draw(FLAT)
    least, most = {"in": (0, 4), "is_null": (0, 0), "is_not_null": (0, 0)}.get(operator, (1, 1))
    found = draw(st.lists(fitting(kind), min_size=least, max_size=most))
    return ScanCondition(column=draw(NAMES), operator=operator, values=tuple(made(value, kind) for value in found))


VECTORS = st.one_of(
    st.builds(
        DeletionVector, kind=st.just("puffin"), path=PATHS, offset=WHOLE, length=WHOLE, rows=st.none() | WHOLE
    ),
    st.builds(DeletionVector, kind=st.just("delta"), inline=st.binary(max_size=40), rows=st.none() | WHOLE),
)
DELETES = st.one_of(
    VECTORS,
    st.builds(PositionDeletes, path=PATHS, size=WHOLE, rows=st.none() | WHOLE),
    st.builds(EqualityDeletes, path=PATHS, size=WHOLE, rows=st.none() | WHOLE, schema=SCHEMAS),
)
FILES = st.builds(
    FileSlice,
    path=PATHS,
    size=WHOLE,
    rows=st.none() | WHOLE,
    row_groups=st.none() | st.sets(st.integers(0, 10**6), max_size=5).map(lambda found: tuple(sorted(found))),
    read_bytes=st.none() | WHOLE,
    version=st.none() | NAMES,
    partition_values=st.dictionaries(NAMES, values(), max_size=3),
    found_by=st.sampled_from(["name", "field_id"]),
    deletes=st.lists(DELETES, max_size=3).map(tuple),
)
CREDENTIALS = st.builds(
    StorageCredentials,
    location=PATHS,
    values=st.dictionaries(NAMES, NAMES.map(Secret), max_size=3),
    expires_at_ms=st.none() | WHOLE,
    valid_ms=st.none() | st.integers(0, 2**50).map(float),
    number=WHOLE,
)


@st.composite
def tasks(draw):
    schema = draw(SCHEMAS)
    return ScanTask(
        fragment_id=draw(NAMES),
        number=draw(WHOLE),
        files=tuple(draw(st.lists(FILES, max_size=3))),
        columns=tuple(schema.names),
        schema=schema,
        filter=tuple(draw(st.lists(conditions(), max_size=3))),
        credentials=draw(st.none() | CREDENTIALS),
    )


def plain_task():
    """One of everything."""
    return ScanTask(
        fragment_id="f0",
        number=3,
        files=(
            FileSlice(
                path="s3://b/t/day=1/a.parquet",
                size=1_000,
                rows=50,
                row_groups=(0, 2),
                read_bytes=10,
                version='"etag"',
                partition_values={"day": pa.scalar(dt.date(2026, 1, 1)), "hour": pa.scalar(None, pa.int8())},
                found_by="field_id",
                deletes=(
                    PositionDeletes(path="s3://b/t/d.parquet", size=7, rows=1),
                    EqualityDeletes(path="s3://b/t/e.parquet", size=7, schema=pa.schema([("id", pa.int64())])),
                    DeletionVector(kind="puffin", path="s3://b/t/v.puffin", offset=4, length=40, rows=2),
                    DeletionVector(kind="delta", inline=b"\x00\xff", length=2),
                ),
            ),
            FileSlice(path="/data/b.parquet", size=5),
        ),
        columns=("a", "b"),
        schema=pa.schema([
            pa.field("a", pa.int64(), metadata={FIELD_ID: b"1"}),
            pa.field("b", pa.struct([pa.field("c", pa.string(), False, metadata={FIELD_ID: b"3"})])),
        ]),
        filter=(ScanCondition(column="a", operator="in", values=(pa.scalar(1), pa.scalar(2))),),
        credentials=StorageCredentials(
            location="s3://b/t/", values={"s3.session-token": Secret("hunter2")}, expires_at_ms=5, valid_ms=1e3
        ),
    )  # fmt: skip


def is_same(one: ScanTask, other: ScanTask) -> bool:
    """Equal, in what equality leaves out too: metadata of schemas, order, texts of secrets."""

    def told(task):
        return None if task.credentials is None else {k: v.reveal() for k, v in task.credentials.values.items()}

    return (
        one == other
        and told(one) == told(other)
        and one.schema.equals(other.schema, check_metadata=True)
        and all(
            mine.schema.equals(theirs.schema, check_metadata=True)
            for file, its in zip(one.files, other.files, strict=True)
            for mine, theirs in zip(file.deletes, its.deletes, strict=True)
            if isinstance(mine, EqualityDeletes)
        )
    )


@given(tasks())
@settings(max_examples=400, deadline=None)
def test_a_task_comes_back_as_it_was_and_its_bytes_as_they_were(task):
    data = task.to_bytes(reveal=True)
    back = ScanTask.from_bytes(data)
    assert is_same(back, task)
    assert back.to_bytes(reveal=True) == data


def mutate(said, draw):
    """Something of the message is another thing, is gone, is there twice, or has changed places."""
    places = []

    def walk(node):
        if isinstance(node, dict | list):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                walk(node[key])

    walk(said)
    node, key = draw(st.sampled_from(places))
    odd = st.sampled_from([
        None, True, -1, 0, 1, 2**63, 1.5, "", "x", "\x00", [], {}, [[]], {"struct": []}, "int64", "a" * 70_000, "nan",
    ])  # fmt: skip
    what = draw(st.sampled_from(["other", "gone", "twice", "moved"]))
    if what == "gone":
        del node[key]
    elif what == "twice" and isinstance(node, list):
        node.insert(key, node[key])
    elif what == "moved":
        other, there = draw(st.sampled_from(places))
        try:
            other[there], node[key] = node[key], other[there]
        except (KeyError, IndexError):
            node[key] = None
    else:
        node[key] = draw(odd)


@given(st.data(), st.none() | tasks())
@settings(max_examples=1_500, deadline=None)
def test_of_a_spoilt_message_all_is_taken_as_it_stands_or_nothing(data, task):
    said = orjson.loads((task or plain_task()).to_bytes(reveal=True))
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(said, data.draw)
    try:
        sent = orjson.dumps(said)
    except (TypeError, ValueError):  # a node within itself, or a number that JSON has not
        return
    try:
        taken = ScanTask.from_bytes(sent)
    except InvalidData:
        return
    assert orjson.loads(taken.to_bytes(reveal=True)) == said


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_by_name(data):
    with pytest.raises(InvalidData):
        ScanTask.from_bytes(data)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda said: said["columns"].pop(), "columns"),
        (lambda said: said["columns"].reverse(), "columns"),
        (lambda said: said["schema"]["columns"].pop(), "columns"),
        (lambda said: said["schema"]["columns"].reverse(), "columns"),
        (lambda said: said.update(version=2), "version"),
        (lambda said: said.update(hint="x"), "hint is not known"),
        (lambda said: said.pop("filter"), "filter is missing"),
        (lambda said: said["files"][0].update(size=-1), "files[0].size"),
        (lambda said: said["files"][0].update(size=True), "files[0].size"),
        (lambda said: said["files"][1].update(path="a" * 9_000), "files[1].path"),
        (lambda said: said["files"][0].update(row_groups=[1, 1]), "files[0].row_groups"),
        (lambda said: said["files"][0].update(row_groups=[2, 1]), "files[0].row_groups"),
        (lambda said: said["files"][0]["deletes"][0].update(kind="other"), "files[0].deletes[0].kind"),
        (lambda said: said["files"][0]["deletes"][3].update(path="x"), "deletion vector"),
        (lambda said: said["files"][0]["deletes"][3].update(inline="AP8"), "deletes[3].inline"),
        (lambda said: said["filter"][0].update(operator="like"), "filter[0].operator"),
        (lambda said: said["filter"][0].update(operator="="), "has 2 values"),
        (lambda said: said["types"].append("int8"), "types"),
        (lambda said: said["types"].pop(), "filter[0].values[0]"),
        (lambda said: said.update(files=[said["files"][1]] * (codec.MAX_FILES + 1)), "files"),
        (lambda said: said["schema"]["columns"][0].update(type="int65"), "the type of schema.a"),
        (lambda said: said["schema"]["columns"][0].update(type={"decimal128": [39, 0]}), "schema.a"),
        (lambda said: said["schema"]["columns"][0].update(type={"decimal128": [3, 4]}), "schema.a"),
        (lambda said: said["schema"]["columns"][0].update(metadata=[["ARROW:extension:name", "x"]]), "schema.a"),
        (lambda said: said["credentials"].update(values=[["a", "b"], ["a", "c"]]), "credentials.values"),
    ],
)
def test_what_is_wrong_is_named(change, named):
    said = orjson.loads(plain_task().to_bytes(reveal=True))
    change(said)
    with pytest.raises(InvalidData, match=named.replace("[", r"\[").replace("]", r"\]")):
        ScanTask.from_bytes(orjson.dumps(said))


def test_a_message_is_measured_before_it_is_parsed():
    with pytest.raises(InvalidData, match="16 MiB"):
        ScanTask.from_bytes(b" " * (codec.MAX_TASK_BYTES + 1))
    with pytest.raises(InvalidData, match="1000000 values"):
        ScanTask.from_bytes(b"[" + b"[]," * 1_000_000 + b"[]]")
    with pytest.raises(InvalidData):
        ScanTask.from_bytes(b"[" * 900_000)


def test_a_schema_is_no_deeper_than_its_bound():
    kind = pa.int64()
    for _ in range(40):
        kind = pa.list_(kind)
    with pytest.raises(InvalidData, match="nested more than 32 deep"):
        ScanTask(fragment_id="f", files=(), columns=("a",), schema=pa.schema([("a", kind)])).to_bytes()


def test_what_nobody_would_take_is_not_written():
    task = evolve(plain_task(), credentials=None)
    for wrong in (
        evolve(task, files=(FileSlice(path="a\x00b", size=1),)),
        evolve(task, files=(FileSlice(path="a\udcff", size=1),)),
        evolve(task, files=(FileSlice(path="a", size=2**63),)),
        evolve(task, files=(FileSlice(path="a", size=2**70),)),
        evolve(task, files=(FileSlice(path="a", size=1, partition_values={"a": pa.scalar([1])}),)),
        evolve(task, columns=("a",), schema=pa.schema([("a", pa.uuid())])),
        evolve(task, columns=("a",), schema=pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))])),
    ):
        with pytest.raises(InvalidData):
            wrong.to_bytes()


def test_columns_and_schema_cannot_disagree_in_a_value_either():
    with pytest.raises(InvalidData, match="f/0: its columns"):
        ScanTask(fragment_id="f", files=(), columns=("b",), schema=pa.schema([("a", pa.int64())]))


def test_secrets_are_written_only_where_that_is_said():
    task = plain_task()
    with pytest.raises(TypeError, match="reveal"):
        task.to_bytes()
    assert b"hunter2" in task.to_bytes(reveal=True)
    assert b"hunter2" not in task.without_credentials().to_bytes()
    assert "hunter2" not in f"{task!r} {task} {task.credentials}"


def test_no_error_about_a_message_repeats_its_secrets():
    said = orjson.loads(plain_task().to_bytes(reveal=True))
    for key in said["credentials"]:
        wrong = orjson.loads(orjson.dumps(said))
        wrong["credentials"][key] = ["hunter2"]
        with pytest.raises(BallistaError) as told:
            ScanTask.from_bytes(orjson.dumps(wrong))
        assert "hunter2" not in f"{told.value} {told.value!r} {told.value.__cause__!r}"


@given(values(), values())
def test_two_values_are_the_same_exactly_if_they_have_one_type_and_one_value(one, other):
    same = one.type == other.type and (one.equals(other) or repr(one.as_py() if one.is_valid else None) == "nan")
    if key_of(one) == key_of(other):
        assert one.type == other.type
        assert one.is_valid == other.is_valid
    elif same and one.is_valid and pa.types.is_floating(one.type):
        assert math.copysign(1, one.as_py()) != math.copysign(1, other.as_py()) or other.as_py() != one.as_py()
    else:
        assert not (one.type == other.type and one.equals(other))
