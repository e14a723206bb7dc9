"""Confines the calling process: by landlock to the paths that are allowed, or by a view of mounts that hides others.

Landlock needs Linux 5.13 with landlock enabled; ABI 3 adds truncation, ABI 6 signals and abstract sockets.
https://docs.kernel.org/userspace-api/landlock.html
A view needs Linux 5.12, and root or a user namespace. A process without capabilities cannot undo it.
Neither confines the network: a plugin has that of its user (docs/SECURITY.md).
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

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
"""Number of rights on files; 16 from ABI 5 on."""
TO_READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a file can have; the others are for folders only."""


def landlock_abi() -> int:
    if sys.platform != "linux":
        return 0
    return max(0, _syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_FOR_VERSION)))


def prepare_landlock(read: Iterable[str], write: Iterable[str]) -> int:
    """Returns the descriptor of a ruleset. Ignores missing paths. Raises OSError."""
    every = (1 << RIGHTS_BY_ABI.get(landlock_abi(), 16)) - 1
    ruleset = _created(every)
    for path in read:
        _allow(ruleset, path, TO_READ)
    for path in write:
        _allow(ruleset, path, every)
    return ruleset


def prepare_landlock_for_processes() -> int:
    """Returns a ruleset that allows all files, and keeps the process from others: their memory and, by ABI, signals."""
    return _created(MAKE_DEVICES)


def enter_landlock(ruleset: int) -> None:
    """Restricts this process for good. Needs PR_SET_NO_NEW_PRIVS before. Raises OSError."""
    _checked(_syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))


def _created(handled: int) -> int:
    version = landlock_abi()
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


NEW_NAMESPACE, NEW_SHARED_MEMORY, NEW_USERS = 0x00020000, 0x08000000, 0x10000000
MS_READ_ONLY, MS_BIND, MS_RECURSIVE, MS_PRIVATE = 1, 4096, 16384, 1 << 18
NO_SETUID_NO_DEVICE = 2 | 4
NO_EXECUTION = NO_SETUID_NO_DEVICE | 8
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_READ_ONLY = 442, -100, 0x8000, 1
SMALL = "size=64k,mode=0711"
SEGMENT_SIZE = 3
"""Column of its table."""
DEV, SHADE = "/dev", "/dev/closed"
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 # none of them is the machine's
STREAMS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def enter_view(
    *, read: Iterable[str], write: Iterable[str], frozen: Collection[str], closed: Collection[str], room_mb: int
) -> None:
    """Gives this process its own mounts: everything can be read, and `write` changed, but not `frozen`; `closed` and
    devices are hidden, except for the other paths in them; the temporary folders are one private empty folder of
    `room_mb`. All paths are real. Raises OSError."""
    _leave_the_others()
    umask = os.umask(0o022)
    with _held(frozen, read) as readable, _held(write) as writable:
        _set_read_only("/", read_only=True)
        hidden = [DEV, *sorted(filter(os.path.isdir, closed))]
        temporary = list(dict.fromkeys(map(os.path.realpath, filter(os.path.isdir, TEMPORARY))))
        _hide(hidden[1:], temporary, room_mb)
        _close([path for path in closed if path not in hidden])
        # What is not hidden, and only read, is there already. Outer ones come first.
        again = {*writable, *frozen, *(path for path in readable if _lies_in(path, hidden, temporary))}
        places = {path: place for path, place in sorted((readable | writable).items()) if path in again}
        for path, place in places.items():
            _make(path, like=place)
        for path in filter(os.path.ismount, hidden):
            _set_read_only(path, read_only=True, below=False)
        for path, place in places.items():
            _bind(place, path)
            _set_read_only(
                path, read_only=path not in writable or path in frozen or stat.S_ISCHR(os.stat(path).st_mode)
            )
    flags = ctypes.c_ulong(NO_EXECUTION | MS_READ_ONLY)
    process.libc().mount(b"proc", b"/proc", b"proc", flags, b"hidepid=ptraceable")
    os.umask(umask)


def shared_memory() -> int:
    """Bytes of all segments that processes of this view share (System V): they outlive who made them."""
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        return sum(int(line.split()[SEGMENT_SIZE]) for line in list(file)[1:])


def can_enter_view() -> bool:
    try:
        _leave_the_others()
        _set_read_only("/", read_only=True)
    except OSError:
        return False
    return True


@contextmanager
def _held(*paths: Iterable[str]) -> Iterator[dict[str, int]]:
    places = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in chain(*paths) if os.path.exists(path)}
    try:
        yield places
    finally:
        for place in places.values():
            os.close(place)


def _leave_the_others() -> None:
    user, group, own = os.getuid(), os.getgid(), NEW_NAMESPACE | NEW_SHARED_MEMORY
    _checked(process.libc().unshare(own if user == 0 else own | NEW_USERS), "unshare")
    if user != 0:
        process.show_memory()
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    _mount("none", "/", "", MS_RECURSIVE | MS_PRIVATE)


def _hide(folders: Iterable[str], temporary: Iterable[str], room_mb: int) -> None:
    _mount("tmpfs", DEV, "tmpfs", NO_EXECUTION, SMALL)
    for name, target in STREAMS.items():
        os.symlink(f"/proc/self/{target}", f"{DEV}/{name}")
    first = ""
    for path in temporary:
        os.makedirs(path, exist_ok=True)
        if first:
            _mount(first, path, "", MS_BIND)
        else:
            _mount("tmpfs", path, "tmpfs", NO_SETUID_NO_DEVICE, f"size={room_mb}m,mode=1777")
            first = path
    for path in folders:
        os.makedirs(path, exist_ok=True)  # it may lie in one that was hidden before
        _mount("tmpfs", path, "tmpfs", NO_EXECUTION, SMALL)


def _close(files: Iterable[str]) -> None:
    os.close(os.open(SHADE, os.O_CREAT | os.O_WRONLY, 0o000))
    with _held([SHADE]) as shade:
        for path in filter(os.path.exists, files):
            _bind(shade[SHADE], path)
            _set_read_only(path, read_only=True)


def _lies_in(path: str, *folders: Iterable[str]) -> bool:
    return f"{path}/".startswith(tuple(f"{folder}/" for folder in chain(*folders)))


def _make(path: str, *, like: int) -> None:
    if os.path.exists(path):
        return
    if os.path.isdir(f"/proc/self/fd/{like}"):
        os.makedirs(path)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def _bind(place: int, path: str) -> None:
    _mount(f"/proc/self/fd/{place}", path, "", MS_BIND | MS_RECURSIVE)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    given = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(process.libc().mount(*given), target)


def _set_read_only(path: str, *, read_only: bool, below: bool = True) -> None:
    to_set, to_clear = (ATTR_READ_ONLY, 0) if read_only else (0, ATTR_READ_ONLY)
    attributes = struct.pack("=QQQQ", to_set, to_clear, 0, 0)
    place = (ctypes.c_int(AT_FDCWD), path.encode(), ctypes.c_uint(AT_RECURSIVE * below))
    _checked(_syscall(MOUNT_SETATTR, *place, attributes, ctypes.c_size_t(len(attributes))), path)


def _checked(answer: int, what: str = "landlock") -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return answer
