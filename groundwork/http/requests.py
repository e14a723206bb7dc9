"""Headers, OS user and body of HTTP requests.

Bodies share a bounded memory; when it is full, the oldest unfinished one is dropped (408). The OS user at the other end
of a local connection comes from the kernel by netlink (sock_diag(7)) in microseconds; /proc/net/tcp takes milliseconds.
A closed socket has no user, though the kernel then says user 0.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from groundwork.service.process import user_name

PROBES = frozenset({"/healthz", "/readyz"})
"""Accepted under any host name: kubelets and load balancers often know only an address."""


def single_header(scope: Scope, name: bytes) -> str:
    """Header value in lower case; empty if the header is missing or repeated."""
    values = [value for key, value in scope["headers"] if key == name]
    return str(values[0].decode("latin-1").lower()) if len(values) == 1 else ""


def host(scope: Scope) -> str:
    """Host header without its port. DNS rebinding shows there as another name for this address."""
    sent = single_header(scope, b"host")
    name, colon, port = sent.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else sent


def has_printable_path(scope: Scope) -> bool:
    """False for paths with control characters: a route would match in spite of a line feed at the end."""
    return str(scope["path"]).isprintable()


READ_WITHIN_S = 15.0
ROOM = 64 * 1024 * 1024
LONGEST_LENGTH = 12


class BodyRefused(Exception):
    """`status` and `code` are of the response. The text quotes nothing of the body."""

    def __init__(self, status: int, code: Literal["cut_off", "too_large", "too_slow"], message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class BodyReader:
    """Reads request bodies of at most `limit` bytes each; `room`: bytes for all of them."""

    def __init__(self, limit: int, *, room: int = ROOM) -> None:
        self._limit = limit
        self._most = max(1, room // limit)
        self._reading: dict[asyncio.Timeout, None] = {}

    async def read(self, request: Request) -> bytes:
        """Raises BodyRefused: 413 beyond the limit, 408 when too slow, 400 when cut off."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > self._limit):
            raise _too_large(self._limit)
        if len(self._reading) >= self._most:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():  # then it ends by itself
                oldest.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(READ_WITHIN_S) as place:
                self._reading[place] = None
                return await _read(request, self._limit)
        except TimeoutError as error:
            message = f"the body did not arrive within {READ_WITHIN_S:g} s, or while there was room to wait for it"
            raise BodyRefused(408, "too_slow", message) from error
        except ClientDisconnect as error:
            raise BodyRefused(400, "cut_off", "the connection ended within the body") from error
        finally:
            self._reading.pop(place, None)


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


_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY_STATE, _ANY_SOCKET = 4, 20, 1, 0xFFFFFFFF, b"\xff" * 8
_ASKED = struct.Struct("=IHHII4BI36sI8s")
"""A header, and a struct inet_diag_req_v2 that begins with family and protocol and ends with interface and cookie."""
_TOLD = struct.Struct("=4xH14x36s24xII")
"""Kind of the answer, and of its struct inet_diag_msg the socket's name, user and inode."""
_NAME = struct.Struct("!HH16s16s")
"""Ports and addresses of both ends, as both structs have them."""
ANSWER_WITHIN_S = 0.1


def os_user(scope: Scope) -> str:
    """Name, or number, of the caller's user; empty if the kernel does not tell."""
    caller, service = _end(scope.get("client")), _end(scope.get("server"))
    if caller is None or service is None or not caller[0].is_loopback or not hasattr(socket, "AF_NETLINK"):
        return ""  # only Linux has netlink
    number = None
    with suppress(OSError):  # disabled in this kernel
        number = _owner(caller, service)
    return "" if number is None else user_name(number)


_End = tuple[IPv4Address | IPv6Address, int]


def _end(of_scope: tuple[str, int | None] | None) -> _End | None:
    try:
        host, port = of_scope or ("", None)
        address = ip_address(host)
    except ValueError:  # a Unix socket, or a test
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address, port) if port else None


def _owner(caller: _End, service: _End) -> int | None:
    """User of the socket `caller` that is connected to `service`; None if it is closed."""
    family = socket.AF_INET if isinstance(caller[0], IPv4Address) else socket.AF_INET6
    name = _NAME.pack(caller[1], service[1], caller[0].packed, service[0].packed)
    header = _ASKED.size, _BY_FAMILY, _REQUEST, 1, 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as asking:
        asking.settimeout(ANSWER_WITHIN_S)
        asking.send(_ASKED.pack(*header, family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE, name, 0, _ANY_SOCKET))
        answer = asking.recv(4096)
    kind, found, user, inode = _TOLD.unpack_from(answer.ljust(_TOLD.size, b"\0"))
    # The answer may be an error, which is shorter, or of a listener at the port that the caller had.
    return user if (kind, found) == (_BY_FAMILY, name) and inode else None
