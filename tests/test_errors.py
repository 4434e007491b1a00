"""The tree of errors: stable codes, one picture, and the way over the wire."""

import pickle

import pytest

from ballista_py import errors
from ballista_py.errors import BallistaError, ConfigError, MissingExtra, NotOwner, SqlError, from_wire, to_wire
from ballista_py.one_line import without_places
from ballista_py.state.documents.decisions import statements_key
from ballista_py.state.documents.documents import CLUSTER_KEY, heartbeat_key, partition_map_key, table_key
from ballista_py.state.documents.policies import POLICIES_KEY
from ballista_py.state.members.identity import IDENTITY_KEY
from ballista_py.storage.held.seen import seen_key
from ballista_py.storage.manifest import manifest_key


def every_error() -> list[type[BallistaError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BallistaError)]


def test_every_class_has_a_code_of_its_own_below_its_parents():
    codes = [kind.code for kind in every_error()]
    assert len(set(codes)) == len(codes)
    for kind in every_error():
        parent = kind.__mro__[1]
        if parent not in (BallistaError, Exception):
            assert kind.code.startswith(parent.code + ".")


def test_the_picture_at_the_top_names_every_class():
    for kind in every_error():
        assert kind.__name__ in (errors.__doc__ or "")
        assert kind.__doc__


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_survives_the_wire_and_pickle(kind):
    error = kind("table 't' is gone", table="t", partitions=[1, 2])
    for copy in (from_wire(to_wire(error)), pickle.loads(pickle.dumps(error))):
        assert type(copy) is kind
        assert str(copy) == "table 't' is gone"
        assert copy.details == {"table": "t", "partitions": [1, 2]}


def test_a_code_of_a_newer_release_becomes_its_nearest_known_ancestor():
    newer = {"code": "ownership.not_owner.paused", "message": "m", "details": {}}
    assert type(from_wire(newer)) is NotOwner
    assert type(from_wire({"code": "brand_new", "message": "m"})) is BallistaError


def test_a_foreign_error_crosses_the_wire_without_its_text():
    wire = to_wire(OSError("/secret/path: password=hunter2"))
    assert "secret" not in str(wire)
    assert "hunter2" not in str(wire)
    assert wire["message"] == "internal error (OSError)"


def test_a_missing_extra_names_the_line_that_installs_it():
    error = MissingExtra.of("duckdb", "node")
    assert isinstance(error, ConfigError)
    assert "pip install 'ballista_py[node]'" in str(error)


def test_an_error_shows_its_message_and_nothing_else():
    assert str(SqlError("no such column: x", line=3, column=7)) == "no such column: x"


PLACES = (
    "/etc/pki",
    "s3://",
    "file://",
    "accelerations/answers",
    "data/a.arrow",
    "certs/node.pem",
    "/root",
    "x.arrow",
)
OF_A_NODE = [
    ConfigError("TLS: /etc/pki/node.pem cannot be read: No such file or directory"),
    ConfigError("TLS: certs/node.pem cannot be read: No such file or directory", file="certs/node.pem"),
    ConfigError("state location 's3://bucket/prefix' is not usable: (file:///root/x)"),
    errors.DocumentUnreadable(
        "object 'accelerations/answers/./x.arrow' holds no rows", key="accelerations/answers/./x.arrow"
    ),
    errors.StoreUnavailable("object 'snapshots/t/data/a.arrow' cannot be read", key="snapshots/t/data/a.arrow"),
    errors.TransportError("no socket at /root/run/front.sock: ~/.ballista/x and /root/a b", place="/root/x/y"),
    NotOwner("replicas cannot tell (object 'accelerations/answers/t/x' is gone): plan again"),
    errors.LeaseExpired("/node.pem and '/etc/pki/'"),
]


@pytest.mark.parametrize("error", OF_A_NODE, ids=lambda error: error.code)
def test_no_error_that_leaves_a_node_says_where_its_files_and_objects_are(error):
    wire = str(to_wire(error))
    assert not [place for place in PLACES if place in wire], wire
    assert " of the node" in wire or "of the state location" in wire


def test_what_a_sender_wrote_and_the_documents_that_have_to_be_put_back_are_named():
    for error in (
        SqlError("Could not convert string '/etc/pki/x' to INTEGER"),
        errors.SchemaMismatch("column 'a/b/c' is missing"),
        errors.DocumentLost("document 'heartbeats/a.json' is gone", key="heartbeats/a.json"),
        NotOwner("replicas cannot tell (document 'snapshots/t/a=1/manifest.json' is gone): plan again"),
        errors.DocumentOlder("document 'cluster.json' is at revision 1/2", key="cluster.json"),
        errors.Unauthenticated("start it with --open-metrics to show /metrics to everybody, and/or TLS"),
    ):
        assert to_wire(error)["message"] == str(error)
        assert to_wire(error)["details"] == error.details


@pytest.mark.parametrize(
    "key",
    [
        CLUSTER_KEY, POLICIES_KEY, IDENTITY_KEY, heartbeat_key("s-1"), partition_map_key("orders"),
        statements_key("orders-5f2a"), table_key("orders-5f2a"), seen_key("orders-5f2a", "executor-1"),
        manifest_key("orders-5f2a", "id_bucket=3"),
    ],
)  # fmt: skip
def test_clients_are_told_which_shared_document_has_to_be_put_back(key):
    said = without_places(f"document '{key}' is gone: put the newest copy back", key)
    assert f"'{key}'" in said


def test_clients_are_not_told_where_a_data_file_is():
    assert "orders" not in without_places("object 'snapshots/orders/data/x.parquet' is gone", "")
