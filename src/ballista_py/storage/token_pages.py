"""The tokens of statements that were applied, beyond the newest ones: pages beside the manifest that names them.

Promises: a statement that was applied is known as such for `TOKENS_KEPT_MS` at least, however many follow it. The
manifest holds the newest tokens itself; every now and then its owner moves them to a page, an object that never
changes. A page goes once this process has known it for that long by its own monotonic clock, so after its tokens were
surely applied that long ago, whoever applied them. Where there is no room for more, statements are refused. A page is
named by a digest of its bytes, so that another one in its place is no page.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import orjson
from attrs import frozen

from ballista_py.errors import BallistaError, DocumentLost, DocumentUnreadable, ObjectMissing, TryLater
from ballista_py.runtime import Runtime
from ballista_py.state.documents.lost_documents import way_out
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.write_tokens import TOKENS_KEPT_MS, is_same, name_of
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import (
    MAX_PAGES,
    PAGE_TOKENS,
    AppliedToken,
    ManifestDocument,
    TokenPage,
    manifest_key,
)

MAX_LOADED = 4_096
MARK_BYTES = 16
_DIGEST_AFTER = "~"  # pages of earlier releases have none


@frozen(kw_only=True)
class PageTurn:
    """A `page` written for the tokens `moved`, to follow the pages `kept` of those `before`; it took in `merged`."""

    page: TokenPage
    moved: tuple[AppliedToken, ...]
    before: tuple[TokenPage, ...]
    kept: tuple[TokenPage, ...]
    merged: str | None


class TokenPages:
    """What one process knows of pages. Safe to share between threads; holds marks of the tokens on the last 4,096."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._lock = runtime.lock()
        self._marks: OrderedDict[str, bytes] = OrderedDict()
        self._known_ms: OrderedDict[str, float] = OrderedDict()

    def applied(self, manifest: ManifestDocument, token: str) -> AppliedToken | None:
        """What the statement of that token did, if it is known to have been applied.

        Raises what the store raises, `DocumentUnreadable` for a page that is damaged, `DocumentLost` for one that is
        gone, and `TryLater` if it went because the manifest is another one by now.
        """
        found = manifest.applied(token)
        if found is not None or not manifest.pages:
            return found
        mark = _mark(token)
        for page in reversed(manifest.pages):
            try:
                if _is_among(mark, self._marks_of(page.path)):
                    same = next((t for t in self.read(page) if is_same(t.token, token)), None)
                    if same is not None:
                        return same
            except ObjectMissing:
                raise self._gone(manifest, page) from None
        return None

    def _gone(self, manifest: ManifestDocument, page: TokenPage) -> BallistaError:
        """What a page means that is not there: it is lost, if the manifest of now names it."""
        key = manifest_key(manifest.table, manifest.partition)
        now = ObjectState(self._store, key, ManifestDocument, runtime=self._runtime).read().document
        if page in now.pages:
            return DocumentLost(
                f"'{page.path}' is gone, which tells earlier statements: {way_out()}", key=page.path
            )
        return TryLater(f"'{key}' was changed meanwhile: send the statement again")

    def read(self, page: TokenPage) -> list[AppliedToken]:
        """The tokens on a page, oldest first. Raises as `applied` does."""
        return _decoded(page.path, self._store.get(page.path).data)

    def turned(self, manifest: ManifestDocument) -> PageTurn | None:
        """Write a page for all tokens of the manifest but the newest; None if there is room for no page more.

        It takes in the last page, unless that is full. Raises what the store raises.
        """
        before = manifest.pages
        merged = before[-1] if before and before[-1].tokens < PAGE_TOKENS else None
        kept = self._still_needed(before if merged is None else before[:-1])
        if len(kept) >= MAX_PAGES:
            return None
        moved = manifest.tokens[:-1]
        tokens = (*(() if merged is None else self.read(merged)), *moved)
        data = _encoded(tokens)
        name = f"{self._runtime.new_id()}{_DIGEST_AFTER}{_digest(data)}"
        page = TokenPage(path=f"snapshots/{manifest.table}/tokens/{name}", tokens=len(tokens))
        self._store.create(page.path, data)
        self._note(page.path, tokens)
        return PageTurn(
            page=page, moved=moved, before=before, kept=kept, merged=None if merged is None else merged.path
        )

    def discard(self, path: str | None) -> None:
        """Remove a page that no manifest names any more."""
        if path is None:
            return
        self._store.delete(path)  # its marks stay for a while: another thread may still look at an older manifest

    def _still_needed(self, pages: tuple[TokenPage, ...]) -> tuple[TokenPage, ...]:
        """Those with tokens that may be sent again; the newest one in any case."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            known = [self._known_ms.setdefault(page.path, now_ms) for page in pages]
        last = len(pages) - 1
        return tuple(page for n, page in enumerate(pages) if n == last or now_ms - known[n] < TOKENS_KEPT_MS)

    def _marks_of(self, path: str) -> bytes:
        with self._lock:
            found = self._marks.get(path)
            if found is not None:
                self._marks.move_to_end(path)
                return found
        return self._note(path, _decoded(path, self._store.get(path).data))

    def _note(self, path: str, tokens: Iterable[AppliedToken]) -> bytes:
        marks = b"".join(sorted(_mark(token.token) for token in tokens))
        with self._lock:
            self._known_ms.setdefault(path, self._runtime.monotonic_ms())
            self._marks[path] = marks
            for known in (self._marks, self._known_ms):
                while len(known) > MAX_LOADED:  # what is forgotten counts as known from the next look on
                    known.popitem(last=False)
        return marks


def is_whole(store: ConditionalStore, page: TokenPage) -> bool:
    """Whether the page is there as it was written. Raises what the store raises."""
    try:
        return len(_decoded(page.path, store.get(page.path).data)) == page.tokens
    except (ObjectMissing, DocumentUnreadable):
        return False


def _mark(token: str) -> bytes:
    return blake2b(name_of(token).encode(), digest_size=MARK_BYTES).digest()


def _is_among(mark: bytes, marks: bytes) -> bool:
    found = bisect_left(range(len(marks) // MARK_BYTES), mark, key=lambda n: _nth(marks, n))
    return _nth(marks, found) == mark


def _nth(marks: bytes, n: int) -> bytes:
    return marks[n * MARK_BYTES : (n + 1) * MARK_BYTES]


def _encoded(tokens: tuple[AppliedToken, ...]) -> bytes:
    rows = [[t.token, t.added, t.removed, t.affected, t.by, t.at_ms] for t in tokens]
    return zlib.compress(orjson.dumps(rows))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=MARK_BYTES).hexdigest()


def _decoded(path: str, data: bytes) -> list[AppliedToken]:
    _, named, digest = path.rpartition("/")[2].rpartition(_DIGEST_AFTER)
    if named and digest != _digest(data):
        raise DocumentUnreadable(
            f"object '{path}' is not the page of tokens that was written there: {way_out()}", key=path
        )
    try:
        rows: list[list[Any]] = orjson.loads(zlib.decompress(data))
        return [
            AppliedToken(token=token, added=added, removed=removed, affected=affected, by=by, at_ms=at_ms)
            for token, added, removed, affected, by, at_ms in rows
        ]
    except (zlib.error, ValueError, TypeError):
        raise DocumentUnreadable(f"the page of tokens '{path}' is damaged: {way_out()}", key=path) from None
