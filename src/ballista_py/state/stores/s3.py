"""`s3://bucket/prefix` through s3fs: one PUT with `If-None-Match` or `If-Match` a write.

A version is an ETag, which S3 may compute from the contents alone: the same bytes written again can be the same
version. Documents therefore never have equal bytes twice (`ObjectState` sees to it).
"""

from __future__ import annotations

import os
from typing import Any

from ballista_py.errors import MissingExtra, StoreUnavailable, VersionConflict
from ballista_py.runtime import Runtime
from ballista_py.state.stores.remote import (
    REQUEST_TIMEOUT_MS,
    Meaning,
    Page,
    RemoteStore,
    TooLargeError,
    Trouble,
    aiohttp_trouble,
    cannot_open,
    in_loop,
    meaning_of_status,
    open_filesystem,
    read_bounded,
    require_bound,
)
from ballista_py.state.stores.store import ObjectEntry, StoredObject, missing

_BUSY = {
    "SlowDown",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "RequestTimeout",
    "OperationAborted",
}
_PART_BYTES = 1 << 20
REGION, DEFAULT_REGION = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)  # the first is that of newer SDKs, which ours does not read
_NO_BUCKET = {"NoSuchBucket", "NotImplemented"}


class S3Store(RemoteStore):
    """Objects of one bucket below `prefix`, as a `ConditionalStore`. Objects are at most 5 GiB.

    `region` is that of the bucket (without one AWS_DEFAULT_REGION or AWS_REGION says it). Other `options` go to
    `s3fs.S3FileSystem` (`endpoint_url`, `key`, `secret`, `token`, `anon`, `client_kwargs`, `config_kwargs`, …).
    Repetition inside the client is off. Raises `MissingExtra` and, for options that s3fs does not take, `ConfigError`.
    The bucket is not asked for anything before the first verb.
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
            import s3fs
        except ImportError:
            raise MissingExtra.of("s3fs", "s3") from None
        self._bucket = bucket
        config = {
            "connect_timeout": request_timeout_ms / 1e3,
            "read_timeout": request_timeout_ms / 1e3,
            **options.get("config_kwargs", {}),
            "retries": {"total_max_attempts": 1},
            "http_session_cls": _once_only_session(),
        }
        region = options.pop("region", None)
        if region is None and DEFAULT_REGION not in os.environ:
            region = os.environ.get(REGION)
        if region is not None:
            options["client_kwargs"] = {"region_name": region, **options.get("client_kwargs", {})}
        self._fs = open_filesystem("s3", s3fs.S3FileSystem, **{**options, "config_kwargs": config})
        try:
            in_loop(self._fs, self._fs.set_session)
        except Exception as error:
            raise cannot_open("s3", options, error) from None

    def __repr__(self) -> str:
        return f"S3Store('s3://{self._bucket}/{self._prefix}')"

    def look(self, key: str) -> ObjectEntry:
        """Size and version of the newest object under `key`, without its bytes; only reading it must be allowed.

        Raises `ObjectMissing` and `StoreUnavailable`.
        """
        path = self._path(key)
        ask = {"Key": path}
        found = self._repeat(lambda: in_loop(self._fs, self._call, "head_object", ask), key, "cannot be looked at")
        if found is None:
            raise missing(key)
        changed_ms = int(found["LastModified"].timestamp() * 1e3)
        return ObjectEntry(
            key=key, size=int(found["ContentLength"]), version=found["ETag"], modified_ms=changed_ms
        )

    def get_range(self, key: str, version: str, start: int, size: int) -> bytes:
        """`size` bytes of exactly that version of an object, from `start` on.

        Raises `ObjectMissing`, `VersionConflict` where another version is there, and `StoreUnavailable`.
        """
        path = self._path(key)
        try:
            found = self._repeat(
                lambda: in_loop(self._fs, self._get_range, path, version, start, size), key, "cannot be read"
            )
        except TooLargeError:
            raise StoreUnavailable(f"object '{key}' cannot be read: the store gives more than was asked") from None
        if found is None:
            raise missing(key)
        if found.version != version:
            raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)
        return found.data

    async def _get_range(self, path: str, version: str, start: int, size: int) -> StoredObject:
        asked = {"Key": path, "IfMatch": version, "Range": f"bytes={start}-{start + size - 1}"}
        try:
            answer = await self._call("get_object", asked)
        except Exception as error:
            if self._trouble(error).meaning is Meaning.MISMATCH:
                return StoredObject(b"", "")
            raise
        async with answer["Body"] as body:
            data = await read_bounded(body.iter_chunks(_PART_BYTES), size)
        if len(data) != size and answer["ETag"] == version:
            raise ConnectionError(f"{len(data)} bytes came of {size}")
        return StoredObject(data, answer["ETag"])

    def _send_get(self, path: str, max_bytes: int) -> StoredObject:
        return in_loop(self._fs, self._get, path, max_bytes)

    def _send_create(self, path: str, data: bytes) -> str:
        answer = in_loop(self._fs, self._call, "put_object", {"Key": path, "Body": data, "IfNoneMatch": "*"})
        return str(answer["ETag"])

    def _send_replace(self, path: str, data: bytes, version: str) -> str:
        answer = in_loop(self._fs, self._call, "put_object", {"Key": path, "Body": data, "IfMatch": version})
        return str(answer["ETag"])

    def _send_delete(self, path: str) -> None:
        in_loop(self._fs, self._call, "delete_object", {"Key": path})

    def _send_list(self, path: str, token: Any) -> Page:
        more = {} if token is None else {"ContinuationToken": token}
        answer = in_loop(self._fs, self._call, "list_objects_v2", {"Prefix": path, **more})
        entries = tuple(
            ObjectEntry(
                key=found["Key"],
                size=int(found["Size"]),
                version=found["ETag"],
                modified_ms=int(found["LastModified"].timestamp() * 1e3),
            )
            for found in answer.get("Contents", ())
        )
        return Page(entries, answer.get("NextContinuationToken"))

    async def _get(self, path: str, max_bytes: int) -> StoredObject:
        answer = await self._call("get_object", {"Key": path})
        async with answer["Body"] as body:
            require_bound(answer.get("ContentLength"), max_bytes)
            return StoredObject(await read_bounded(body.iter_chunks(_PART_BYTES), max_bytes), answer["ETag"])

    async def _call(self, method: str, request: dict[str, Any]) -> Any:
        # Not `call_s3`, which repeats requests and hides the store's code behind an errno.
        client = await self._fs.get_s3(self._bucket)
        send = getattr(client, method)
        return await send(**self._fs._get_s3_method_kwargs(send, Bucket=self._bucket, **request))

    def _trouble(self, error: Exception) -> Trouble:
        from botocore import exceptions as boto

        if not isinstance(error, boto.ClientError):
            nobody = boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError
            if isinstance(error, nobody):
                return Trouble.unproven("s3", type(error).__name__)
            if isinstance(error, boto.ParamValidationError):  # before sending
                return Trouble(Meaning.REFUSED, type(error).__name__)
            return aiohttp_trouble(error)
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _BUSY:
            return Trouble(Meaning.BUSY, code)
        if code in _NO_BUCKET:
            return Trouble(Meaning.REFUSED, code)
        if code == "ConditionalRequestConflict":
            return Trouble(Meaning.RACED, code)
        return Trouble(meaning_of_status(status), code or str(status))


def _once_only_session() -> type[Any]:
    """The HTTP session of aiobotocore, without aiohttp's habit of sending a PUT again when its reply is lost."""
    from aiobotocore.httpsession import AIOHTTPSession

    class OnceOnlySession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            return session

    return OnceOnlySession
