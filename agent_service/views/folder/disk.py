"""The names that a run's folder and its files may have, and files by descriptor, beneath an open folder, one plain
name at a time: names are checked before they get there.

Only a regular file with one name, on the folder's own device, is read; links, pipes, sockets, devices and mounts are
refused (Unsafe), also when they take a file's place between two calls.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from agent_service.history.artifacts import FILES, is_artifact_path

ARTIFACTS = "artifacts"

Files = Mapping[str, bytes]
"""Contents by path below the run's folder."""

_RUN_ID = re.compile(r"run_[0-9A-HJKMNP-TV-Z]{26}")

MAX_REPLACED = 100
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})


class IllegalName(ValueError):
    """No run and no file of a run may have this name; nothing was touched."""


class Unsafe(OSError):
    """Something other than a plain file or folder: remove it by hand, then try again."""


class TooLarge(OSError):
    """The file is larger than what is read into memory."""


def checked(run_id: str) -> str:
    """The run's folder below the root. Raises IllegalName for what is not `run_` and a ULID."""
    if not is_run(run_id):
        raise IllegalName(f"{run_id[:80]!r} is no run id of ours ({_RUN_ID.pattern}): it has no folder")
    return run_id


def is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name))


def place_of(path: str) -> tuple[str, str]:
    """Folder (empty for the run's own) and name of a file. Raises IllegalName."""
    if path in FILES:
        return "", path
    if is_artifact_path(path):
        return ARTIFACTS, path.removeprefix(f"{ARTIFACTS}/")
    raise IllegalName(f"{path[:120]!r} is no file of a run: it has {', '.join(FILES)} and {ARTIFACTS}/<name>")


@contextmanager
def folder(name: str, *, beneath: int) -> Iterator[int]:
    """Raises FileNotFoundError, or Unsafe where it is no folder."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=beneath)
    except OSError as error:
        raise _unsafe(error, name) if error.errno in _NO_FOLDER else error from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(name: str, *, beneath: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=beneath)
        _left_to_owner(name, beneath)


@contextmanager
def plain_file(name: str, *, beneath: int) -> Iterator[tuple[BufferedReader, int]]:
    """Its size is in bytes. Raises FileNotFoundError, or Unsafe."""
    descriptor, size = _open_settled(name, beneath)
    try:
        with open(descriptor, "rb", closefd=False) as file:
            yield file, size
    finally:
        os.close(descriptor)


def content(name: str, *, beneath: int, limit: int) -> bytes:
    """Raises as `plain_file`, and TooLarge for more than `limit` bytes."""
    with plain_file(name, beneath=beneath) as (file, size):
        data = file.read(limit + 1) if size <= limit else None
    if data is None or len(data) > limit:
        raise TooLarge(errno.EFBIG, f"has more than the {limit} bytes that are read at once", name)
    return data


def write_new(name: str, data: bytes, *, beneath: int) -> None:
    """Not yet on disk for sure."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(name, flags, 0o600, dir_fd=beneath)
    try:
        _left_to_owner(name, beneath)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def _left_to_owner(name: str, beneath: int) -> None:
    if os.geteuid() == 0:
        owner = os.fstat(beneath)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=beneath, follow_symlinks=False)


def clear(beneath: int) -> None:
    for name in os.listdir(beneath):
        try:
            os.unlink(name, dir_fd=beneath)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=beneath)


def _open_settled(name: str, beneath: int) -> tuple[int, int]:
    for _ in range(MAX_REPLACED):
        descriptor = _open_unchecked(name, beneath)
        try:
            opened = os.fstat(descriptor)
            # No name at all: a rename is putting another file in its place at this very moment.
            if opened.st_nlink > 0:
                _check_plain(opened, name, beneath)
                if _still_has(name, beneath, descriptor, opened):
                    return descriptor, opened.st_size
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise Unsafe(errno.EBUSY, "is replaced all the time", name)


def _still_has(name: str, beneath: int, descriptor: int, opened: os.stat_result) -> bool:
    _wait_for_the_lock_of(beneath)
    try:
        return not Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(" (deleted)")
    except OSError:  # no Linux, or no /proc: asking for the name again comes close
        return os.path.samestat(os.stat(name, dir_fd=beneath, follow_symlinks=False), opened)


def _wait_for_the_lock_of(folder: int) -> None:
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        os.listdir(listed)  # noqa: PTH208 # of a descriptor, which no path has
    finally:
        os.close(listed)


def _open_unchecked(name: str, beneath: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=beneath)
    except OSError as error:
        raise _unsafe(error, name) if error.errno in _NO_FILE else error from None


def _check_plain(facts: os.stat_result, name: str, beneath: int) -> None:
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or facts.st_dev != os.fstat(beneath).st_dev:
        raise Unsafe(errno.EINVAL, "is no plain file with one name: remove it", name)


def _unsafe(error: OSError, name: str) -> Unsafe:
    return Unsafe(error.errno, f"{error.strerror}: no plain file or folder of ours, remove it", name)
