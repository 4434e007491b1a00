"""Which secrets a definition may ask for, and what Spark is given instead of their references."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.secret import Secret
from ballista_py.state.documents.secret_references import referenced_secrets, with_secrets
from ballista_py.state.members.control import AppDefinition

SCHEMA = pa.schema([("id", pa.int64())])
SOURCE = {
    "url": "jdbc:x?u=${secrets:db.user}&p=${secrets:db.pass}",
    "options": {"key": ["${secrets:key-1}"]},
    "n": 3,
}


def test_labels_and_every_depth_of_a_source_are_looked_at():
    table = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA), source=SOURCE)
    definition = AppDefinition(revision=1, tables=(table,), labels={"a": "${secrets:label}", "b": "$secrets:no"})
    assert referenced_secrets(definition) == {"db.user", "db.pass", "key-1", "label"}
    assert referenced_secrets(AppDefinition(revision=1, tables=())) == frozenset()


def test_references_give_way_to_secrets_and_everything_else_stays():
    secrets = {"db.user": Secret("me"), "db.pass": Secret("${secrets:db.user}"), "key-1": Secret("k")}
    opened = with_secrets(SOURCE, secrets)
    assert opened == {"url": "jdbc:x?u=me&p=${secrets:db.user}", "options": {"key": ["k"]}, "n": 3}
    assert with_secrets("plain", {}) == "plain"
    assert with_secrets(None, {}) is None


def test_a_missing_secret_is_named_and_no_other_is_shown():
    with pytest.raises(ConfigError, match=r"'db\.pass'") as raised:
        with_secrets(SOURCE, {"db.user": Secret("hunter2")})
    assert "hunter2" not in str(raised.value)
