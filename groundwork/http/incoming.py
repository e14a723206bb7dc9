"""What both services look at in every request: the Host it was sent to, and its body within bounds."""

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

PROBES = frozenset({"/healthz", "/readyz"})
"""They may come by any name: those who send them (a kubelet, a balancer) often know only an address."""
READ_WITHIN_S = 15.0
LONGEST_LENGTH = 12
"""Digits of a Content-Length that is worth reading as a number."""


class BodyRefused(Exception):
    """A body that is not taken: the status and a short code that say so. The text repeats nothing of it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def only(scope: Scope, name: bytes) -> str:
    """The header in lower case; empty when it was sent not at all, or more than once."""
    values = [value for key, value in scope["headers"] if key == name]
    return str(values[0].decode("latin-1").lower()) if len(values) == 1 else ""


def host(scope: Scope) -> str:
    """The Host header without its port: a browser that was tricked into another name for this address sends that."""
    sent = only(scope, b"host")
    name, colon, port = sent.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else sent


def has_a_path(scope: Scope) -> bool:
    """Whether any route may be asked: one would match in spite of a line feed at the path's end."""
    return str(scope["path"]).isprintable()


async def read_body(request: Request, limit: int, *, within_s: float = READ_WITHIN_S) -> bytes:
    """The body. Raises BodyRefused: 413 beyond `limit` bytes, 408 when it comes too slowly, 400 when it is cut off."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > limit):
        raise _too_large(limit)
    try:
        async with asyncio.timeout(within_s):
            return await _read(request, limit)
    except TimeoutError as error:
        raise BodyRefused(408, "too_slow", f"the body did not arrive within {within_s:g} s") from error
    except ClientDisconnect as error:
        raise BodyRefused(400, "cut_off", "the connection ended within the body") from error


async def _read(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> BodyRefused:
    return BodyRefused(413, "too_large", f"the body has more than {limit} bytes")
