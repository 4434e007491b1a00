"""`abfs://container/prefix` through adlfs: its credentials, and the blob client below it for conditional writes.

A version is an ETag, which Azure never gives twice to a blob.
"""

from __future__ import annotations

from typing import Any

from ballista_py.errors import MissingExtra
from ballista_py.runtime import Runtime
from ballista_py.state.stores.remote import (
    REQUEST_TIMEOUT_MS,
    Meaning,
    Page,
    RemoteStore,
    Trouble,
    aiohttp_trouble,
    cannot_open,
    in_loop,
    meaning_of_status,
    open_filesystem,
    require_bound,
)
from ballista_py.state.stores.store import ObjectEntry, StoredObject

_BUSY = {"ServerBusy", "OperationTimedOut_NotApplied"}
_NOBODY = {"AuthorizationFailure", "NoAuthenticationInformation", "PublicAccessNotPermitted"}
_MISMATCH = {"BlobAlreadyExists", "ConditionNotMet"}


class AzureStore(RemoteStore):
    """Blobs of one container below `prefix`, as a `ConditionalStore`.

    `options` go to `adlfs.AzureBlobFileSystem` (`account_name`, `account_key`, `connection_string`, `sas_token`,
    `credential`, …). Repetition inside the client is off. Raises `MissingExtra` and, for options that adlfs does
    not take, `ConfigError`.
    """

    def __init__(
        self,
        container: str,
        prefix: str = "",
        *,
        runtime: Runtime,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        super().__init__(prefix, runtime=runtime)
        try:
            import adlfs
        except ImportError:
            raise MissingExtra.of("adlfs", "azure") from None
        self._name = container
        self._fs = open_filesystem("abfs", adlfs.AzureBlobFileSystem, **options)
        try:
            self._container = in_loop(self._fs, self._connect, request_timeout_ms / 1e3)
        except Exception as error:
            raise cannot_open("abfs", options, error) from None

    def __repr__(self) -> str:
        return f"AzureStore('abfs://{self._name}/{self._prefix}')"

    def _send_get(self, path: str, max_bytes: int) -> StoredObject:
        return in_loop(self._fs, self._get, path, max_bytes)

    def _send_create(self, path: str, data: bytes) -> str:
        return in_loop(self._fs, self._upload, path, data, {"overwrite": False})

    def _send_replace(self, path: str, data: bytes, version: str) -> str:
        from azure.core import MatchConditions

        condition = {"overwrite": True, "etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}
        return in_loop(self._fs, self._upload, path, data, condition)

    def _send_delete(self, path: str) -> None:
        in_loop(self._fs, self._container.delete_blob, path)

    def _send_list(self, path: str, token: Any) -> Page:
        return in_loop(self._fs, self._list, path, token)

    async def _connect(self, seconds: float) -> Any:
        """A client like that of adlfs, with the same account and credentials, that sends every request once."""
        from azure.storage.blob.aio import BlobServiceClient

        client = self._fs.service_client
        service = BlobServiceClient(
            client.url,
            credential=client.credential,
            transport=_once_only_transport(seconds),
            retry_total=0,
        )
        self._fs.service_client = service  # adlfs closes it at the end of the process
        return service.get_container_client(self._name)

    async def _get(self, path: str, max_bytes: int) -> StoredObject:
        stream = await self._container.download_blob(path, decompress=False)
        require_bound(stream.size, max_bytes)  # of what is larger, its first 32 MiB have come by now
        return StoredObject(await stream.readall(), _unquoted(stream.properties.etag))

    async def _upload(self, path: str, data: bytes, condition: dict[str, Any]) -> str:
        answer = await self._container.get_blob_client(path).upload_blob(data, **condition)
        return _unquoted(answer["etag"])

    async def _list(self, path: str, token: Any) -> Page:
        pages = self._container.list_blobs(name_starts_with=path).by_page(token)
        entries: list[ObjectEntry] = []
        async for page in pages:
            async for found in page:
                modified_ms = int(found.last_modified.timestamp() * 1e3)
                version = _unquoted(found.etag)
                entries.append(
                    ObjectEntry(key=found.name, size=found.size, version=version, modified_ms=modified_ms)
                )
            break
        return Page(tuple(entries), pages.continuation_token or None)

    def _trouble(self, error: Exception) -> Trouble:
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

        if not isinstance(error, HttpResponseError):
            return aiohttp_trouble(error)
        code = str(
            getattr(getattr(error, "error_code", None), "value", None) or getattr(error, "error_code", "") or ""
        )
        status = error.status_code or 0
        if status == 401 or code in _NOBODY:
            return Trouble.unproven("abfs", code or str(status))
        if isinstance(error, ClientAuthenticationError):
            return Trouble(Meaning.REFUSED, code or "authentication")
        if code in _BUSY:
            return Trouble(Meaning.BUSY, code)
        if code in _MISMATCH:
            return Trouble(Meaning.MISMATCH, code)
        if code in ("ContainerNotFound", "ContainerBeingDeleted"):
            return Trouble(Meaning.REFUSED, code)
        return Trouble(meaning_of_status(status), code or str(status))


def _unquoted(etag: str) -> str:
    """The one form of an ETag; Azure quotes it in answers and not in listings."""
    return etag.strip('"')


def _once_only_transport(seconds: float) -> Any:
    """The HTTP transport of the client, without aiohttp's habit of sending a PUT again when its reply is lost."""
    from azure.core.pipeline.transport import AioHttpTransport

    class OnceOnlyTransport(AioHttpTransport):  # type: ignore[misc]
        async def open(self) -> None:
            await super().open()
            assert self.session is not None
            self.session._retry_connection = False

    return OnceOnlyTransport(connection_timeout=seconds, read_timeout=seconds)
