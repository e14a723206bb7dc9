"""A view of the files of its own for a process: what is closed is not there, and little can be changed.

Made of mounts that only this process and those below it see (mount_namespaces(7)): root may, and elsewhere whoever is
let have a user namespace. Linux 5.12 and newer. Who has given up all capabilities cannot undo it.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from groundwork.service import kernel

NEW_NAMESPACE, NEW_USERS = 0x00020000, 0x10000000
MS_READ_ONLY, MS_REMOUNT, MS_BIND, MS_RECURSIVE, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
NO_SURPRISES = 2 | 4 | 8
"""No program that is setuid, no device, nothing that can be run."""
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_READ_ONLY = 442, -100, 0x8000, 1
SMALL = "size=64k,mode=0711"
SHADE = "closed"


def enter(
    *, folder: str, own: Iterable[str], write: Iterable[str], frozen: Iterable[str], closed: Iterable[str]
) -> None:
    """From now on this process sees the files so, in this order: all can be read; `write` can be changed; `frozen` not
    even there; `closed` is not there, but for `own`, which can be changed. `folder` is used up. Raises OSError."""
    _leave_the_others()
    with _held(own) as own_places, _held(write) as writable:
        shade = _shade(folder, own_places)
        _set_read_only("/", read_only=True)
        for path, place in writable.items():
            _bind(place, path)
            _set_read_only(path, read_only=False)
        for path in filter(os.path.isdir, frozen):
            _mount(path, path, "", MS_BIND | MS_RECURSIVE)
            _set_read_only(path, read_only=True)
        for path in closed:
            _close(path, shade, own_places)
        for path, place in own_places.items():
            _bind(place, path)
            _set_read_only(path, read_only=False)
        _hide_processes()
        os.close(shade)


def can_enter() -> bool:
    """Whether this process could. It has left the view of the others then."""
    try:
        _leave_the_others()
        _set_read_only("/", read_only=True)
    except OSError:
        return False
    return True


@contextmanager
def _held(paths: Iterable[str]) -> Iterator[dict[str, int]]:
    """The places that are there, as they are now, whatever is mounted over them."""
    places = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths if os.path.exists(path)}
    try:
        yield places
    finally:
        for place in places.values():
            os.close(place)


def _leave_the_others() -> None:
    user, group = os.getuid(), os.getgid()
    _checked(kernel.libc().unshare(NEW_NAMESPACE if user == 0 else NEW_NAMESPACE | NEW_USERS), "unshare")
    if user != 0:
        kernel.show_memory()
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    _mount("none", "/", "", MS_RECURSIVE | MS_PRIVATE)


def _shade(folder: str, own: Iterable[str]) -> int:
    """A file that nobody can open, in a file system that nobody can change; which hides the folder."""
    with _hidden(folder, own):
        os.close(os.open(f"{folder}/{SHADE}", os.O_CREAT | os.O_WRONLY, 0o000))
    return os.open(f"{folder}/{SHADE}", os.O_PATH | os.O_CLOEXEC)


def _close(path: str, shade: int, own: Iterable[str]) -> None:
    if os.path.isdir(path):
        with _hidden(path, own):
            return
    while os.path.exists(path):
        with suppress(FileNotFoundError):  # another file has taken its name at this moment: that one, then
            _bind(shade, path)
            break


@contextmanager
def _hidden(folder: str, own: Iterable[str]) -> Iterator[None]:
    """With room for `own`, where it lies in there; inside the context it can be changed, and afterwards no more."""
    _mount("tmpfs", folder, "tmpfs", NO_SURPRISES, SMALL)
    for place in own:
        if place.startswith(f"{folder}/"):
            os.makedirs(place, exist_ok=True)
    yield
    _mount("tmpfs", folder, "tmpfs", MS_REMOUNT | MS_READ_ONLY | NO_SURPRISES, SMALL)


def _hide_processes() -> None:
    """Those that it may not look into. Where that is refused, their memory and environment are closed all the same."""
    kernel.libc().mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(NO_SURPRISES), b"hidepid=ptraceable")


def _bind(place: int, path: str) -> None:
    _mount(f"/proc/self/fd/{place}", path, "", MS_BIND | MS_RECURSIVE)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    given = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(kernel.libc().mount(*given), target)


def _set_read_only(path: str, *, read_only: bool) -> None:
    to_set, to_clear = (ATTR_READ_ONLY, 0) if read_only else (0, ATTR_READ_ONLY)
    attributes = struct.pack("=QQQQ", to_set, to_clear, 0, 0)
    numbers = (ctypes.c_long(MOUNT_SETATTR), ctypes.c_int(AT_FDCWD), path.encode(), ctypes.c_uint(AT_RECURSIVE))
    _checked(kernel.libc().syscall(*numbers, attributes, ctypes.c_size_t(len(attributes))), path)


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
