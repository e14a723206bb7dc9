"""The workspace: a folder of files for people per run, `<root>/<run_id>/…`, six pages and `artifacts/`.

Names are matched before they touch the disk; no link is followed. Writers take turns by a lock. Nothing is async.
"""

import fcntl
import hashlib
import heapq
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent_service.telling.folder.disk import Unsafe, content, folder, plain_file, sync_file_system
from agent_service.telling.folder.staging import (
    ARTIFACTS,
    STAGING,
    Batch,
    Files,
    IllegalName,
    checked,
    is_run,
    place_of,
)
from agent_service.telling.outputs import FILES
from agent_service.telling.plain import one_line
from groundwork.service import store_folder

CAUGHT_UP = ".caught-up"
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

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Excludes other writers: a journal read meanwhile is at least as new as the workspace."""
        with self._writing() as (root, staging), Batch(root, staging) as batch:
            yield batch

    def write(self, trails: Iterable[tuple[str, Files]]) -> dict[str, Exception]:
        """Returns the runs that failed, which keep their old content. Raises OSError for a failed disk."""
        failed: dict[str, Exception] = {}
        with self.batch() as batch:
            for run_id, files in trails:
                try:
                    batch.stage(run_id, files)
                except (OSError, IllegalName) as error:
                    failed[run_id] = error
            return failed | batch.publish()

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
                sync_file_system(root)

    def remove_artifacts(self, *run_ids: str) -> None:
        with self._writing() as (root, _):
            if [name for name in map(checked, run_ids) if _without_artifacts(name, root)]:
                sync_file_system(root)

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

    def note_caught_up(self) -> None:
        """No run that ended before now waits to be written: the time of an empty file, which a full disk takes."""
        with suppress(OSError):
            (self._root / CAUGHT_UP).touch(mode=0o600)

    def caught_up_at(self) -> datetime | None:
        try:
            return datetime.fromtimestamp((self._root / CAUGHT_UP).stat().st_mtime, UTC)
        except OSError:
            return None

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


def _without_artifacts(name: str, beneath: int) -> bool:
    try:
        with folder(name, beneath=beneath) as run:
            return _removed(ARTIFACTS, run)
    except (FileNotFoundError, Unsafe):
        return False


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
