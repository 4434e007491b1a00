"""The one contract, on every store: our own two, three clouds, and obstore on top of two of them."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore as ObstoreMemory

from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.obstore import ObstoreStore
from ballista_py.testing import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self, runtime):
        return MemoryStore(runtime=runtime)


class TestLocal(StoreContract):
    whole_check = False  # `test_check_store.py` does it

    @pytest.fixture
    def store(self, runtime, tmp_path):
        return LocalStore(str(tmp_path / "with space and ünicode"), runtime=runtime)


class TestS3(StoreContract):
    bytes_decide_versions = True
    whole_check = False

    @pytest.fixture
    def store(self, s3_server, prefix):
        return s3_server.open(prefix)


class TestGcs(StoreContract):
    whole_check = False

    @pytest.fixture
    def store(self, gcs_server, prefix):
        return gcs_server.open(prefix)


class TestAzure(StoreContract):
    whole_check = False

    @pytest.fixture
    def store(self, azure_server, prefix):
        return azure_server.open(prefix)


class TestObstoreInMemory(StoreContract):
    @pytest.fixture
    def store(self, runtime):
        return ObstoreStore(ObstoreMemory(), runtime=runtime)


class TestObstoreOnS3(StoreContract):
    bytes_decide_versions = True
    whole_check = False

    @pytest.fixture
    def store(self, s3_server, prefix):
        return type(s3_server)("obstore", s3_server.host, s3_server.port).open(prefix)
