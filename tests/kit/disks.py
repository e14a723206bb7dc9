"""Disks that fail: a full one, a read-only one, one that loses unsynced data, and one scripted by the test."""

import _sqlite3
import contextlib
import ctypes
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

SECTOR = 512


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Makes `folder` on a disk of that size (in `mount` notation); skips the test if mounting is not permitted."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield folder


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Makes `folder` read-only; skips the test if mounting is not permitted."""
    with _mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield


class ForgetfulDisk:
    """A file system in a file that holds only what was synced to disk; the rest is in memory. A copy of the file is
    what remains after a power failure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder.with_name(f"{folder.name}.ext4")
        self._mounts = contextlib.ExitStack()

    def mount(self) -> None:
        # what is not asked to be synced is not written for five minutes
        self._mounts.enter_context(_mounted(self.folder, "-o", "loop,commit=300", str(self.image)))

    def unmount(self) -> None:
        self._mounts.close()

    def sync(self) -> None:
        subprocess.run(["sync", "--file-system", self.folder], check=True)

    def lose_power(self) -> None:
        """Kill all writers first."""
        held = self.image.with_suffix(".held")
        subprocess.run(["cp", "--sparse=always", self.image, held], check=True)
        self.unmount()
        held.replace(self.image)
        self.mount()


@contextlib.contextmanager
def forgetful_disk(folder: Path) -> Iterator[ForgetfulDisk]:
    """Makes `folder` on such a disk; skips the test if mounting is not permitted."""
    folder.mkdir(parents=True)
    disk = ForgetfulDisk(folder)
    with disk.image.open("wb") as image:
        image.truncate(256 << 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", disk.image], check=True)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


@contextlib.contextmanager
def _mounted(folder: Path, *how: str) -> Iterator[None]:
    mount = ["mount", *how, str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root in a machine that allows it can mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One file operation of SQLite."""

    what: Literal["write", "truncate", "sync", "failed sync"]
    file: str
    at: int = 0
    content: bytes = b""

    def done_to(self, file: bytearray) -> None:
        if self.what == "truncate":
            del file[self.at :]
        else:
            file.extend(bytes(max(0, self.at - len(file))))
            file[self.at : self.at + len(self.content)] = self.content

    def torn(self, chance: Random) -> "Step":
        kept = SECTOR * chance.randint(0, len(self.content) // SECTOR)
        return Step(self.what, self.file, self.at, self.content[:kept]) if self.what == "write" else self


Files = dict[str, bytearray]


@dataclass
class Disk:
    """SQLite's operations on the files of a folder. `fails` returns the SQLite code that a step ends with, 0 for
    success."""

    before: Files
    steps: list[Step] = field(default_factory=list)
    fails: Callable[[Step], int] = lambda _: 0

    def power_losses(self, chance: Random, *, at_the_end: bool = False) -> Iterator[tuple[int, Files]]:
        """Yields the number of completed steps and the files that a power loss may then leave: synced data, and of the
        rest nothing, a part (each write whole, torn or missing), or everything, as after a kill of the process."""
        synced = _copied(self.before)
        written: dict[str, list[Step]] = defaultdict(list)
        for number, step in enumerate(self.steps, start=1):
            _done(step, synced, written)
            for share in (0.0, 0.5, 1.0) if number == len(self.steps) or not at_the_end else ():
                left = _copied(synced)
                for one in (one for later in written.values() for one in later if chance.random() < share):
                    (one if share == 1.0 else one.torn(chance)).done_to(left[one.file])
                yield number, left


def _copied(files: Files) -> Files:
    return defaultdict(bytearray, {name: bytearray(content) for name, content in files.items()})


def _done(step: Step, synced: Files, written: dict[str, list[Step]]) -> None:
    if step.what in ("write", "truncate"):
        written[step.file].append(step)
        return
    later = written.pop(step.file, [])
    if step.what == "sync":  # one that failed takes the pages for clean: no later sync writes them
        for one in later:
            one.done_to(synced[step.file])


@contextlib.contextmanager
def watched_disk(folder: Path) -> Iterator[Disk]:
    """Routes SQLite's operations on files in `folder` through the yielded disk by replacing SQLite's own functions;
    needs no privileges. Open and close connections to these files inside."""
    disk = Disk({file.name: bytearray(file.read_bytes()) for file in folder.iterdir() if file.is_file()})
    kept: list[Any] = []
    library = ctypes.CDLL(_sqlite3.__file__)
    if not hasattr(library, "sqlite3_vfs_find"):
        pytest.skip("the SQLite of this Python shows none of its functions")
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    opens = ctypes.c_void_p.from_address(library.sqlite3_vfs_find(None) + _OPEN_IN_VFS)
    original_address = opens.value or 0
    original = _OPEN(original_address)

    def opened(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        code = int(original(vfs, name, file, flags, out))
        path = Path(os.fsdecode(ctypes.string_at(name) if name else b""))
        if code == 0 and path.parent == folder:
            kept.append(_passing(disk, path.name, file))
        return code

    kept.append(_OPEN(opened))
    opens.value = ctypes.cast(kept[0], ctypes.c_void_p).value
    try:
        yield disk
    finally:
        opens.value = original_address


_OPEN_IN_VFS, _METHODS = 40, 19
"""Offset in bytes of xOpen in sqlite3_vfs; number of words of sqlite3_io_methods."""
_int64, _address = ctypes.c_int64, ctypes.c_void_p
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _address, _address, _address, ctypes.c_int, _address)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, _address, _address, ctypes.c_int, _int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, _address, _int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _address, ctypes.c_int)


def _passing(disk: Disk, name: str, file: int) -> Any:
    """Wraps an open file; returns the objects to keep alive while it is open."""
    methods = ctypes.c_void_p.from_address(file)
    table = (ctypes.c_void_p * _METHODS).from_buffer_copy(ctypes.string_at(methods.value or 0, 8 * _METHODS))
    write, truncate, sync = _WRITE(table[3] or 0), _TRUNCATE(table[4] or 0), _SYNC(table[5] or 0)

    def passed(step: Step, work: Callable[[], int]) -> int:
        if code := disk.fails(step):
            if step.what == "sync":
                disk.steps.append(Step("failed sync", name))
            return code
        disk.steps.append(step)
        return work()

    ours = (
        _WRITE(lambda f, b, n, at: passed(Step("write", name, at, ctypes.string_at(b, n)), lambda: write(f, b, n, at))),
        _TRUNCATE(lambda f, size: passed(Step("truncate", name, size), lambda: truncate(f, size))),
        _SYNC(lambda f, flags: passed(Step("sync", name), lambda: sync(f, flags))),
    )
    for place, method in enumerate(ours, start=3):
        table[place] = ctypes.cast(method, ctypes.c_void_p)
    methods.value = ctypes.addressof(table)
    return table, ours


def reserved(database: Path) -> int:
    """Bytes reserved for operations that free space."""
    return database.with_name(f"{database.name}-reserve").stat().st_size
