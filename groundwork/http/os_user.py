"""The OS user at the other end of a connection within this machine, by the kernel's word.

Asked by netlink (sock_diag(7)), in microseconds; /proc/net/tcp takes milliseconds. A socket that its process has let go
of has no user, though the kernel then says user 0.
"""

import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.types import Scope

from groundwork.service.process import user_name

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")
_SOCKET = struct.Struct("!HH16s16s")
_ANY_INTERFACE = struct.pack("=I", 0) + b"\xff" * 8
_USER_AND_INODE = struct.Struct("=II")
_NAME_AT = _HEADER.size + 4
_USER_AT = _NAME_AT + _SOCKET.size + len(_ANY_INTERFACE) + 12
"""After the state, the socket's name, and three counters (struct inet_diag_msg)."""
ANSWER_WITHIN_S = 0.1


def os_user(scope: Scope) -> str:
    """The user's name, or the number of one without a name; empty where the kernel does not tell."""
    caller, service = _end(scope.get("client")), _end(scope.get("server"))
    if caller is None or service is None or not caller[0].is_loopback or not hasattr(socket, "AF_NETLINK"):
        return ""  # no other kernel than Linux has it
    number = None
    with suppress(OSError):  # a kernel that was built or told not to answer
        number = _owner(caller, service)
    return "" if number is None else user_name(number)


_End = tuple[IPv4Address | IPv6Address, int]


def _end(of_scope: tuple[str, int | None] | None) -> _End | None:
    try:
        host, port = of_scope or ("", None)
        address = ip_address(host)
    except ValueError:  # no address: a Unix socket, or a test
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address, port) if port else None


def _owner(caller: _End, service: _End) -> int | None:
    """The user of the socket `caller` that is connected with `service`; None when there is no such socket any more."""
    name = _SOCKET.pack(caller[1], service[1], _packed(caller), _packed(service))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as asking:
        asking.settimeout(ANSWER_WITHIN_S)
        asking.send(_question(caller, name))
        answer = asking.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY or answer[_NAME_AT : _NAME_AT + len(name)] != name:
        return None  # an error, or somebody who listens at the port that the caller had
    user, inode = _USER_AND_INODE.unpack_from(answer, _USER_AT)
    return user if inode else None


def _packed(end: _End) -> bytes:
    return end[0].packed.ljust(16, b"\0")


def _question(caller: _End, name: bytes) -> bytes:
    family = socket.AF_INET if isinstance(caller[0], IPv4Address) else socket.AF_INET6
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + name + _ANY_INTERFACE
    return _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked
