"""What both services look at in every request, and its body, read within bounds of size, time and number.

Where all places are taken, the sender that has most of them loses the oldest (408).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_network
from typing import Literal

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

PROBES = frozenset({"/healthz", "/readyz"})
"""They may come by any name: those who send them (a kubelet, a balancer) often know only an address."""


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


def network_of(client: tuple[str, int] | None) -> str:
    """Whose a connection is, as far as its address tells: of IPv6 a whole /64, which one household or host has."""
    address = client[0] if client else ""
    if ":" not in address:
        return address
    mapped = IPv6Address(address.partition("%")[0]).ipv4_mapped
    return str(mapped or ip_network((address.partition("%")[0], 64), strict=False))


READ_WITHIN_S = 15.0
ROOM = 64 * 1024 * 1024
LONGEST_LENGTH = 12


class BodyRefused(Exception):
    """A body that is not taken: the status and a short code that say so. The text repeats nothing of it."""

    def __init__(self, status: int, code: Literal["cut_off", "too_large", "too_slow"], message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Bodies:
    """Reads the bodies of one server, each of `limit` bytes at most; `room` is for all of them."""

    def __init__(self, limit: int, *, room: int = ROOM, within_s: float = READ_WITHIN_S) -> None:
        self._limit = limit
        self._most = max(1, room // limit)
        self._within_s = within_s
        self._reading: defaultdict[str, dict[asyncio.Timeout, None]] = defaultdict(dict)

    async def read(self, request: Request, *, whose: str) -> bytes:
        """`whose`: the sender. Raises BodyRefused: 413 beyond the limit, 408 when it comes too slowly, 400 when it is
        cut off."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > self._limit):
            raise _too_large(self._limit)
        try:
            async with self._place(whose):
                return await _read(request, self._limit)
        except TimeoutError as error:
            message = f"the body did not arrive within {self._within_s:g} s, or while there was room to wait for it"
            raise BodyRefused(408, "too_slow", message) from error
        except ClientDisconnect as error:
            raise BodyRefused(400, "cut_off", "the connection ended within the body") from error

    @asynccontextmanager
    async def _place(self, whose: str) -> AsyncIterator[None]:
        """One place, for as long as it may take. Raises TimeoutError inside where it has to be left."""
        if sum(map(len, self._reading.values())) >= self._most:
            self._make_room()
        async with asyncio.timeout(self._within_s) as mine:
            self._reading[whose][mine] = None
            try:
                yield
            finally:
                self._leave(whose, mine)

    def _make_room(self) -> None:
        whose = max(self._reading, key=lambda one: len(self._reading[one]))
        oldest = next(iter(self._reading[whose]))
        self._leave(whose, oldest)
        oldest.reschedule(asyncio.get_running_loop().time())

    def _leave(self, whose: str, place: asyncio.Timeout) -> None:
        self._reading[whose].pop(place, None)
        if not self._reading[whose]:
            del self._reading[whose]


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
