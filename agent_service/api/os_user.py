"""The OS user at the other end of a local connection, from the kernel by netlink (sock_diag(7)) in microseconds;
/proc/net/tcp takes milliseconds. A closed socket has no user, though the kernel then says user 0.
"""

import pwd
import socket
import struct
from ipaddress import ip_address

from starlette.types import Scope

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY_STATE, _ANY_SOCKET = 4, 20, 1, 0xFFFFFFFF, b"\xff" * 8
_ASKED = struct.Struct("=IHHII4BI36sI8s")
"""A header, and a struct inet_diag_req_v2 that begins with family and protocol and ends with interface and cookie."""
_TOLD = struct.Struct("=4xH14x36s24xII")
"""Kind of the answer, and of its struct inet_diag_msg the socket's name, user and inode."""
_NAME = struct.Struct("!HH16s16s")
"""Ports and addresses of both ends, as both structs have them."""
ANSWER_WITHIN_S = 0.1


def os_user(connection: Scope) -> str:
    """Name, or number, of the caller's user; empty if the kernel does not tell."""
    try:
        (host, port), (own_host, own_port) = connection["client"], connection["server"]
        caller, service = ip_address(host), ip_address(own_host)
        name = _NAME.pack(port, own_port, caller.packed, service.packed)
    except (TypeError, ValueError, struct.error):  # a Unix socket, or a test
        return ""
    if not caller.is_loopback or not hasattr(socket, "AF_NETLINK"):  # only Linux has netlink
        return ""
    family = socket.AF_INET if caller.version == 4 else socket.AF_INET6
    header = _ASKED.size, _BY_FAMILY, _REQUEST, 1, 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as asking:
            asking.settimeout(ANSWER_WITHIN_S)
            asking.send(_ASKED.pack(*header, family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE, name, 0, _ANY_SOCKET))
            answer = asking.recv(4096)
    except OSError:  # disabled in this kernel
        return ""
    kind, found, user, inode = _TOLD.unpack_from(answer.ljust(_TOLD.size, b"\0"))
    # The answer may be an error, which is shorter, or of a listener at the port that the caller had.
    if (kind, found) != (_BY_FAMILY, name) or not inode:
        return ""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
