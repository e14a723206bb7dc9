"""The workspace: a folder of files for people per run, `<root>/<run_id>/…`, six pages and `artifacts/`.

Names are matched before they touch the disk, and no link is followed inside a run's folder. Writers take turns by a
lock. Nothing here is async.
"""

import fcntl
import hashlib
import heapq
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent_service.telling.folder.disk import Unsafe, content, folder, plain_file, sync_file_system
from agent_service.telling.folder.staging import ARTIFACTS, STAGING, Batch, Files, IllegalName, checked, place_of
from agent_service.telling.plain import one_line
from groundwork.service import private_file

CAUGHT_UP = ".caught-up"
MAX_BYTES = 64 << 20
"""What is read of one file, or hashed for a list."""
MAX_LISTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file of a run. `size` is in bytes; `sha256` in hex, null for a file too large to be hashed for a list."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a run, and what lies beside them and is no file of ours: links, pipes, strange names."""

    files: tuple[Listed, ...]
    foreign: tuple[str, ...]


class Workspace:
    """The folders below `root`, which is made when something is written."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Files to be staged and published, while no other writer does the same.

        What a writer reads of a journal while it has this is at least as new as all that is in the workspace.
        """
        with self._writing() as (root, staging), Batch(root, staging) as batch:
            yield batch

    def write(self, trails: Iterable[tuple[str, Files]]) -> dict[str, Exception]:
        """Write the runs; return those that failed, by id. What could not be written whole keeps its old content.

        Files whose content is there already are left alone. Raises OSError when the disk failed as a whole.
        """
        failed: dict[str, Exception] = {}
        with self.batch() as batch:
            for run_id, files in trails:
                try:
                    batch.stage(run_id, files)
                except (OSError, IllegalName) as error:
                    failed[run_id] = error
            return failed | batch.publish()

    def read(self, run_id: str, path: str) -> bytes | None:
        """A file's content; None where it does not exist.

        Raises IllegalName, Unsafe for what is no plain file, TooLarge for more than MAX_BYTES.
        """
        place, name = place_of(path)
        try:
            with self._run(run_id) as run, ExitStack() as opened:
                at = opened.enter_context(folder(place, beneath=run)) if place else run
                return content(name, beneath=at, limit=MAX_BYTES)
        except FileNotFoundError:
            return None

    def files(self, run_id: str) -> Listing | None:
        """What lies in the run's folder, sorted by path, the first MAX_LISTED names; None without a folder.

        Raises IllegalName, Unsafe where the folder is none.
        """
        try:
            with self._run(run_id) as run:
                return _listing(run)
        except FileNotFoundError:
            return None

    def remove(self, run_id: str) -> None:
        """Delete the run's folder and all in it; what links point to stays. It need not exist."""
        name = checked(run_id)
        with self._writing() as (root, _):
            try:
                shutil.rmtree(name, dir_fd=root)
            except FileNotFoundError:
                return
            sync_file_system(root)

    def note_caught_up(self) -> None:
        """Note that no run which ended before now waits to be written: as the time of an empty file, which takes no
        room on a full disk. Where it cannot be noted, more is written again after the next start."""
        with suppress(OSError):
            (self._root / CAUGHT_UP).touch(mode=0o600)

    def caught_up_at(self) -> datetime | None:
        """When that was noted last; None if it never was."""
        try:
            return datetime.fromtimestamp((self._root / CAUGHT_UP).stat().st_mtime, UTC)
        except OSError:
            return None

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, int]]:
        """The root and the staging folder, held by this writer alone."""
        private_file.folder_of_ours(self._root)
        (self._root / STAGING).mkdir(mode=0o700, exist_ok=True)
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
    """The files of ours, and the names of the rest."""
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
