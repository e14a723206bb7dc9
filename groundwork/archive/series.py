"""Series of backups in a folder, and files on their way into an archive and out of it.

A later backup has the newest full one as its base, and holds only new contents."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from groundwork.archive.format import PART, Archive, ArchiveWriter, open_writer
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing

SUFFIX = ".zip"
KEYS = "keys"
_INSTANT = "%Y%m%dT%H%M%SZ"
_OF_BACKUP = "backup "


def backup_owner(name: str) -> str:
    """Stands for a store's id as the owner of restored rows."""
    return f"{_OF_BACKUP}{name}"


def backup_of_owner(store: str) -> str:
    return store.removeprefix(_OF_BACKUP) if store.startswith(_OF_BACKUP) else ""


class Series:
    """The backups of one service. `place`: a folder, or the file of a single backup, which ends in .zip."""

    def __init__(self, place: str, service: str) -> None:
        path = Path(place)
        self.is_folder = path.is_dir() or place.endswith("/") or not (path.suffix == SUFFIX or path.exists())
        self._path = path
        self._service = service

    @contextmanager
    def new_archive(self, ring: KeyRing, at: datetime) -> Iterator[tuple[Path, ArchiveWriter]]:
        """Makes a new backup. Raises Misconfigured, also while another process writes there, and TryAgain."""
        if not self.is_folder:
            with open_writer(self._path, ring) as writer:
                yield self._path, writer
            return
        if self._path.parent.is_dir():
            self._path.mkdir(mode=0o700, exist_ok=True)
        with ExitStack() as opened:
            opened.enter_context(_locked(self._path, self._service))
            path = self._unused_path(at)
            writer = opened.enter_context(open_writer(path, ring, self._base(ring, opened)))
            yield path, writer

    @contextmanager
    def open(self, backup: str | None) -> Iterator[tuple[str, Archive]]:
        """Opens the newest archive, or the one named `backup`, and returns its name with it. Raises Misconfigured."""
        for path in self._all() if self.is_folder else [self._path]:
            if self.is_folder and backup not in (None, self.name_of(path)):
                continue
            with Archive.open(path) as archive:
                name = self.name_of(path, archive.manifest.at)
                if backup in (None, name):
                    yield name, archive
                    return
        known = ", ".join(map(self.name_of, self._all())) if self.is_folder else "another"
        named = f" {backup}" if backup else ""
        advice = f"it has {known}" if known else "name a folder or file that the command `backup` has written"
        raise Misconfigured(f"{self._path} has no backup{named} of {self._service}: {advice}")

    def name_of(self, path: Path, at: datetime | None = None) -> str:
        """The instant of the backup: from the file's name in a folder, else from `at`."""
        return path.stem.removeprefix(f"{self._service}-") if self.is_folder or at is None else f"{at:{_INSTANT}}"

    def newest(self) -> Path | None:
        return next(iter(self._all()), None) if self.is_folder else None

    def keep_only(self, most: int) -> None:
        """Keeps the newest `most` archives and their bases; all while one of them cannot be read."""
        there = self._all() if self.is_folder else []
        needed = {path.name for path in there[:most]}
        try:
            for path in there[:most]:
                with Archive.open(path) as archive:
                    needed.add(archive.manifest.base)
        except Misconfigured:
            return
        for path in there:
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def ring_for(self, keys: Path, archive: Archive, *, new_keys: bool) -> KeyRing | None:
        """Keys that prove the archive; if their file is lost, it is written from it. Raises Misconfigured."""
        if not keys.exists() and KEYS in archive.manifest.files:
            store_folder.write(keys, archive.read(KEYS).decode())
        if keys.exists():
            ring = KeyRing.open(keys)
            archive.prove(ring)
            return ring
        if new_keys:
            return None
        other = next((f"restore {name}, which holds keys, with --backup; " for name in self._with_keys()), "")
        raise Misconfigured(
            f"there is no file {keys}, and the backup holds no keys: without them nothing of it can be told from "
            f"forged. Put the file back from where you keep it; {other}or, if it is lost, take the backup as it is "
            "with --new-keys"
        )

    def _all(self) -> list[Path]:
        return sorted(self._path.glob(f"{self._service}-*{SUFFIX}"), key=lambda path: path.stem, reverse=True)

    def _unused_path(self, at: datetime) -> Path:
        name = f"{self._service}-{at:{_INSTANT}}"
        names = chain((name,), (f"{name}-{number}" for number in count(2)))
        return next(path for one in names if not (path := self._path / f"{one}{SUFFIX}").exists())

    def _base(self, ring: KeyRing, opened: ExitStack) -> Archive | None:
        """The newest full archive; none once the newest increment is larger than half of it."""
        for path in self._all():
            with suppress(Misconfigured), ExitStack() as tried:
                archive = tried.enter_context(Archive.open(path))
                archive.prove(ring)
                if not archive.manifest.base:
                    newest = self._all()[0]
                    if newest != path and 2 * newest.stat().st_size > path.stat().st_size:
                        return None
                    opened.push(tried.pop_all())
                    return archive
        return None

    def _with_keys(self) -> Iterator[str]:
        for path in self._all() if self.is_folder else ():
            with suppress(Misconfigured), Archive.open(path) as archive:
                if KEYS in archive.manifest.files:
                    yield self.name_of(path)


@contextmanager
def _locked(folder: Path, service: str) -> Iterator[None]:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be used: {error.strerror}. Nothing was backed up") from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Misconfigured(f"another process makes a backup in {folder}: wait until it has ended") from error
    else:
        for left in folder.glob(f"{service}-*{SUFFIX}{PART}*"):  # by a process that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        yield
    finally:
        os.close(opened)


def move_aside(folder: Path, file: str) -> None:
    there = sorted(folder.glob(f"{file}*"))
    if there:
        kept = folder / f"before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        kept.mkdir(mode=0o700)
        for part in there:
            part.rename(kept / part.name)
