"""Credentials of a scan are used and never shown, kept or copied by accident."""

from __future__ import annotations

import copy
import logging
import pickle

import attrs
import orjson
import pyarrow as pa
import pytest

from ballista_py.errors import to_wire
from ballista_py.runtime import SystemRuntime
from ballista_py.scans.scan_run import ScanAttempt
from ballista_py.scans.storage_credentials import CurrentCredentials, RefreshCredentials, StorageCredentials
from ballista_py.scans.task import FileSlice, ScanTask
from ballista_py.secret import Secret
from ballista_py.state.documents.codec import converter
from ballista_py.transport.flight.wire import to_json

TEXT = "correct-horse-battery"
GIVEN = StorageCredentials(location="s3://b/t/", values={"s3.session-token": Secret(TEXT)}, valid_ms=1e6)
TASK = ScanTask(
    fragment_id="f",
    files=(FileSlice(path="s3://b/t/x", size=1),),
    columns=("a",),
    schema=pa.schema([("a", pa.int64())]),
    credentials=GIVEN,
)
HOLDERS = [
    GIVEN,
    TASK,
    RefreshCredentials(task_ids=("f/0",), credentials=GIVEN),
    ScanAttempt(id=1, task=TASK, worker="e", began_ms=0.0),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_whatever_holds_them_shows_nothing_of_them(holder, caplog):
    with pytest.raises(ValueError) as raised:
        raise ValueError("wrong", holder)
    logging.getLogger("x").warning("holder %s %r", holder, holder)
    shown = [str(holder), repr(holder), f"{holder}", str(attrs.asdict(holder)), repr(raised.value), caplog.text]
    shown += [str(to_wire(raised.value)), to_json({"holder": holder}).decode()]
    assert all(TEXT not in text for text in shown)


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_whatever_holds_them_is_not_pickled_copied_or_written_as_a_document(holder):
    for leave in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leave(holder)
    with pytest.raises(Exception) as raised:  # whichever of its fields is met first
        orjson.dumps(converter().unstructure(holder))
    assert TEXT not in str(raised.value)


def test_credentials_in_hand_show_nothing():
    current = CurrentCredentials(GIVEN, SystemRuntime())
    assert TEXT not in f"{current} {current!r} {vars(current)}"
    with pytest.raises(TypeError):
        pickle.dumps(current)
    assert current.get().values["s3.session-token"].reveal() == TEXT


def test_two_are_compared_by_what_is_no_secret():
    other = attrs.evolve(GIVEN, values={"s3.session-token": Secret("other")})
    assert other == GIVEN
    assert hash(other) == hash(GIVEN)
    assert attrs.evolve(GIVEN, values={"s3.access-key-id": Secret(TEXT)}) != GIVEN
    assert attrs.evolve(GIVEN, number=1) != GIVEN
