"""The object store as a node sees it: each request counted and timed by its verb, and a span where there are any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from ballista_py.errors import BallistaError, StoreError
from ballista_py.figures import Figures
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import (
    MAX_DOCUMENT_BYTES,
    ConditionalStore,
    LocalFiles,
    ObjectEntry,
    StoredObject,
)
from ballista_py.traces import spanned

DONE = "done"


@frozen
class ObservedStore:
    """As `store`. `figures` are told of every request."""

    store: ConditionalStore
    figures: Figures
    runtime: Runtime

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        """See `ConditionalStore.get`."""
        with self._request("get"):
            return self.store.get(key, max_bytes)

    def create(self, key: str, data: bytes) -> str:
        """See `ConditionalStore.create`."""
        with self._request("create"):
            return self.store.create(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """See `ConditionalStore.replace`."""
        with self._request("replace"):
            return self.store.replace(key, data, version)

    def delete(self, key: str) -> None:
        """See `ConditionalStore.delete`."""
        with self._request("delete"):
            self.store.delete(key)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        """See `ConditionalStore.list`; counted as one, from its first entry to its last."""
        with self._request("list"):
            yield from self.store.list(prefix)

    def get_if_changed(self, key: str, version: str) -> StoredObject | None:
        """See `ConditionalStore.get_if_changed`."""
        with self._request("get_if_changed"):
            return self.store.get_if_changed(key, version)

    @contextmanager
    def _request(self, verb: str) -> Iterator[None]:
        outcome, began_ms = DONE, self.runtime.monotonic_ms()
        try:
            with spanned(f"store.{verb}"):
                yield
        except BaseException as error:
            outcome = error.code if isinstance(error, StoreError) else BallistaError.code
            raise
        finally:
            self.figures.add("store_requests", verb=verb, outcome=outcome)
            self.figures.record("store_request_duration_ms", self.runtime.monotonic_ms() - began_ms, verb=verb)


@frozen
class ObservedFiles(ObservedStore):
    """As `ObservedStore`, over objects that are plain files of this machine."""

    def local_path(self, key: str) -> str:
        """See `LocalFiles.local_path`."""
        assert isinstance(self.store, LocalFiles)
        return self.store.local_path(key)


def observed_store(store: ConditionalStore, figures: Figures, runtime: Runtime) -> ObservedStore:
    """The store, observed; it offers files if the store does."""
    kind = ObservedFiles if isinstance(store, LocalFiles) else ObservedStore
    return kind(store, figures, runtime)
