"""A secret is used and never shown."""

import copy
import logging
import pickle

import attrs
import pytest

from ballista_py import Secret

TEXT = "correct-horse-battery"


@attrs.frozen
class Holder:
    token: Secret


def test_no_way_of_showing_a_secret_shows_it(caplog):
    secret = Secret(TEXT)
    with pytest.raises(ValueError) as raised:
        raise ValueError("wrong", secret)
    logging.getLogger("x").warning("token %s %r", secret, secret)
    shown = [str(secret), repr(secret), f"{secret:>9}", f"{secret!r}", repr([secret]), str({"a": secret})]
    shown += [repr(Holder(secret)), str(attrs.asdict(Holder(secret))), "{}".format(secret), "%s" % secret]  # noqa: UP031, UP032
    shown += [repr(raised.value), str(raised.value), caplog.text]
    assert all(TEXT not in text and "***" in text for text in shown)
    assert secret.reveal() == TEXT


def test_a_secret_does_not_leave_in_a_pickle_or_a_copy():
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leave(Secret(TEXT))


def test_secrets_do_not_compare_by_their_text():
    assert Secret(TEXT) != Secret(TEXT)
