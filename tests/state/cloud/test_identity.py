"""The identity of a cluster is the same for every client of a store, and another one for a copy in it."""

from __future__ import annotations

import time

import pytest
from attrs import evolve

from ballista_py.state.members.identity import IDENTITY_KEY, cluster_identity

WHOLE_SECOND_S = 1.1  # the times that some stores give have no parts of seconds


@pytest.mark.turn(3)
@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure"], indirect=True)
def test_a_location_is_one_cluster_and_a_copy_of_it_another(endpoint, prefix):
    store, copy = endpoint.open(f"{prefix}/state"), endpoint.open(f"{prefix}/copy")
    found = cluster_identity(store)
    time.sleep(WHOLE_SECOND_S)
    assert cluster_identity(endpoint.open(f"{prefix}/state")) == found
    copy.create(IDENTITY_KEY, store.get(IDENTITY_KEY).data)
    assert cluster_identity(copy) != found
    assert cluster_identity(store) == found


@pytest.mark.parametrize("endpoint", ["s3"], indirect=True)
def test_two_kinds_of_client_agree_on_it(endpoint, prefix):
    other = evolve(endpoint, kind="obstore")
    assert cluster_identity(endpoint.open(prefix)) == cluster_identity(other.open(prefix))
