"""One process per store folder: an exclusive flock on a file in it, which also holds the owner's pid for people.

The kernel frees the lock when the process ends. It is no lock between machines and none between threads.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from groundwork.service import private_file

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
        private_file.left_to_owner(self._path)
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
