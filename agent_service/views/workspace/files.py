"""The workspace: one folder of files for people per run, `<root>/<run_id>/…`, with six pages and `artifacts/`.

Names are checked before they touch the disk; folders are opened one below the other, without following links. Only a
regular file with one name, on the folder's mount, is read, even if something else takes its place meanwhile. Files are
staged and renamed under a lock. They can be rendered again, so only removal syncs the disk. Nothing is async.
"""

import errno
import fcntl
import hashlib
import heapq
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from agent_service.history.results import FILES, is_artifact_path
from agent_service.history.text import View, is_run_id, one_line
from groundwork.service import store_folder
from schemas.values import dataclass

ARTIFACTS, STAGING = "artifacts", ".staging"
MAX_BYTES = 64 << 20
"""Bytes read of one file, or hashed for a list."""
MAX_LISTED = 1_000
MAX_REPLACED = 100
BLOCK = 512
"""Bytes of the unit of `st_blocks`."""

_FOREIGN = frozenset({errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP, errno.EISDIR})


class IllegalName(ValueError):
    """No run, or file of a run, has this name; nothing was touched."""


class Unsafe(OSError):
    """Something else is in the place of a plain file or folder: remove it by hand, then try again."""


class TooLarge(OSError):
    """The file has more than MAX_BYTES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`size` is in bytes; `sha256` in hex, null for a file that is too large to hash for a list."""

    path: str
    size: int
    sha256: str | None


class FileList(View):
    """The files in a run's folder; `foreign` names other things in it, such as links."""

    run_id: str
    files: tuple[Listed, ...]
    foreign: tuple[str, ...]


def checked(run_id: str) -> str:
    """Returns `run_id`, the name of its folder. Raises IllegalName unless it is `run_` and a ULID."""
    if not is_run_id(run_id):
        raise IllegalName(f"{run_id[:80]!r} is not a run id (run_ and a ULID): it has no folder")
    return run_id


class Workspace:
    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, run_id: str, files: Mapping[str, bytes]) -> None:
        """Writes the files that differ, each atomically. Raises IllegalName, and OSError (Unsafe, a full disk)."""
        checked(run_id)
        with self._writing() as staging:
            staged = [
                (path, _write_new(str(number), data, beneath=staging))
                for number, (path, data) in enumerate(files.items())
                if not self._holds(run_id, path, data)
            ]
            for path, aside in staged:
                subfolder, name = _location_of(path)
                with self._below(run_id, subfolder, create=True) as at:
                    os.rename(aside, name, src_dir_fd=staging, dst_dir_fd=at)

    def read(self, run_id: str, path: str) -> bytes | None:
        """None if it is missing. Raises IllegalName, Unsafe and TooLarge."""
        subfolder, name = _location_of(path)
        with suppress(FileNotFoundError), self._below(checked(run_id), subfolder) as at, _plain_file(name, at) as file:
            if len(data := file.read(MAX_BYTES + 1)) > MAX_BYTES:
                raise TooLarge(errno.EFBIG, f"has more than the {MAX_BYTES} bytes that are read at once", name)
            return data
        return None

    def files(self, run_id: str) -> FileList | None:
        """The first MAX_LISTED files by path; None without a folder. Raises IllegalName and Unsafe."""
        files, foreign = list[Listed](), list[str]()
        with suppress(FileNotFoundError), self._below(checked(run_id)) as run:
            for subfolder in ("", f"{ARTIFACTS}/"):
                try:
                    with _open_folders(run, subfolder.rstrip("/")) as at:
                        _list(subfolder, at, files, foreign)
                except FileNotFoundError:
                    pass
                except Unsafe:
                    foreign.append(ARTIFACTS)
            files.sort(key=lambda file: file.path)
            return FileList(run_id=run_id, files=tuple(files), foreign=tuple(foreign))
        return None

    def remove(self, *run_ids: str) -> None:
        with self._writing(), self._below() as root:
            if [name for name in map(checked, run_ids) if _removed(name, root)]:
                os.fsync(root)

    def remove_artifacts(self, *run_ids: str) -> None:
        with self._writing():
            for name in map(checked, run_ids):
                with suppress(FileNotFoundError, Unsafe), self._below(name) as run:
                    if _removed(ARTIFACTS, run):
                        os.fsync(run)

    def sizes(self) -> dict[str, int]:
        """Bytes on disk, by run."""
        return {run_id: _bytes_in(self._root / run_id) for run_id in self.runs()}

    def remove_pages(self, run_ids: Iterable[str]) -> None:
        """Removes pages, and a folder that is empty then. Raises the first OSError, after all others are removed."""
        wanted, failed = [checked(run_id) for run_id in run_ids], list[OSError]()
        if not wanted:
            return
        with self._writing(), self._below() as root:
            for name in wanted:
                try:
                    with suppress(FileNotFoundError), self._below(name) as run:
                        for page in FILES:
                            with suppress(FileNotFoundError):
                                os.unlink(page, dir_fd=run)
                except OSError as error:
                    failed.append(error)
                with suppress(OSError):  # artifacts or foreign files are left
                    os.rmdir(name, dir_fd=root)
        if failed:
            raise failed[0]

    def has_pages(self, run_id: str) -> bool:
        """True if every page is there. Raises IllegalName and Unsafe."""
        with suppress(FileNotFoundError), self._below(checked(run_id)) as run:
            return set(_names(run)).issuperset(FILES)
        return False

    def runs(self) -> list[str]:
        """Run ids in order of the last change of their folders."""
        changed = list[tuple[int, str]]()
        with suppress(FileNotFoundError), os.scandir(self._root) as found:
            for entry in found:
                with suppress(FileNotFoundError):  # it may go meanwhile
                    if is_run_id(entry.name) and entry.is_dir(follow_symlinks=False):
                        changed.append((entry.stat().st_mtime_ns, entry.name))
        return [name for _, name in sorted(changed)]

    def _holds(self, run_id: str, path: str, data: bytes) -> bool:
        with suppress(Unsafe, TooLarge):
            return self.read(run_id, path) == data
        return False

    @contextmanager
    def _writing(self) -> Iterator[int]:
        for folder in (self._root, self._root / STAGING):
            store_folder.make_private_folder(folder)
        with self._below(STAGING) as staging:
            fcntl.flock(staging, fcntl.LOCK_EX)
            _clear(staging)
            try:
                yield staging
            finally:
                _clear(staging)

    @contextmanager
    def _below(self, *names: str, create: bool = False) -> Iterator[int]:
        with ExitStack() as opened:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, root)
            yield opened.enter_context(_open_folders(root, *names, create=create))


def _location_of(path: str) -> tuple[str, str]:
    """Subfolder, if any, and name of a file. Raises IllegalName."""
    if path in FILES:
        return "", path
    if is_artifact_path(path):
        return ARTIFACTS, path.removeprefix(f"{ARTIFACTS}/")
    raise IllegalName(f"{path[:120]!r} is not a file of a run: it has {', '.join(FILES)} and {ARTIFACTS}/<name>")


@contextmanager
def _open_folders(beneath: int, *names: str, create: bool = False) -> Iterator[int]:
    """Opens nested folders; yields the innermost. Skips empty names. Raises FileNotFoundError and Unsafe."""
    with ExitStack() as opened:
        for name in filter(None, names):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=beneath)
                    _give_to_owner(name, beneath)
            beneath = _opened(name, os.O_DIRECTORY, beneath)
            opened.callback(os.close, beneath)
        yield beneath


def _opened(name: str, flags: int, beneath: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=beneath)
    except OSError as error:
        if error.errno not in _FOREIGN:
            raise
        raise Unsafe(error.errno, f"{error.strerror}: no plain file or folder of ours, remove it", name) from None


def _plain_file(name: str, beneath: int) -> BufferedReader:
    """Raises FileNotFoundError, or Unsafe."""
    for _ in range(MAX_REPLACED):
        descriptor = _opened(name, os.O_NONBLOCK, beneath)
        try:
            if _is_named_file(descriptor, name, beneath):
                return os.fdopen(os.dup(descriptor), "rb")
        finally:
            os.close(descriptor)
    raise Unsafe(errno.EBUSY, "is replaced all the time", name)


def _is_named_file(descriptor: int, name: str, beneath: int) -> bool:
    """False while a rename replaces the file. Raises Unsafe for anything but a plain file."""
    opened = os.fstat(descriptor)
    is_one_file = stat.S_ISREG(opened.st_mode) and opened.st_nlink <= 1
    if opened.st_nlink and not (is_one_file and _mount(descriptor) == _mount(beneath)):
        raise Unsafe(errno.EINVAL, "is no plain file with one name: remove it", name)
    os.listdir(beneath)  # waits for a concurrent unlink, which drops the link count before the name
    with suppress(FileNotFoundError):
        named = os.stat(name, dir_fd=beneath, follow_symlinks=False)
        return os.path.samestat(opened, named) and opened.st_nlink == named.st_nlink == 1
    return False


def _mount(descriptor: int) -> str:
    """Its mount, not its device: in an overlay file system a file has another device than its folder."""
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    except OSError:  # no Linux
        return str(os.fstat(descriptor).st_dev)
    return facts.partition("mnt_id:")[2].split(maxsplit=1)[0]


def _write_new(name: str, data: bytes, *, beneath: int) -> str:
    """Does not sync."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=beneath), "wb") as file:
        _give_to_owner(name, beneath)
        file.write(data)
    return name


def _give_to_owner(path: str, beneath: int) -> None:
    if os.geteuid() == 0:
        owner = os.fstat(beneath)
        os.chown(path, owner.st_uid, owner.st_gid, dir_fd=beneath, follow_symlinks=False)


def _clear(beneath: int) -> None:
    for name in os.listdir(beneath):  # a descriptor has no path to iterate
        _removed(name, beneath)


def _removed(name: str, beneath: int) -> bool:
    try:
        os.unlink(name, dir_fd=beneath)
    except (IsADirectoryError, PermissionError):  # as Linux and macOS say it of a folder
        if not stat.S_ISDIR(os.stat(name, dir_fd=beneath, follow_symlinks=False).st_mode):
            raise
        shutil.rmtree(name, dir_fd=beneath)
    except FileNotFoundError:
        return False
    return True


def _bytes_in(folder: Path) -> int:
    total = 0
    for at, _, names in os.walk(folder):
        for path in (at, *(f"{at}/{name}" for name in names)):
            with suppress(FileNotFoundError):
                total += os.lstat(path).st_blocks * BLOCK
    return total


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return heapq.nsmallest(MAX_LISTED, (entry.name for entry in found))


def _list(prefix: str, folder: int, files: list[Listed], foreign: list[str]) -> None:
    for name in _names(folder):
        if (path := f"{prefix}{name}") == ARTIFACTS:
            continue
        try:
            _location_of(path)
            with _plain_file(name, folder) as file:
                size = os.fstat(file.fileno()).st_size
                digest = hashlib.file_digest(file, "sha256").hexdigest() if size <= MAX_BYTES else None
            files.append(Listed(path=path, size=size, sha256=digest))
        except (Unsafe, IllegalName, FileNotFoundError):
            foreign.append(one_line(path))
