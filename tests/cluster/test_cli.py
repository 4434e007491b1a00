"""The command line: results on standard output, one line for an error, exit codes for programs."""

import json
import socket

import pytest

from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import open_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def at(cluster):
    return ("--connect", cluster.addresses()[0])


def test_rows_are_printed_for_people_and_as_json_for_programs(cli, at):
    query = "select r_name, null as nothing from region order by 1 limit 2"
    people = cli("sql", *at, query)
    assert people.returncode == 0
    assert "AFRICA" in people.stdout
    assert "2 rows" in people.stdout
    programs = json.loads(cli("sql", *at, "--json", query).stdout)
    assert programs["columns"] == ["r_name", "nothing"]
    assert programs["rows"] == [{"r_name": "AFRICA", "nothing": None}, {"r_name": "AMERICA", "nothing": None}]
    assert programs["stats"]["legs"] == 1


def test_what_a_terminal_would_obey_is_written_out(cli, at):
    hostile = "chr(27) || '[31m' || chr(7) || chr(8238) || 'é' || chr(160)"
    rows = cli("sql", *at, f"select {hostile} as x").stdout
    assert r"\x1b[31m\x07\u202eé" in rows
    plan = cli("explain", *at, "select '\x1b[31m\u202e' as x from region").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(rows + plan)


def test_a_statement_may_come_from_standard_input(cli, at):
    assert "25" in cli("sql", *at, "-", stdin="select count(*) from nation").stdout


def test_explain_and_members_speak_to_people_and_programs(cli, at):
    assert "of 16 partitions" in cli("explain", *at, "select * from orders where o_orderkey = 1").stdout
    assert json.loads(cli("explain", *at, "--json", "select count(*) from orders").stdout)["fragments"]
    asked = ("--engine", "auto", "--analyze", "select count(*) from orders")
    shown = " ".join(cli("explain", *at, *asked).stdout.split())
    assert "engine: cluster, because the merge is guessed at" in shown
    assert " gave 1 rows, " in shown
    assert "executor-2" in cli("members", *at).stdout
    assert all(row["serving"] == row["partitions"] for row in json.loads(cli("tables", *at, "--json").stdout))
    assert "lineitem" in cli("tables", *at).stdout
    assert {row["role"] for row in json.loads(cli("members", *at, "--json").stdout)} == {"scheduler", "executor"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from nope", "'nope' does not exist"),
        ("select nope from orders", "nope"),
        ("select from where", "line 1, column"),
        ("selec 1", "line 1, column 1"),
        (" ", "the statement is empty"),
        ("create index i on orders (o_orderkey)", "CREATE INDEX cannot be run here"),
        ("select * from read_csv('/etc/passwd')", "read_csv"),
        ("select * from '/etc/passwd'", "/etc/passwd"),
    ],
)
def test_a_bad_statement_is_one_line_and_exit_code_1(cli, at, query, said):
    done = cli("sql", *at, query)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


SCHEDULER = ("node", "--role", "scheduler", "--node-id", "s")
INSECURE = ("--allow-insecure-connections", "--http-port", "0", "--metrics-port", "0")


def test_wrong_usage_is_exit_code_2(cli):
    assert cli("sql").returncode == 2
    assert cli("sql", "--nope", "select 1").returncode == 2
    assert cli("fly").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sql", "--connect", "127.0.0.1:1", "select 1"), "127.0.0.1:1 cannot be reached"),
        (("sql", "--connect", "nonsense", "select 1"), "host:port"),
        (("node", "--role", "scheduler"), "node_id: missing"),
        (("node", "--role", "boss", "--node-id", "x", "--state-location", "memory://x"), "role"),
        ((*SCHEDULER, "--state-location", "memory://x"), "certificate"),
        ((*SCHEDULER, *INSECURE, "--state-location", "ftp://x"), "ftp://x"),
        ((*SCHEDULER, *INSECURE, "--state-location", "file:///proc/x"), "cannot be written"),
        (("node", "--config", "/does/not/exist.yaml"), "cannot be read"),
    ],
)
def test_trouble_with_the_surroundings_is_one_line_and_exit_code_1(cli, arguments, said):
    done = cli(*arguments)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named(cli, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = cli(
            *(*SCHEDULER, *INSECURE, "--state-location", (tmp_path / "s").as_uri()),
            *("--flight-port", port, "--control-port", "0"),
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_a_document_of_another_release_is_refused(cli, tmp_path):
    ObjectState(open_store(tmp_path.as_uri()), CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    path = tmp_path / CLUSTER_KEY
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))
    done = cli(
        *(*SCHEDULER, *INSECURE, "--state-location", tmp_path.as_uri()),
        *("--flight-port", "0", "--control-port", "0"),
    )
    assert done.returncode == 1
    assert "schema version 2" in done.stderr.lower()


ODD_VALUES = (
    "select date 'infinity' as a, timestamp '-infinity' as b, date '0044-03-15 (BC)' as c, "
    "timestamp '2020-01-02 03:04:05' as d, interval '1 month 2 days' as e, 'ab'::blob as f, [1, null] as g, "
    "map {'a': 1} as h, true as i, 'nan'::double as j, time '10:00' as k"
)


def test_every_value_is_printed_as_http_writes_it(cli, at):
    done = cli("sql", "--json", ODD_VALUES, *at)
    assert json.loads(done.stdout)["rows"] == [
        {
            "a": "infinity", "b": "-infinity", "c": "-0043-03-15", "d": "2020-01-02T03:04:05.000000",
            "e": "P1M2DT0S", "f": "YWI=", "g": [1, None], "h": [{"key": "a", "value": 1}], "i": True, "j": "NaN",
            "k": "10:00:00.000000",
        }
    ]  # fmt: skip
    done = cli("sql", ODD_VALUES, *at)
    assert done.returncode == 0, done.stderr
    twice = cli("sql", "--json", "select 1 as a, 2 as a", *at)
    assert "two columns are called 'a'" in twice.stdout + twice.stderr
    assert "Traceback" not in twice.stderr + done.stderr
