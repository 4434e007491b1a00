"""Messages, handles, cookies and what little is remembered: bytes that others can read, bounds that hold."""

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import InvalidData, SqlError, TransportError, Unsupported
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight_sql import bindings, sessions
from ballista_py.transport.flight_sql.bindings import Bindings
from ballista_py.transport.flight_sql.messages import SQL_PACKAGE, message, pack, read, unpack
from ballista_py.transport.flight_sql.metadata import TableInfo, like, metadata_schema, metadata_table
from ballista_py.transport.flight_sql.sessions import run_session_action, session_of, set_by_statement
from ballista_py.transport.flight_sql.statement import MAX_HANDLE_BYTES, SqlStatement
from ballista_py.work import Work, working


class Later(SystemRuntime):
    """A clock that can be put forward."""

    ahead_ms = 0.0

    def monotonic_ms(self):
        return super().monotonic_ms() + self.ahead_ms


# Bytes as the specification gives them: field number and wire type, then the value.
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: message("CommandStatementQuery", query="a"), b"\n\x01a"),
        (lambda: message("CommandStatementQuery", query="a", transaction_id=b""), b"\n\x01a\x12\x00"),
        (lambda: message("CommandGetTables", catalog="", include_schema=True), b"\n\x00\x28\x01"),
        (lambda: message("CommandGetTables", table_types=["A", "B"]), b'"\x01A"\x01B'),
        (lambda: message("CommandGetSqlInfo", info=[1, 500]), b"\n\x03\x01\xf4\x03"),
        (lambda: message("DoPutUpdateResult", record_count=-1), b"\x08" + b"\xff" * 9 + b"\x01"),
        (lambda: message("CancelFlightInfoResult", status=1), b"\x08\x01"),
        (
            lambda: message("CommandStatementIngest", table="t", temporary=True, options={"k": "v"}),
            b"\x12\x01t(\x01\xc2>\x06\n\x01k\x12\x01v",
        ),
    ],
)
def test_messages_have_the_bytes_of_the_specification(made, expected):
    assert made().SerializeToString(deterministic=True) == expected


def test_a_command_travels_with_its_type():
    packed = pack(message("CommandGetCatalogs"))
    assert b"type.googleapis.com/arrow.flight.protocol.sql.CommandGetCatalogs" in packed
    assert unpack(packed).DESCRIPTOR.name == "CommandGetCatalogs"


def test_classes_of_the_same_names_in_the_common_pool_are_no_trouble():
    unpack(pack(message("CommandGetCatalogs")))
    file = descriptor_pb2.FileDescriptorProto(name="some/FlightSql.proto", package=SQL_PACKAGE, syntax="proto3")
    file.message_type.add(name="CommandGetCatalogs")
    descriptor_pool.Default().Add(file)
    assert descriptor_pool.Default().FindMessageTypeByName(f"{SQL_PACKAGE}.CommandGetCatalogs")


@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_other_bytes_are_refused_and_nothing_else_is_raised(data):
    for parse in (unpack, SqlStatement.from_handle, lambda d: read("CommandGetTables", d)):
        try:
            parse(data)
        except (TransportError, InvalidData):
            continue


@settings(deadline=None)
@given(
    query=st.text(),
    dialect=st.none() | st.text(),
    part=st.none() | st.dictionaries(st.text(), st.integers(0, 9)),
    run_id=st.none() | st.text(),
)
def test_a_handle_gives_back_what_it_was_made_of(query, dialect, part, run_id):
    rows = pa.record_batch({"a": [1, None], "b\n": ["x", "\n"]})
    try:
        query.encode()
    except UnicodeEncodeError:
        return
    for parameters in (None, rows, rows.slice(0, 0)):
        made = SqlStatement(query=query, dialect=dialect, parameters=parameters, part=part, run_id=run_id)
        assert SqlStatement.from_handle(made.handle()) == made


def test_a_handle_does_not_grow_without_bound():
    rows = pa.record_batch({"a": ["x" * 1_000_000] * 9})
    with pytest.raises(SqlError, match=f"{MAX_HANDLE_BYTES >> 20} MiB"):
        SqlStatement(query="select ?", parameters=rows).handle()


def test_bindings_are_bounded_in_number_bytes_and_time(monkeypatch):
    clock = Later()
    found = Bindings(clock)
    small = pa.record_batch({"a": [1]})

    def bind(run_id, rows):
        found.remember(SqlStatement(query="q", parameters=rows, run_id=run_id))

    def has(run_id):
        return found.complete(SqlStatement(query="q", run_id=run_id)).parameters is not None

    monkeypatch.setattr(bindings, "MAX_STATEMENTS", 3)
    for number in range(5):
        bind(str(number), small)
    assert ([has(str(number)) for number in range(5)], len(found)) == ([False, False, True, True, True], 3)
    monkeypatch.setattr(bindings, "MAX_BYTES", 20)
    bind("5", small)
    assert (len(found), has("5")) == (2, True)
    bind("5", None)
    assert not has("5")
    clock.ahead_ms = bindings.REMEMBERED_MS + 1
    assert (has("4"), len(found)) == (False, 0)


def test_parameters_are_those_of_the_client_who_bound_them_and_push_out_no_others(monkeypatch):
    found, runtime = Bindings(SystemRuntime()), SystemRuntime()
    rows = pa.record_batch({"a": [1]})

    def bound(client, run_id, parameters=None):
        with working(Work(runtime, client=client)):
            if parameters is not None:
                found.remember(SqlStatement(query="q", parameters=parameters, run_id=run_id))
            return found.complete(SqlStatement(query="q", run_id=run_id)).parameters

    assert bound("ada", "1", rows) == rows
    assert bound("bob", "1") is None
    with working(Work(runtime, client="bob")):
        found.forget(SqlStatement(query="q", run_id="1"))
    monkeypatch.setattr(bindings, "MAX_STATEMENTS", 5)
    for number in range(20):
        bound("bob", str(number), rows)
    assert bound("ada", "1") == rows
    assert len(found) == 5


def session(cookie=None):
    return session_of({} if cookie is None else {"cookie": [cookie]}, SystemRuntime().new_id)


def cookie_of(known):
    return known.headers()["set-cookie"].partition(";")[0]


def with_dialect(known, dialect):
    request = message("SetSessionOptionsRequest")
    request.session_options["dialect"].string_value = dialect
    answer, after = run_session_action("SetSessionOptions", request.SerializeToString(), known)
    return read("SetSessionOptionsResult", answer).errors, after


def test_the_cookie_carries_the_options_and_no_node_remembers_any():
    first = cookie_of(session())
    assert session(first).returned
    errors, after = with_dialect(session(first), "spark")
    assert not errors
    set_ = cookie_of(after)
    assert session(f"other=1; {set_}").options == {"dialect": "spark"}
    assert session(first).options == {}  # what a client sends is what counts
    _, closed = run_session_action("CloseSession", b"", session(set_))
    assert session(cookie_of(closed)).options == {}
    changed = set_by_statement("set dialect = postgres", session(set_))
    assert session(cookie_of(changed)).options == {"dialect": "postgres"}
    assert set_by_statement("select 1", session(set_)) is None
    assert session(cookie_of(set_by_statement("reset all", session(set_)))).options == {}


@pytest.mark.parametrize(
    "cookie", ["", "x", "x.y", "x.e30=", "a.eyJ4IjoxfQ", "a b.e30", "x" * 99 + ".e30", "a.bnVsbA"]
)
def test_a_cookie_of_somebody_else_has_no_options(cookie):
    assert session(f"{sessions.COOKIE}={cookie}").options == {}


def test_a_dialect_that_nobody_knows_is_no_value_and_another_option_no_name():
    known = session(cookie_of(session()))
    assert with_dialect(known, "klingon")[0]["dialect"].value == 2
    request = message("SetSessionOptionsRequest")
    request.session_options["speed"].int64_value = 1
    answer, _ = run_session_action("SetSessionOptions", request.SerializeToString(), known)
    assert read("SetSessionOptionsResult", answer).errors["speed"].value == 1
    with pytest.raises(Unsupported, match="cookies"):
        with_dialect(session(), "spark")


COMMANDS = [
    "CommandGetCatalogs",
    "CommandGetDbSchemas",
    "CommandGetTables",
    "CommandGetTableTypes",
    "CommandGetPrimaryKeys",
    "CommandGetExportedKeys",
    "CommandGetImportedKeys",
    "CommandGetCrossReference",
    "CommandGetXdbcTypeInfo",
    "CommandGetSqlInfo",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_metadata_command_is_answered_with_the_columns_it_announced(name):
    table = metadata_table(message(name), lambda: {"t": TableInfo(pa.schema([("a", pa.int64())]))})
    assert table.schema == metadata_schema(message(name))
    table.validate(full=True)
    assert all(table.column(field.name).null_count == 0 for field in table.schema if not field.nullable)


def test_what_is_asked_for_of_the_infos_and_types_is_what_comes():
    infos = metadata_table(message("CommandGetSqlInfo", info=[0, 8, 508, 77_777]), dict)
    assert infos.to_pylist()[:2] == [{"info_name": 0, "value": "ballista_py"}, {"info_name": 8, "value": 0}]
    assert infos["info_name"].to_pylist() == [0, 8, 508]
    assert metadata_table(message("CommandGetXdbcTypeInfo", data_type=12), dict)["type_name"].to_pylist() == [
        "VARCHAR"
    ]


def test_the_primary_key_is_told_column_by_column():
    tables = {"t": TableInfo(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ("b", "a"))}
    keys = metadata_table(message("CommandGetPrimaryKeys", table="T"), lambda: tables)
    assert [(row["column_name"], row["key_sequence"]) for row in keys.to_pylist()] == [("b", 1), ("a", 2)]
    for other in ({"table": "u"}, {"table": "t", "catalog": "x"}, {"table": "t", "db_schema": "x"}):
        assert metadata_table(message("CommandGetPrimaryKeys", **other), lambda: tables).num_rows == 0


def test_the_columns_of_a_table_have_their_sql_types():
    schema = pa.schema([("a", pa.decimal128(9, 2)), ("b", pa.list_(pa.int8())), ("c", pa.binary(3))])
    command = message("CommandGetTables", include_schema=True)
    (row,) = metadata_table(command, lambda: {"t": TableInfo(schema)}).to_pylist()
    found = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert found.equals(schema)
    names = [field.metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] for field in found]
    assert names == [b"DECIMAL", b"LIST", b"BLOB"]
    assert found.field("a").metadata[b"ARROW:FLIGHT:SQL:PRECISION"] == b"9"


def test_whatever_a_client_calls_something_has_a_bound():
    long = "x" * 2_000
    for packed in (
        message("CommandGetPrimaryKeys", table=long),
        message("CommandGetTables", table_name_filter_pattern=long),
        message("CommandGetTables", table_types=["TABLE", long]),
        message("CommandStatementIngest", table=long),
        message("CommandStatementIngest", table="t", options={long: "x"}),
        message("CommandStatementIngest", table="t", options={"x": long}),
    ):
        with pytest.raises(InvalidData, match=r"the command is malformed: '\w+' must be a text of at most 1,024"):
            unpack(pack(packed))
    options = message("SetSessionOptionsRequest")
    options.session_options["dialect"].string_value = long
    with pytest.raises(InvalidData, match="string_value"):
        read("SetSessionOptionsRequest", options.SerializeToString())
    assert unpack(pack(message("CommandStatementQuery", query=long))).query == long


def test_a_pattern_of_names_costs_no_more_than_both_lengths_multiplied():
    steps = [0]

    class Counted(str):
        def __getitem__(self, place):
            steps[0] += 1
            return super().__getitem__(place)

    assert not like("%a" * 60 + "b", Counted("a" * 128))
    assert not like("%" + "a" * 60 + "b", Counted("a" * 128))
    assert steps[0] < 60 * 128 * 2


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("%", "", True),
        ("_", "", False),
        ("%b_%", "abba", True),
        ("a%b", "abc", False),
        ("%%", "x", True),
    ],
)
def test_a_pattern_of_names_fits_as_like_does(pattern, text, fits):
    assert like(pattern, text) is fits
