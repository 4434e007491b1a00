"""A viewer sees no errors of tables, which tell of values in rows, wherever in a row they stand."""

from __future__ import annotations

import orjson

from ballista_py.node.status.seen_tables import table_seen_by
from ballista_py.node.status.seen_tasks import VIEWER

ERROR = "Could not convert string 'card 4111' to BIGINT"
DONE = {"slot": 3, "last_rows": None, "last_error": ERROR}
ROW = {
    "table": "t",
    "partitions": 4,
    "failed": {"3": ERROR},
    "refresh": {"mode": "full", **DONE},
    "retention": {"sql": "delete from t where card = '4111' and n < 4111", **DONE},
    "changes": {"position": "12 of s", "error": {"code": "source.unfit", "message": ERROR}, "left_over": ["x"]},
    "sql": "select * from s where card = '4111'",
    "refresh_error": ERROR,
    "retention_error": ERROR,
    "retention_sql": "delete from t where card = '4111'",
}


def test_a_viewer_sees_that_there_was_an_error_and_no_value():
    shown = table_seen_by(ROW, VIEWER)
    assert b"4111" not in orjson.dumps(shown)
    assert shown["refresh"]["last_error"]
    assert shown["refresh"]["mode"] == "full"
    assert shown["partitions"] == 4
    assert shown["changes"]["error"]["code"] == "source.unfit"
    assert shown["changes"]["left_over"] == ["x"]
    assert shown["retention"]["sql"] == "delete from t where card = ? and n < ?"


def test_a_client_sees_all_of_it_and_a_viewer_no_error_where_there_was_none():
    assert table_seen_by(ROW, "ann") == ROW
    assert table_seen_by({**ROW, "refresh": None, "sql": None}, VIEWER)["refresh"] is None
    fine = {"refresh": {**DONE, "last_error": None}, "failed": {}}
    assert table_seen_by(fine, VIEWER) == fine
