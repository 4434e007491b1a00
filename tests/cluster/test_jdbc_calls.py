"""The calls that the Flight SQL driver for JDBC makes, made by hand in its order: the driver itself is not here."""

import base64

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py import LocalCluster
from ballista_py.transport.flight_sql.messages import message, pack, read
from ballista_py.transport.flight_sql.sql_info import DATE_FUNCTIONS, NUMERIC_FUNCTIONS, STRING_FUNCTIONS

pytestmark = pytest.mark.cluster
ALICE = "alice-0123456789abcdef"
NOTHING = pa.schema([])
# The numbers of the specification from which every answer of DatabaseMetaData is made: all of one kind are there.
INFOS = {*range(9), *range(500, 577)} - {6, 7}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"alice {ALICE}\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=1, executors=1, token=ALICE, node_options=options) as made:
        yield made


class Driver:
    """A connection as the driver opens one: a handshake first, its token and the server's cookies ever after."""

    def __init__(self, address, shown):
        self.cookies = {}
        with grpc.insecure_channel(address) as channel:
            handshake = channel.stream_stream("/arrow.flight.protocol.FlightService/Handshake")
            call = handshake(iter([b""]), metadata=(("authorization", shown),), timeout=30)  # one empty request
            assert list(call) == []
            self.authorization = dict(call.initial_metadata())["authorization"]
        driver = self

        class Cookies(flight.ClientMiddleware):
            def received_headers(self, headers):
                for line in headers.get("set-cookie", []):
                    name, _, value = line.partition(";")[0].partition("=")
                    driver.cookies[name] = value

            def sending_headers(self):
                sent = "; ".join(f"{name}={value}" for name, value in driver.cookies.items())
                return {"authorization": driver.authorization, **({"cookie": sent} if sent else {})}

        class Factory(flight.ClientMiddlewareFactory):
            def start_call(self, info):
                return Cookies()

        self.client = flight.FlightClient(f"grpc://{address}", middleware=[Factory()])

    def action(self, name, request):
        return [result.body.to_pybytes() for result in self.client.do_action(flight.Action(name, request))]

    def prepare(self, sql):
        """Every statement of JDBC is a prepared one. Its handle, its columns, its parameters."""
        request = pack(message("ActionCreatePreparedStatementRequest", query=sql))
        (found,) = self.action("CreatePreparedStatement", request)
        result = unpacked(found, "ActionCreatePreparedStatementResult")
        schemas = (
            pa.ipc.read_schema(pa.py_buffer(data)) if data else NOTHING
            for data in (result.dataset_schema, result.parameter_schema)
        )
        return result.prepared_statement_handle, *schemas

    def update(self, handle, rows=None):
        """`executeUpdate`: one batch, which without parameters has no columns and no rows."""
        command = pack(message("CommandPreparedStatementUpdate", prepared_statement_handle=handle))
        rows = pa.RecordBatch.from_arrays([], schema=NOTHING) if rows is None else rows
        writer, reader = self.client.do_put(flight.FlightDescriptor.for_command(command), rows.schema)
        writer.write_batch(rows)
        writer.done_writing()
        changed = read("DoPutUpdateResult", reader.read().to_pybytes()).record_count
        writer.close()
        return changed

    def query(self, handle, rows=None):
        """`executeQuery`: parameters first, if there are any; then the info, and each endpoint where it says."""
        command = pack(message("CommandPreparedStatementQuery", prepared_statement_handle=handle))
        descriptor = flight.FlightDescriptor.for_command(command)
        if rows is not None:
            writer, reader = self.client.do_put(descriptor, rows.schema)
            writer.write_batch(rows)
            writer.done_writing()
            said = read("DoPutPreparedStatementResult", reader.read().to_pybytes())
            writer.close()
            command = pack(
                message("CommandPreparedStatementQuery", prepared_statement_handle=said.prepared_statement_handle)
            )
        return self.rows(command)

    def rows(self, command):
        info = self.client.get_flight_info(flight.FlightDescriptor.for_command(command))
        tables = [self.fetched(endpoint) for endpoint in info.endpoints]
        return pa.concat_tables(tables) if tables else info.schema.empty_table()

    def fetched(self, endpoint):
        """Wherever the first place does not answer, the next one is asked."""
        failed = []
        for location in endpoint.locations or [flight.Location("arrow-flight-reuse-connection://?")]:
            client = self.client
            if "reuse-connection" not in location.uri.decode():
                client = flight.FlightClient(location)
            try:
                return client.do_get(endpoint.ticket).read_all()
            except (flight.FlightError, pa.ArrowException) as error:
                failed.append(error)
        raise failed[0]


def unpacked(data, name):
    from ballista_py.transport.flight_sql.messages import unpack

    found = unpack(data)
    assert found.DESCRIPTOR.name == name
    return found


@pytest.fixture(scope="module")
def driver(cluster):
    basic = base64.b64encode(f"alice:{ALICE}".encode()).decode()
    made = Driver(cluster.addresses()[0], f"Basic {basic}")
    yield made
    made.client.close()


def test_a_connection_with_a_token_begins_with_a_handshake_too(cluster):
    driver = Driver(cluster.addresses()[0], f"Bearer {ALICE}")
    assert driver.authorization == f"Bearer {ALICE}"
    handle, _columns, _parameters = driver.prepare("select 1 as one")
    assert driver.query(handle).to_pylist() == [{"one": 1}]


def test_statements_of_every_kind_are_prepared_ones(driver):
    for sql, changed in (
        ("create table kinds (id bigint not null, kind varchar) partitioned by (bucket(2, id))", None),
        ("insert into kinds values (1, 'a'), (2, 'b')", 2),
        ("update kinds set kind = 'c' where id = 2", 1),
    ):
        handle, columns, parameters = driver.prepare(sql)
        assert (columns, parameters) == (NOTHING, NOTHING)  # no columns: an update for JDBC
        assert driver.update(handle) == (changed or 0)
        assert driver.action("ClosePreparedStatement", closing(handle)) == []
    handle, columns, parameters = driver.prepare("select id, kind from kinds order by id")
    assert (columns.names, parameters) == (["id", "kind"], NOTHING)
    assert driver.query(handle).to_pylist() == [{"id": 1, "kind": "a"}, {"id": 2, "kind": "c"}]


def closing(handle):
    return pack(message("ActionClosePreparedStatementRequest", prepared_statement_handle=handle))


def test_parameters_are_bound_by_the_types_that_the_server_names(driver):
    driver.update(driver.prepare("create or replace table bound (id bigint, name varchar, made date)")[0])
    handle, columns, parameters = driver.prepare("insert into bound values (?, ?, ?)")
    assert columns == NOTHING
    assert len(parameters) == 3
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3]), pa.array(["a", None, "c"]), pa.array([0, 1, None], pa.date32())],
        names=parameters.names,
    )
    assert driver.update(handle, rows) == 3  # a batch of JDBC
    handle, columns, parameters = driver.prepare("select name from bound where id >= ? order by id")
    assert (columns.names, len(parameters)) == (["name"], 1)
    again = pa.RecordBatch.from_arrays([pa.array([2])], names=parameters.names)
    for _ in range(2):
        assert driver.query(handle, again)["name"].to_pylist() == [None, "c"]


def test_a_catalog_of_the_connection_is_an_option_of_its_session(driver):
    driver.prepare("select 1")  # the first answer brings the cookie
    for name, wrong in (("ballista", False), ("other", True)):
        asked = message("SetSessionOptionsRequest")
        asked.session_options["catalog"].string_value = name
        (said,) = driver.action("SetSessionOptions", asked.SerializeToString())
        assert bool(read("SetSessionOptionsResult", said).errors) is wrong
    (closed,) = driver.action("CloseSession", b"")
    assert read("CloseSessionResult", closed).status == 1


def test_all_that_a_driver_asks_about_the_server_has_an_answer_of_its_kind(driver):
    table = driver.rows(pack(message("CommandGetSqlInfo")))
    found = dict(zip(table["info_name"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert set(found) >= INFOS
    assert found[0] == "ballista_py"
    assert found[504] == '"'
    for number in (*range(541, 556), 557, 558, 559, 560, 561, 562):
        assert type(found[number]) is int
    for number in (515, 516, 518, 521, 523, 524, 536, 537, 539, 556, 563, 565, 566, 572, 573):
        assert type(found[number]) is bool
    for number in (508, 509, 510, 511, 512):
        assert type(found[number]) is list
    assert driver.rows(pack(message("CommandGetXdbcTypeInfo"))).num_rows > 5


def test_what_is_said_of_the_server_is_so(driver):
    driver.update(driver.prepare("create or replace table said (id bigint, name varchar)")[0])
    driver.update(driver.prepare("insert into said values (1, 'a_b'), (2, null), (3, 'c')")[0])
    for sql in (
        "select id as other from said as s order by s.name",  # aliases; ordered by what is not selected
        "select count(*) from said group by name",
        "select id from said where name like 'a\\_b' escape '\\'",
        "select id from said where id = any (select id from said)",
        "select id from said where id >= all (select id from said)",
        "select id from said as a where exists (select 1 from said as b where b.id = a.id + 1)",
        "select id from said union select 7",
        "select a.id from said a full outer join said b on a.id = b.id + 1",
        "select 1 + null",
    ):
        assert driver.query(driver.prepare(sql)[0]).num_rows, sql
    arguments = {"PI": "", "ATAN2": "1, 2", "POWER": "2, 3", "LOG": "10", "ASCII": "'a'", "CHR": "65",
                 "GREATEST": "1, 2", "LEAST": "1, 2",
                 "CONCAT": "'a', 'b'", "LEFT": "'ab', 1", "RIGHT": "'ab', 1", "LPAD": "'a', 3, ' '",
                 "RPAD": "'a', 3, ' '", "REPEAT": "'a', 2", "REPLACE": "'ab', 'a', 'c'", "SUBSTRING": "'ab', 1, 1",
                 "DATE_PART": "'year', date '2026-11-24'", "DATE_TRUNC": "'month', date '2026-11-24'"}  # fmt: skip
    usual = (
        (NUMERIC_FUNCTIONS, "0.5"),
        (STRING_FUNCTIONS, "'ab'"),
        (DATE_FUNCTIONS, "timestamp '2026-11-24 12:00:00'"),
    )
    calls = [f"{name}({arguments.get(name, usually)})" for names, usually in usual for name in names]
    columns = ", ".join(f"{call} as f{number}" for number, call in enumerate(calls))
    assert driver.query(driver.prepare(f"select {columns}")[0]).num_columns == len(calls)


@pytest.mark.parametrize(
    "command",
    [
        message("CommandGetCatalogs"),
        message("CommandGetDbSchemas"),
        message("CommandGetTableTypes"),
        message("CommandGetTables", include_schema=True, table_name_filter_pattern="%"),
        message("CommandGetPrimaryKeys", table="said"),
        message("CommandGetExportedKeys", table="said"),
        message("CommandGetImportedKeys", table="said"),
        message("CommandGetCrossReference", pk_table="said", fk_table="said"),
    ],
    ids=lambda command: command.DESCRIPTOR.name,
)
def test_the_lists_of_metadata_are_there(driver, command):
    assert driver.rows(pack(command)).schema.names
