"""What all routes that take a statement share: its body, counted as it comes, and what that may hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from litestar import Request
from litestar.exceptions import InternalServerException
from litestar.openapi.spec import OpenAPIMediaType, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIType

from ballista_py.errors import InvalidData
from ballista_py.node.http.errors import HttpRefused
from ballista_py.node.http.sql_request import JSON, TEXTS
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS

COPIES = 3  # of a body at once: its bytes, its text, and the values in it
_TEXT = Schema(type=OpenAPIType.STRING, min_length=1)
_SHARED = {
    "sql": _TEXT,
    "parameters": Schema(one_of=[Schema(type=OpenAPIType.ARRAY), Schema(type=OpenAPIType.OBJECT)]),
    "dialect": Schema(type=OpenAPIType.STRING, max_length=MAX_NAME_CHARS),
    "engine": Schema(type=OpenAPIType.STRING, enum=["spark", "auto"]),
}


async def read_body(request: Request[Any, Any, Any], most: int, hold: Callable[[int], None]) -> bytes:
    """The body. `hold` is told how many bytes it takes so far, and may raise.

    Raises `HttpRefused` as soon as it has more than `most` bytes.
    """
    body = bytearray()
    async for piece in _pieces(request):
        size = len(body) + len(piece)
        if size > most:
            raise HttpRefused(
                413, f"the body has more than {most >> 20} MiB: load rows with Flight", "invalid_data"
            )
        hold(COPIES * size)
        body += piece
    return bytes(body)


async def read_no_body(request: Request[Any, Any, Any]) -> None:
    """Wait for the end of a request without a body. Raises `InvalidData` for one: what is not understood is refused."""
    async for piece in _pieces(request):
        if piece.strip():
            raise InvalidData("this request takes no body")


async def _pieces(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """What comes of the body. Raises `HttpRefused` where it breaks off, which is no fault of the node."""
    try:
        async for piece in request.stream():
            yield piece
    except InternalServerException:
        raise HttpRefused(400, "the body broke off before its end", "invalid_data") from None


def posted_statement(own: Mapping[str, Schema]) -> RequestBody:
    """What is posted, which no annotation says: a text, or an object with `own` fields beside those of every one."""
    statement = Schema(
        type=OpenAPIType.OBJECT, required=["sql"], additional_properties=False, properties={**_SHARED, **own}
    )
    text = OpenAPIMediaType(schema=_TEXT)
    return RequestBody(
        required=True, content={JSON: OpenAPIMediaType(schema=statement), **dict.fromkeys(TEXTS, text)}
    )
