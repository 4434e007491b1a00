"""The tree of errors: stable codes, one picture, and the way over the wire."""

import pickle

import pytest

from ballista_py import errors
from ballista_py.errors import BallistaError, ConfigError, MissingExtra, NotOwner, SqlError, from_wire, to_wire


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
