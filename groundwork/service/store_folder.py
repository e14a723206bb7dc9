"""Files and folders for their owner alone, durable; a process lock for each store folder, and the store's id.

What root writes belongs to the owner of the folder. The lock is an exclusive flock, which the kernel frees when the
process ends: no lock between machines and none between threads. Processes side by side take the first free of
`<root>/0`, `<root>/1`, ….
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Generic, Self, TypeVar

from groundwork.service.machine import monotonic, token_hex

T = TypeVar("T")


def sync(path: Path) -> None:
    """Returns once the disk has what a file holds, or which names are in a folder. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write(path: Path, text: str) -> None:
    """Durable on return, in place of what the file said before; its folder is made if absent. Raises OSError."""
    _written_beside(path, text).replace(path)


def create(path: Path, text: str) -> bool:
    beside = _written_beside(path, text)
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    return True


def _written_beside(path: Path, text: str) -> Path:
    beside = path.with_name(f"{path.name}.{token_hex(4)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        left_to_owner(beside)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return beside


def folder_of_ours(folder: Path) -> None:
    """The folder, made if absent, is nobody else's, also where it was there before. Raises OSError."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(made):
        left_to_owner(each)
    _take_from_others(folder)


def closed(folder: Path) -> None:
    folder_of_ours(folder)
    for entry in folder.iterdir():
        if entry.is_file() and not entry.is_symlink():
            with suppress(FileNotFoundError):
                _take_from_others(entry)


def left_to_owner(path: Path) -> None:
    """A file or folder that root has made is given to whoever its folder belongs to. Raises OSError."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def _take_from_others(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(mode) & stat.S_IRWXU)


LOOK_EVERY_S = 1.0


class WatchedFile(Generic[T]):
    """What `read` makes of a file, read again when it has changed. Raises what `read` raises, once for each change."""

    def __init__(self, path: Path, read: Callable[[Path], T], clock: Callable[[], float] = monotonic) -> None:
        self.path = path
        self._read = read
        self._clock = clock
        self._version = self._newest()
        self._look_at = clock() + LOOK_EVERY_S
        self.content = read(path)

    def look(self) -> bool:
        """Whether there is other content than at the last look; looks once a second."""
        now = self._clock()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY_S
        if (version := self._newest()) == self._version:
            return False
        self.content, self._version = self._read(self.path), version
        return True

    def _newest(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size


LOCK_FILE = "process.lock"


class AlreadyRunning(Exception):
    """Another process works in the folder: stop it, or use another folder. `pid` is None if it was not readable."""

    def __init__(self, path: Path, pid: int | None) -> None:
        owner = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{path} is locked by {owner}: one process at a time may use {path.parent}. Stop {owner}, or configure "
            "another folder"
        )
        self.path = path
        self.pid = pid


class ProcessLock:
    """`with ProcessLock(folder): …` holds the folder; entering raises AlreadyRunning, or OSError if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file = -1

    def __enter__(self) -> Self:
        # Not inheritable, as Python opens all files: a child that outlives us does not keep the lock.
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        left_to_owner(self._path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = _pid(self._file)
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise AlreadyRunning(self._path, pid) from error
            raise
        with contextlib.suppress(OSError):  # a full disk is no reason not to start
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _pid(file: int) -> int | None:
    with contextlib.suppress(ValueError):
        return int(os.pread(file, 32, 0))
    return None


HAND_OVER_S = 15.0
"""How long to wait for a process that was taken over: it notices within two seconds, and gives up what is in hand."""
LOOK_S = 0.05

log = logging.getLogger(__name__)


async def once_free(take: Callable[[], T], *, within_s: float) -> T:
    """What `take` returns; while another holds it (OSError, AlreadyRunning) it is tried again for `within_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    told = False
    while True:
        try:
            return take()
        except (OSError, AlreadyRunning) as error:
            if loop.time() >= deadline:
                raise
            if not told:
                log.info("waiting", extra={"why": str(error), "at_most_s": within_s})
                told = True
            await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def locked(folder: Path, *, within_s: float) -> AsyncIterator[None]:
    """The existing folder for this process alone, once another that has it has left. Raises AlreadyRunning, OSError."""
    with contextlib.ExitStack() as held:
        await once_free(lambda: held.enter_context(ProcessLock(folder)), within_s=within_s)
        yield


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[Path]:
    closed(root)
    with contextlib.ExitStack() as held:
        for number in count():
            closed(folder := root / str(number))
            with contextlib.suppress(AlreadyRunning):
                held.enter_context(ProcessLock(folder))
                break
        yield folder


ID_FILE = "store.id"


def known_id(folder: Path) -> str:
    file = folder / ID_FILE
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


def store_id(folder: Path) -> str:
    """The id of the store in an existing folder, made if it has none yet. Raises OSError."""
    known = known_id(folder)
    if known:
        return known
    made = f"store_{token_hex(8)}"
    write(folder / ID_FILE, f"{made}\n")
    return made
