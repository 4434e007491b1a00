"""The table that plans are over, and plans made of few words."""

import base64
import gzip
import json
import math
import re
from pathlib import Path
from typing import ClassVar

import duckdb
import pyarrow as pa
import pytest

HERE = Path(__file__).parent


def read_arrow(data):
    return pa.ipc.open_stream(data).read_all()


@pytest.fixture(scope="session")
def lines():
    """The plans of others: dictionaries with producer, version, sql, plan, and answer or error."""
    with gzip.open(HERE / "plans.jsonl.gz") as file:
        found = [json.loads(line) for line in file]
    for line in found:
        for name in ("table", "plan", "answer"):
            if name in line:
                line[name] = base64.b64decode(line[name])
    return found


@pytest.fixture(scope="session")
def table(lines):
    return read_arrow(lines[0]["table"])


@pytest.fixture
def engine(table):
    """One engine with the table as `t`."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("given", table)
    connection.execute("create table t as select * from given")
    connection.execute(
        "create table f0 as select k, g, i64::decimal(38, 0) as sum, i64 as count, dc, wide, f64, f32, i32, i16, i8, s,"
        " bo, d, t as ts from t"
    )
    yield connection
    connection.close()


def plain(value):
    """A value so that equal ones are equal: NaN a word, floats to 12 digits."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value if math.isinf(value) else float(f"{value:.12g}")
    if isinstance(value, dict):
        return tuple((name, plain(one)) for name, one in value.items())
    return value


def rows_of(table):
    return [tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def types_of(table):
    """The types, but for how texts are held."""
    return [str(kind).replace("large_", "").replace("_view", "") for kind in table.schema.types]


def ordered(sql):
    """Whether a statement orders what it gives: ORDER BY outside of brackets, or a method of Ibis."""
    while (bare := re.sub(r"\([^()]*\)", "", sql)) != sql and not sql.startswith("t."):
        sql = bare
    return "order by" in sql.lower() or "order_by" in sql


class Same:
    """How answers are compared."""

    rows = staticmethod(rows_of)
    types = staticmethod(types_of)
    read = staticmethod(read_arrow)

    @staticmethod
    def of(sql, wanted, found):
        """Whether two tables have the same rows, in the same order if the statement asks for one."""
        one, other = rows_of(wanted), rows_of(found)
        return one == other if ordered(sql) else sorted(one, key=repr) == sorted(other, key=repr)


@pytest.fixture(scope="session")
def same():
    return Same


KINDS = {pa.int64(): "i64", pa.int32(): "i32", pa.float64(): "fp64", pa.string(): "string", pa.bool_(): "bool"}
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("o", pa.bool_())]
)


class Made:
    """Plans over `SCHEMA` as table `t`, from dictionaries in the form of protobuf's JSON."""

    schema = SCHEMA
    schemas: ClassVar = {"t": SCHEMA}

    @staticmethod
    def read(**more):
        types = [{KINDS[one.type]: {"nullability": "NULLABILITY_NULLABLE"}} for one in SCHEMA]
        base = {"names": SCHEMA.names, "struct": {"types": types, "nullability": "NULLABILITY_REQUIRED"}}
        return {"read": {"baseSchema": base, "namedTable": {"names": ["t"]}, **more}}

    @staticmethod
    def field(place):
        return {"selection": {"directReference": {"structField": {"field": place}}, "rootReference": {}}}

    @staticmethod
    def i64(value):
        return {"literal": {"i64": str(value)}}

    @staticmethod
    def call(anchor, *values, gives="bool", **more):
        arguments = [{"value": value} for value in values]
        return {
            "scalarFunction": {
                "functionReference": anchor,
                "arguments": arguments,
                "outputType": {gives: {}},
                **more,
            }
        }

    @classmethod
    def project(cls, *expressions, below=None):
        below = below or cls.read()
        emit = {"emit": {"outputMapping": [5 + n for n in range(len(expressions))]}}
        return {"project": {"common": emit, "input": below, "expressions": list(expressions)}}

    @staticmethod
    def plan(relation, names, functions=("equal",), origin=None):
        """The bytes of a plan; functions have the anchors 0, 1, …, and are of DataFusion without an origin."""
        from google.protobuf import json_format
        from substrait.gen.proto.plan_pb2 import Plan

        declared = [{"extensionFunction": {"functionAnchor": n, "name": name}} for n, name in enumerate(functions)]
        said = {"extensions": declared, "relations": [{"root": {"input": relation, "names": names}}]}
        if origin is not None:
            said["extensionUris"] = [{"extensionUriAnchor": 7, "uri": origin}]
            for one in declared:
                one["extensionFunction"]["extensionUriReference"] = 7
        return json_format.ParseDict(said, Plan()).SerializeToString()


@pytest.fixture(scope="session")
def made():
    return Made
