"""Makes `golden_bucket.json`: values of every type and the hashes that Spark gives them.

Run it only to add types: `python tests/partitions/golden_bucket.py`. The hashes that are there may never change. A
test of the folder `tests/spark` asks Spark for them again.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ballista_py.partitions.bucket import BucketUDF
from ballista_py.partitions.values import as_key, key_type, type_of_text, type_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).with_name("golden_bucket.json")
RANDOM_VALUES = 32
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "abc",
    "null",
    "é",
    "e\u0301",
    "ß",
    "日本語",
    "🦆",
    "a\x00b",
    "'quoted'",
    "\\",
    "x" * 31,
]
TEXTS += ["x" * 32, "x" * 33, "12345678", "1234", "123", "tab\tnew\nline", "ÅΩ" * 40, "z" * 300]


def cases() -> dict[str, pa.Array]:
    """Values of every type, by the type's name: the edges, and some in between."""
    chance = np.random.default_rng(42)
    made = [*_integers(chance), *_floats(chance), *_times(chance), *_decimals(chance), *_bytes(chance)]
    made.append(pa.array([True, False, None] * 11, pa.bool_()))
    return {type_text(array.type): array for array in made}


def spark_hashes(spark: SparkSession, cases: dict[str, pa.Array]) -> dict[str, list[int | None]]:
    """What Spark computes for the values of each case, through the expression that `BucketUDF` hands to it."""
    longest = max(len(values) for values in cases.values())
    columns = {"place": pa.array(range(longest), pa.int64())}
    hashes = []
    for place, values in enumerate(cases.values()):
        column = _for_spark(values)
        columns[f"v{place}"] = pa.concat_arrays([column, pa.nulls(longest - len(column), column.type)])
        sql = BucketUDF(16).spark_sql(f"v{place}", values.type)
        hashes.append(sql.removeprefix("cast(pmod(").removesuffix(", 16) as int)") + f" as h{place}")
    rows = spark.createDataFrame(pa.table(columns)).orderBy("place").selectExpr(*hashes).collect()
    return {
        name: [row[place] for row in rows[: len(values)]] for place, (name, values) in enumerate(cases.items())
    }


def to_json(values: pa.Array) -> list[Any]:
    """The values without loss: bits of floats, numbers of the unit for times, text for decimals, hex for bytes."""
    of, kind = pa.types, values.type
    if of.is_floating(kind):
        bits = values.to_numpy(zero_copy_only=False).view(np.int32 if of.is_float32(kind) else np.int64).tolist()
        return [None if null else bit for bit, null in zip(bits, values.is_null().to_pylist(), strict=True)]
    if of.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if of.is_decimal(kind):
        return [None if item is None else str(item) for item in values.to_pylist()]
    if of.is_binary(kind) or of.is_binary_view(kind) or of.is_fixed_size_binary(kind):
        return [None if item is None else item.hex() for item in values.to_pylist()]
    return values.to_pylist()


def from_json(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The array that `to_json` wrote down."""
    of = pa.types
    if of.is_floating(kind):
        bits = np.array([item or 0 for item in values], np.int32 if of.is_float32(kind) else np.int64)
        floats = bits.view(np.float32 if of.is_float32(kind) else np.float64)
        return pa.array(floats, kind, mask=np.array([item is None for item in values]), from_pandas=False)
    if of.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if of.is_decimal(kind):
        return pa.array([None if item is None else Decimal(item) for item in values], kind)
    if of.is_binary(kind) or of.is_binary_view(kind) or of.is_fixed_size_binary(kind):
        return pa.array([None if item is None else bytes.fromhex(item) for item in values], kind)
    return pa.array(values, kind)


def golden() -> dict[str, tuple[pa.Array, list[int | None]]]:
    """The file's content: values and Spark's hashes, by the type's name."""
    read = json.loads(GOLDEN.read_text())
    return {name: (from_json(case["values"], type_of_text(name)), case["hashes"]) for name, case in read.items()}


def _integers(chance: np.random.Generator) -> list[pa.Array]:
    made: list[pa.Array] = []
    for width in (8, 16, 32, 64):
        for sign in ("int", "uint"):
            dtype = np.dtype(f"{sign}{width}")
            low, high = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), (1 << 63) - 1)
            edges = [0, 1, 2, 7, 100, low, low + 1, high, high - 1, *([-1, -2] if low else [])]
            random = chance.integers(low, high, RANDOM_VALUES, dtype)
            made.append(pa.array([*edges, None, *random.tolist()], pa.from_numpy_dtype(dtype)))
    return made


def _floats(chance: np.random.Generator) -> list[pa.Array]:
    made: list[pa.Array] = []
    for dtype, odd_nans in (
        (np.float32, [0x7FC00001, -0x7FFFFF]),
        (np.float64, [0x7FF8000000000001, -0xFFFFFFFFFFFFF]),
    ):
        bits = np.dtype(f"int{np.dtype(dtype).itemsize * 8}")
        limits = np.finfo(dtype)
        edges = [0.0, -0.0, 1.0, -1.0, 0.1, 1e10, np.inf, -np.inf, np.nan, limits.max, limits.min, limits.tiny]
        random = (chance.standard_normal(RANDOM_VALUES) * 1e6).astype(dtype)
        whole = np.concatenate([np.array(edges, dtype), np.array(odd_nans, bits).view(dtype), random])
        made.append(
            pa.array(np.append(whole, dtype(0)), mask=np.arange(len(whole) + 1) == len(whole), from_pandas=False)
        )
    return made


def _times(chance: np.random.Generator) -> list[pa.Array]:
    days = [0, 1, -1, 19_000, -719_162, 2_932_896, None, *chance.integers(-30_000, 60_000, RANDOM_VALUES).tolist()]
    made = [pa.array(days, pa.int32()).cast(pa.date32())]
    made.append(pa.array([None if d is None else d * 86_400_000 for d in days], pa.int64()).cast(pa.date64()))
    for unit, scale in (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        for zone in (None, "UTC", "Europe/Berlin"):
            random = chance.integers(-5_000_000_000 * scale, 9_000_000_000 * scale, RANDOM_VALUES).tolist()
            edges = [0, 1, -1, 999, -999, 1_700_000_000 * scale, -1_700_000_000 * scale, None]
            made.append(pa.array([*edges, *random], pa.int64()).cast(pa.timestamp(unit, zone)))
        ticks = [
            0,
            1,
            59,
            3_600 * scale,
            86_400 * scale - 1,
            None,
            *chance.integers(0, 86_400 * scale, 30).tolist(),
        ]
        raw = pa.array(ticks, pa.int32() if unit in ("s", "ms") else pa.int64())
        made.append(raw.cast(pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)))
    return made


def _decimals(chance: np.random.Generator) -> list[pa.Array]:
    made: list[pa.Array] = []
    for make, precision, scale in (
        (pa.decimal32, 9, 2),
        (pa.decimal64, 18, 4),
        (pa.decimal128, 5, 0),
        (pa.decimal128, 18, 2),
        (pa.decimal128, 19, 2),
        (pa.decimal128, 38, 0),
        (pa.decimal128, 38, 10),
        (pa.decimal256, 12, 3),
        (pa.decimal256, 38, 6),
    ):
        top = 10**precision - 1
        edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32_767, 32_768, -32_768, -32_769, top, -top, top // 3]
        edges += [sign * power for power in (1 << 63, (1 << 64) - 1, 1 << 64, 1 << 100) for sign in (1, -1)]
        random = [int(item * top) for item in chance.uniform(-1, 1, RANDOM_VALUES)]
        unscaled = [item for item in [*edges, *random] if abs(item) <= top]
        values = [
            Decimal(item).scaleb(-scale) if abs(item) < 10**28 else Decimal(f"{item}e-{scale}")
            for item in unscaled
        ]
        made.append(pa.array([*values, None], make(precision, scale)))
    return made


def _bytes(chance: np.random.Generator) -> list[pa.Array]:
    random = [bytes(chance.integers(0, 256, length, np.uint8)) for length in range(RANDOM_VALUES)]
    texts = [*TEXTS, *(f"key-{number:05d}" for number in range(16)), None]
    return [
        pa.array(texts, pa.string()),
        pa.array(texts, pa.large_string()),
        pa.array(texts, pa.string_view()),
        pa.array([*(text and text.encode() for text in texts), *random], pa.binary()),
        pa.array([*random, None], pa.binary_view()),
        pa.array(
            [bytes(chance.integers(0, 256, 16, np.uint8)) for _ in range(RANDOM_VALUES)] + [None], pa.binary(16)
        ),
    ]


def _for_spark(values: pa.Array) -> pa.Array:
    """The same values in the type that a Spark column of them has."""
    of, kind = pa.types, values.type
    if of.is_integer(kind):
        return values.cast(pa.int64())
    if of.is_decimal(kind):
        return values.cast(pa.decimal128(kind.precision, kind.scale))
    if of.is_floating(kind):
        return values
    if of.is_time(kind):
        return values.cast(pa.time64("ns"))
    return as_key(values, key_type(kind))


def main() -> None:
    """Write the file anew, refusing to change a hash that it holds."""
    from ballista_py.spark.session import embedded_session

    spark = embedded_session()
    old = golden() if GOLDEN.exists() else {}
    made = cases()
    hashes = spark_hashes(spark, made)
    for name in made.keys() & old.keys():
        assert old[name][1] == hashes[name], f"Spark changed its mind about {name}"
    written = {name: {"values": to_json(values), "hashes": hashes[name]} for name, values in made.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in written.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
