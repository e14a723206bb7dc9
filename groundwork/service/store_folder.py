"""Durable files and folders that only their owner may read, the process lock of a store folder, and the store's id.

Files that root writes belong to the owner of the folder. The lock is an exclusive flock, which the kernel frees when
the process ends; it works neither between machines nor between threads. Concurrent processes take the first free one
of `<root>/0`, `<root>/1`, ….
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from groundwork.service.errors import Misconfigured
from groundwork.service.machine import monotonic, token_hex

T = TypeVar("T")


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to disk. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write(path: Path, text: str) -> None:
    """Replaces the file durably; creates its folder if absent. Raises OSError."""
    _written_beside(path, text).replace(path)
    sync(path.parent)


def create(path: Path, text: str) -> bool:
    """Creates the file durably; returns False if it exists."""
    beside = _written_beside(path, text)
    try:
        path.hardlink_to(beside)  # a rename would replace what another process has just created
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    sync(path.parent)
    return True


def _written_beside(path: Path, text: str) -> Path:
    beside = path.with_name(f"{path.name}.{token_hex(4)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            give_to_owner(beside)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)  # half of a key file, say, on a full disk
        raise
    return beside


def make_private_folder(folder: Path) -> None:
    """Creates the folder if absent and takes others' permissions on it away. Raises OSError."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(made):
        give_to_owner(each)
    _take_from_others(folder)


def restrict_to_owner(folder: Path) -> None:
    """Makes the folder and the files in it private."""
    make_private_folder(folder)
    for entry in folder.iterdir():
        if entry.is_file() and not entry.is_symlink():
            with suppress(FileNotFoundError):
                _take_from_others(entry)


def give_to_owner(path: Path) -> None:
    """Gives what root has made to the owner of its folder. Raises OSError."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def _take_from_others(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(mode) & stat.S_IRWXU)


LOCK_FILE = "process.lock"


class AlreadyRunning(Misconfigured):
    """Another process uses the folder: stop it, or use another folder."""


@contextlib.contextmanager
def process_lock(folder: Path) -> Iterator[None]:
    """Locks the folder. Raises AlreadyRunning, or OSError if it is missing."""
    path = folder / LOCK_FILE
    # Python opens files as not inheritable: a child that outlives us does not keep the lock.
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        give_to_owner(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = f"process {os.pread(file, 32, 0).decode().strip() or 'of another user'}"
            raise AlreadyRunning(
                f"{path} is locked by {owner}: one process at a time may use {folder}. Stop {owner}, or configure "
                "another folder"
            ) from error
        with suppress(OSError):  # a full disk is no reason not to start
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


HAND_OVER_S = 15.0
"""Time to wait for a process that was taken over: it notices within two seconds, and gives up its work."""
LOOK_S = 0.05

log = logging.getLogger(__name__)


async def retry_until_free(take: Callable[[], T], *, within_s: float) -> T:
    """Result of `take`, which is retried for `within_s` while it raises OSError or AlreadyRunning."""
    began = monotonic()
    if within_s:
        log.info("waiting for what another process may hold", extra={"at_most_s": within_s})
    while True:
        try:
            return take()
        except (OSError, AlreadyRunning):
            if monotonic() - began >= within_s:
                raise
            await asyncio.sleep(LOOK_S)


@contextlib.contextmanager
def claim_folder(root: Path) -> Iterator[Path]:
    """Locks the first free folder of `<root>/0`, `<root>/1`, …."""
    restrict_to_owner(root)
    with contextlib.ExitStack() as held:
        for number in count():
            restrict_to_owner(folder := root / str(number))
            with suppress(AlreadyRunning):
                held.enter_context(process_lock(folder))
                break
        yield folder


ID_FILE = "store.id"


def known_id(folder: Path) -> str:
    file = folder / ID_FILE
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


def store_id(folder: Path) -> str:
    """Id of the store in an existing folder, created if absent. Raises OSError."""
    if not known_id(folder):
        write(folder / ID_FILE, f"store_{token_hex(8)}\n")
    return known_id(folder)
