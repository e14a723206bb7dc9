"""Requests to the ingress as they came: headers that mean one thing, and the raw body within bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect, Request

from ductile_gateway.ingress.refusals import RequestRefused

READ_WITHIN_S = 15.0


def headers_of(request: Request) -> Mapping[str, str]:
    """Headers by lower-case name. One that was sent more than once means nothing, and is left out."""
    names = [name for name, _ in request.headers.items()]
    return {name: value for name, value in request.headers.items() if names.count(name) == 1}


def reader_of(request: Request, limit: int, *, within_s: float = READ_WITHIN_S) -> Callable[[], Awaitable[bytes]]:
    """What reads the body. It raises RequestRefused: 413 beyond `limit` bytes, 408 when slow, 400 when cut off."""

    async def read() -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:  # the server takes no more than 64 bits
            raise _too_large(limit)
        try:
            async with asyncio.timeout(within_s):
                return await _read(request, limit)
        except TimeoutError as error:
            raise RequestRefused(408, f"the body did not arrive within {within_s:g} s") from error
        except ClientDisconnect as error:
            raise RequestRefused(400, "the connection ended within the body") from error

    return read


async def _read(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"the body has more than {limit} bytes")
