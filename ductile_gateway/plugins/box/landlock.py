"""Landlock: a process gives up every path that it does not name, for itself and all below it, for good.

It needs a kernel from 5.13 on that has it switched on; later ABIs are used where they are there (3: no truncation
outside, 6: no signals and abstract sockets). https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

from groundwork.service import process

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_FOR_VERSION = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
MAKE_DEVICES = 1 << 6 | 1 << 11
SCOPES = 0b11
"""Abstract sockets and signals."""
RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights on files there are, by ABI; 16 from 5 on."""
TO_READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a file can be given; the others are of folders."""


def abi() -> int:
    if sys.platform != "linux":
        return 0
    return max(0, _syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_FOR_VERSION)))


def prepare(read: Iterable[str], write: Iterable[str]) -> int:
    """A ruleset, as a descriptor. Missing paths are left out. Raises OSError."""
    every = (1 << RIGHTS_BY_ABI.get(abi(), 16)) - 1
    ruleset = _created(every)
    for path in read:
        _allow(ruleset, path, TO_READ)
    for path in write:
        _allow(ruleset, path, every)
    return ruleset


def prepare_for_processes() -> int:
    """A ruleset that leaves files as they are, and keeps a process from those outside: as far as the kernel can."""
    return _created(MAKE_DEVICES)


def restrict(ruleset: int) -> None:
    """From now on this process reaches nothing else. Needs `process.gain_nothing` before. Raises OSError."""
    _checked(_syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))


def _created(handled: int) -> int:
    version = abi()
    # The struct has grown with the ABI, and a kernel refuses what it does not know.
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("=QQQ", handled, 0, SCOPES)[:size]
    return _checked(_syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        given = rights if stat.S_ISDIR(os.fstat(place).st_mode) else rights & OF_FILES
        rule = struct.pack("=Qi", given, place)
        _checked(_syscall(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0)))
    finally:
        os.close(place)


def _syscall(number: int, *arguments: object) -> int:
    return int(process.libc().syscall(ctypes.c_long(number), *arguments))


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return answer
