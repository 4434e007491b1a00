"""`gs://bucket/prefix` through gcsfs: its credentials and HTTP session, our requests with `ifGenerationMatch`.

A version is a generation, which Google never gives twice to an object. The requests are our own because gcsfs
repeats its uploads and cannot make them conditional on a generation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

from ballista_py.errors import MissingExtra, UnsafeStore
from ballista_py.runtime import Runtime
from ballista_py.state.stores.remote import (
    REQUEST_TIMEOUT_MS,
    Meaning,
    Page,
    RemoteStore,
    Trouble,
    aiohttp_trouble,
    in_loop,
    meaning_of_status,
    open_filesystem,
    read_bounded,
    require_bound,
)
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ObjectEntry, StoredObject

_ABSENT = "0"


class _RefusalError(Exception):
    """An answer of 400 or above."""

    def __init__(self, status: int, bucket_is_missing: bool) -> None:
        self.status = status
        self.bucket_is_missing = bucket_is_missing


class GcsStore(RemoteStore):
    """Objects of one bucket below `prefix`, as a `ConditionalStore`.

    `options` go to `gcsfs.GCSFileSystem` (`token`, `project`, `endpoint_url`, `requester_pays`, …). Raises
    `MissingExtra` and, for options or credentials that gcsfs does not take, `ConfigError`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        runtime: Runtime,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        super().__init__(prefix, runtime=runtime)
        try:
            import aiohttp
            from gcsfs.core import GCSFileSystem  # not the face that asks the bucket for its layout first
        except ImportError:
            raise MissingExtra.of("gcsfs", "gcs") from None
        self._bucket = bucket
        seconds = request_timeout_ms / 1e3
        self._timeout = aiohttp.ClientTimeout(sock_connect=seconds, sock_read=seconds)
        self._fs = open_filesystem("gs", GCSFileSystem, **options)
        self._objects = f"{self._fs.base}b/{quote(bucket, safe='')}/o"
        self._uploads = f"{self._fs._location}/upload/storage/v1/b/{quote(bucket, safe='')}/o"

    def __repr__(self) -> str:
        return f"GcsStore('gs://{self._bucket}/{self._prefix}')"

    def _send_get(self, path: str, max_bytes: int) -> StoredObject:
        headers, data = in_loop(
            self._fs, self._request, "GET", self._object(path), None, {"alt": "media"}, max_bytes
        )
        return StoredObject(data, _generation(headers.get("x-goog-generation"), path))

    def _send_create(self, path: str, data: bytes) -> str:
        return self._upload(path, data, _ABSENT)

    def _send_replace(self, path: str, data: bytes, version: str) -> str:
        return self._upload(path, data, version)

    def _send_delete(self, path: str) -> None:
        self._call("DELETE", self._object(path))

    def _send_list(self, path: str, token: Any) -> Page:
        import orjson

        more = {} if token is None else {"pageToken": token}
        answer = orjson.loads(self._call("GET", self._objects, prefix=path, **more)[1])
        entries = tuple(
            ObjectEntry(
                key=found["name"],
                size=int(found["size"]),
                version=str(found["generation"]),
                modified_ms=int(datetime.fromisoformat(found["updated"]).timestamp() * 1e3),
            )
            for found in answer.get("items", ())
        )
        return Page(entries, answer.get("nextPageToken"))

    def _is_version(self, version: str) -> bool:
        return version.isascii() and version.isdigit() and version != _ABSENT

    def _upload(self, path: str, data: bytes, generation: str) -> str:
        import orjson

        answer = self._call(
            "POST", self._uploads, data, uploadType="media", name=path, ifGenerationMatch=generation
        )
        return _generation(orjson.loads(answer[1]).get("generation"), path)

    def _object(self, path: str) -> str:
        return f"{self._objects}/{quote(path, safe='')}"

    def _call(self, method: str, url: str, data: bytes | None = None, **parameters: str) -> tuple[Any, bytes]:
        return in_loop(self._fs, self._request, method, url, data, parameters)

    async def _request(
        self,
        method: str,
        url: str,
        data: bytes | None,
        parameters: dict[str, str],
        max_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> tuple[Any, bytes]:
        from yarl import URL

        await self._fs._set_session()
        async with self._fs.session.request(
            method,
            URL(url, encoded=True),
            params=self._fs._get_params(parameters),
            data=data,
            headers=self._fs._get_headers(
                {"Content-Type": "application/octet-stream"} if data is not None else None
            ),
            timeout=self._timeout,
        ) as answer:
            require_bound(answer.content_length, max_bytes)
            body = await read_bounded(answer.content.iter_any(), max_bytes)  # what was packed is unpacked here
            if answer.status >= 400:
                raise _RefusalError(answer.status, answer.status == 404 and b"bucket does not exist" in body)
            return answer.headers, body

    def _trouble(self, error: Exception) -> Trouble:
        if not isinstance(error, _RefusalError):
            if type(error).__name__ == "DefaultCredentialsError":
                return Trouble.unproven("gs", "DefaultCredentialsError")
            if type(error).__module__.startswith("google.auth"):  # before anything was sent
                return Trouble(Meaning.UNSENT, type(error).__name__)
            return aiohttp_trouble(error)
        if error.bucket_is_missing:
            return Trouble(Meaning.REFUSED, "the bucket does not exist")
        if error.status == 401:
            return Trouble.unproven("gs", "401")
        return Trouble(meaning_of_status(error.status), str(error.status))


def _generation(given: object, path: str) -> str:
    if not given:
        raise UnsafeStore(f"the store gives no version with object '{path}'; use another store")
    return str(given)
