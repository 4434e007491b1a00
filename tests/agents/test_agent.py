"""How the cluster of a job is reached goes to workers, with all that is needed there."""

from __future__ import annotations

import pickle

import pytest

from ballista_py.agents.agent import ReadSource
from ballista_py.secret import Secret
from ballista_py.transport.security.credentials import Tls


@pytest.mark.parametrize("tls", [None, Tls(ca_file="ca.pem")])
@pytest.mark.parametrize("token", [None, "who-i-am-0123456789"])
def test_a_source_comes_back_with_its_token_which_is_shown_nowhere(token, tls):
    source = ReadSource(url="ballista://h:1", token=None if token is None else Secret(token), tls=tls)
    found = pickle.loads(pickle.dumps(source))
    assert (found.url, found.tls) == (source.url, tls)
    assert (None if found.token is None else found.token.reveal()) == token
    assert token is None or token not in repr(found)
