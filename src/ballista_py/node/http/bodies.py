"""Bodies of requests, read as they come: what is too long is refused at once, and what is held is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Request

from ballista_py.errors import InvalidData
from ballista_py.node.http.errors import HttpRefused

COPIES = 3  # of a body at once: its bytes, its text, and the values in it


async def read_body(request: Request[Any, Any, Any], most: int, hold: Callable[[int], None]) -> bytes:
    """The body. `hold` is told how many bytes it takes so far, and may raise.

    Raises `HttpRefused` as soon as it has more than `most` bytes.
    """
    body = bytearray()
    async for piece in request.stream():
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
    async for piece in request.stream():
        if piece.strip():
            raise InvalidData("this request takes no body")


__all__ = ["COPIES", "read_body", "read_no_body"]
