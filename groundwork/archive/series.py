"""Series of backups in a folder, and what a service's backup and restore have in common.

A later backup has the newest full one as its base, and holds only new contents."""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
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


class Series:
    """The backups of one service. `place`: a folder, or the file of a single backup, which ends in .zip."""

    def __init__(self, place: str, service: str) -> None:
        path = Path(place)
        self.is_folder = path.is_dir() or place.endswith("/") or not (path.suffix == SUFFIX or path.exists())
        self._path = path
        self._service = service

    @contextmanager
    def new_archive(self, ring: KeyRing, at: datetime) -> Iterator[tuple[str, ArchiveWriter]]:
        """Makes a new backup, and yields its name with it. Raises Misconfigured, also while another process writes
        there, and OSError."""
        path, base = self._path, None
        with ExitStack() as opened:
            if self.is_folder:
                if path.parent.is_dir():
                    path.mkdir(mode=0o700, exist_ok=True)
                opened.enter_context(_locked(path, self._service))
                path, base = self._unused_path(at), self._base(ring, opened)
            writer = opened.enter_context(open_writer(path, ring, base))
            writer.fields["at"] = at
            yield self._name_of(path, at), writer

    @contextmanager
    def open(self, backup: str | None) -> Iterator[tuple[str, Archive]]:
        """Opens the service's archive of the newest backup, or of the one named `backup`, and yields its name with it.
        Raises Misconfigured, also for one that was changed."""
        names = {self._name_of(path): path for path in self._all()}
        path = names.get(backup or next(iter(names), "")) if self.is_folder else self._path
        if path:
            with Archive.open(path) as whole:
                name = self._name_of(path, whole.manifest.at)
                if backup in (None, name):
                    archive = whole.nested(self._service) or whole
                    for place, flaw in archive.flaws():
                        raise Misconfigured(
                            f"{path} is damaged: {place} {flaw}. Nothing was restored: use another copy"
                        )
                    yield name, archive
                    return
        known = ", ".join(names) if self.is_folder else "another"
        named = f" {backup}" if backup else ""
        advice = f"it has {known}" if known else "name a folder or file that the command `backup` has written"
        raise Misconfigured(f"{self._path} has no backup{named} of {self._service}: {advice}")

    def newest(self) -> Path | None:
        return next(iter(self._all()), None)

    def keep_only(self, most: int) -> None:
        """Keeps the newest `most` archives and their bases; all while one of them cannot be read."""
        there = self._all()
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

    def _name_of(self, path: Path, at: datetime | None = None) -> str:
        """The instant of the backup: from the file's name in a folder, else from `at`."""
        return path.stem.removeprefix(f"{self._service}-") if self.is_folder or at is None else f"{at:{_INSTANT}}"

    def _all(self) -> list[Path]:
        """Newest first; none for a single file."""
        there = self._path.glob(f"{self._service}-*{SUFFIX}") if self.is_folder else ()
        return sorted(there, key=lambda path: path.stem, reverse=True)

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


@contextmanager
def _locked(folder: Path, service: str) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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


def add_store(archive: ArchiveWriter, store: Path, files: Iterable[str], keys: Path, *, with_keys: bool) -> list[str]:
    """Adds files of a store that are there, and its keys, or returns the path of the keys that are not in it."""
    archive.fields["store"] = store_folder.known_id(store)
    for name in files:
        if (store / name).exists():
            archive.add(name, (store / name).read_bytes())
    if with_keys:
        archive.add(KEYS, keys.read_bytes())
    return [] if with_keys else [str(keys)]


def restore_store(archive: Archive, store: Path, files: Iterable[str]) -> None:
    for name in files:
        if name in archive.manifest.files:
            store_folder.write(store / name, archive.read(name).decode())


def restore_keys(archive: Archive, keys: Path, *, new_keys: bool) -> None:
    """Proves the archive with the keys, which are written from it if their file is lost. Raises Misconfigured."""
    if not keys.exists() and KEYS in archive.manifest.files:
        store_folder.write(keys, archive.read(KEYS).decode())
    if keys.exists():
        archive.prove(KeyRing.open(keys))
    elif not new_keys:
        raise Misconfigured(
            f"there is no file {keys}, and the backup holds no keys: without them nothing of it can be told from "
            "forged. Put the file back from where you keep it; or restore a backup that was made --with-keys; or, if "
            "it is lost, take the backup as it is with --new-keys"
        )


def move_aside(folder: Path, file: str) -> None:
    there = sorted(folder.glob(f"{file}*"))
    if there:
        kept = folder / f"before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        kept.mkdir(mode=0o700)
        for part in there:
            part.rename(kept / part.name)
