"""The workspace: a folder of files for people per run, `<root>/<run_id>/…`, six pages and `artifacts/`.

Names are matched before they touch the disk; no link is followed. Files are written aside and renamed; writers take
turns by a lock. What is written can be rendered again, so only removing waits for the disk. Nothing is async.
"""

import fcntl
import hashlib
import heapq
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from agent_service.history.artifacts import FILES
from agent_service.history.plain import one_line
from agent_service.views.folder.disk import (
    ARTIFACTS,
    Files,
    IllegalName,
    TooLarge,
    Unsafe,
    checked,
    clear,
    content,
    folder,
    is_run,
    make_folder,
    place_of,
    plain_file,
    write_new,
)
from groundwork.service import store_folder
from schemas.values import dataclass

STAGING = ".staging"
MAX_BYTES = 64 << 20
"""Bytes read of one file, or hashed for a list."""
MAX_LISTED = 1_000
BLOCK = 512
"""Bytes of what a file system counts by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`size` is in bytes; `sha256` in hex, null for a file too large to be hashed for a list."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a run, and other entries of its folder: links, pipes, strange names."""

    files: tuple[Listed, ...]
    foreign: tuple[str, ...]


class Workspace:
    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, run_id: str, files: Files) -> None:
        """Writes what differs; a new folder appears whole. Raises IllegalName, and OSError (Unsafe, a full disk): then
        the run keeps its old content.
        """
        name = checked(run_id)
        with self._writing() as (root, staging), ExitStack() as opened:
            clear(staging)
            opened.callback(clear, staging)
            try:
                run = opened.enter_context(folder(name, beneath=root))
            except FileNotFoundError:
                make_folder(name, beneath=staging)
                with folder(name, beneath=staging) as new:
                    for place, file, data in _located(files, new, opened):
                        write_new(file, data, beneath=place)
                os.rename(name, name, src_dir_fd=staging, dst_dir_fd=root)
            else:
                for temporary, place, file in _staged(_located(files, run, opened), staging):
                    os.rename(temporary, file, src_dir_fd=staging, dst_dir_fd=place)

    def read(self, run_id: str, path: str) -> bytes | None:
        """None where there is none. Raises IllegalName, Unsafe for no plain file, TooLarge for more than MAX_BYTES."""
        place, name = place_of(path)
        try:
            with self._run(run_id) as run, ExitStack() as opened:
                at = opened.enter_context(folder(place, beneath=run)) if place else run
                return content(name, beneath=at, limit=MAX_BYTES)
        except FileNotFoundError:
            return None

    def files(self, run_id: str) -> Listing | None:
        """By path, the first MAX_LISTED; None without a folder. Raises IllegalName, and Unsafe for no folder."""
        try:
            with self._run(run_id) as run:
                return _listing(run)
        except FileNotFoundError:
            return None

    def remove(self, *run_ids: str) -> None:
        with self._writing() as (root, _):
            if [name for name in map(checked, run_ids) if _removed(name, root)]:
                os.fsync(root)

    def remove_artifacts(self, *run_ids: str) -> None:
        with self._writing() as (root, _):
            for name in map(checked, run_ids):
                _remove_artifacts(name, root)

    def sizes(self) -> dict[str, int]:
        if not self._root.is_dir():
            return {}
        runs = (place for place in os.scandir(self._root) if is_run(place.name) and place.is_dir(follow_symlinks=False))
        return {run.name: _bytes_in(run) for run in runs}

    def put_away(self, run_ids: Iterable[str]) -> None:
        """Removes pages only. Raises OSError."""
        wanted = [checked(run_id) for run_id in run_ids]
        if not wanted:
            return
        with self._writing() as (root, _):
            for name in wanted:
                with suppress(FileNotFoundError), folder(name, beneath=root) as run:
                    _unlink_pages(run)
                with suppress(OSError):  # its artifacts are there, or something that is not ours
                    os.rmdir(name, dir_fd=root)

    def has_pages(self, run_id: str) -> bool:
        """Raises IllegalName, and Unsafe where the folder is none."""
        try:
            with self._run(run_id) as run:
                return not set(FILES).isdisjoint(_names(run))
        except FileNotFoundError:
            return False

    def runs(self) -> list[str]:
        try:
            with os.scandir(self._root) as found:
                changed = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in found]
        except FileNotFoundError:
            return []
        return [name for _, name in sorted(changed) if is_run(name)]

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, int]]:
        for made in (self._root, self._root / STAGING):
            store_folder.folder_of_ours(made)
        with self._opened() as root, folder(STAGING, beneath=root) as staging:
            fcntl.flock(staging, fcntl.LOCK_EX)
            yield root, staging

    @contextmanager
    def _opened(self) -> Iterator[int]:
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield root
        finally:
            os.close(root)

    @contextmanager
    def _run(self, run_id: str) -> Iterator[int]:
        name = checked(run_id)
        with self._opened() as root, folder(name, beneath=root) as run:
            yield run


def _located(files: Files, run: int, opened: ExitStack) -> Iterator[tuple[int, str, bytes]]:
    """Open folder, name and content of each file; folders are made."""
    places = {"": run}
    for path, data in files.items():
        place, name = place_of(path)
        if place not in places:
            make_folder(place, beneath=run)
            places[place] = opened.enter_context(folder(place, beneath=run))
        yield places[place], name, data


def _staged(located: Iterable[tuple[int, str, bytes]], staging: int) -> list[tuple[str, int, str]]:
    """Those that differ, written aside."""
    staged: list[tuple[str, int, str]] = []
    for place, name, data in located:
        if not _is(data, name, beneath=place):
            temporary = str(len(staged))
            write_new(temporary, data, beneath=staging)
            staged.append((temporary, place, name))
    return staged


def _is(data: bytes, name: str, *, beneath: int) -> bool:
    try:
        return content(name, beneath=beneath, limit=len(data)) == data
    except (Unsafe, TooLarge, FileNotFoundError):
        return False


def _unlink_pages(run: int) -> None:
    for page in FILES:
        with suppress(FileNotFoundError):
            os.unlink(page, dir_fd=run)


def _removed(name: str, beneath: int) -> bool:
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=beneath).st_mode):
            shutil.rmtree(name, dir_fd=beneath)
        else:
            os.unlink(name, dir_fd=beneath)
    except FileNotFoundError:
        return False
    return True


def _remove_artifacts(name: str, beneath: int) -> None:
    with suppress(FileNotFoundError, Unsafe), folder(name, beneath=beneath) as run:
        if _removed(ARTIFACTS, run):
            os.fsync(run)


def _bytes_in(folder_of_run: os.DirEntry[str]) -> int:
    below = (place for at, _, names in os.walk(folder_of_run) for place in (at, *(f"{at}/{name}" for name in names)))
    taken = 0
    for place in below:
        with suppress(FileNotFoundError):
            taken += os.lstat(place).st_blocks * BLOCK
    return taken


def _listing(run: int) -> Listing:
    names = [name for name in _names(run) if name != ARTIFACTS]
    files, foreign = _sorted_out(names, "", run)
    try:
        with folder(ARTIFACTS, beneath=run) as artifacts:
            more, strange = _sorted_out(_names(artifacts), f"{ARTIFACTS}/", artifacts)
    except FileNotFoundError:
        more, strange = [], []
    except Unsafe:
        more, strange = [], [ARTIFACTS]
    return Listing(files=(*more, *files), foreign=(*strange, *foreign))


def _names(place: int) -> list[str]:
    with os.scandir(place) as found:
        return heapq.nsmallest(MAX_LISTED, (entry.name for entry in found))


def _sorted_out(names: Iterable[str], prefix: str, place: int) -> tuple[list[Listed], list[str]]:
    files, foreign = [], []
    for name in names:
        try:
            files.append(_listed(name, f"{prefix}{name}", place))
        except (Unsafe, IllegalName, FileNotFoundError):
            foreign.append(one_line(f"{prefix}{name}"))
    return files, foreign


def _listed(name: str, path: str, place: int) -> Listed:
    place_of(path)
    with plain_file(name, beneath=place) as (file, size):
        digest = hashlib.file_digest(file, "sha256").hexdigest() if size <= MAX_BYTES else None
        return Listed(path=path, size=size, sha256=digest)
