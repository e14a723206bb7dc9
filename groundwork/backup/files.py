"""Files on their way into a backup and out of it, and the keys by which a backup proves itself."""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from groundwork.backup.archive import BLOCK, Archive
from groundwork.backup.told import KeptFile, Part
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import sync
from groundwork.sqlite.errors import storage_error


@contextmanager
def snapshot(database: Path, beside: Path) -> Iterator[Path]:
    """A temporary copy of a database, beside another one. Raises Misconfigured for one that is damaged or missing, and
    TryAgain where there is no room."""
    copy = beside.with_name(f"{beside.name}.snapshot")
    try:
        _remove(copy)
        copy.touch(mode=0o600, exist_ok=False)  # nobody else's, where others may write
        _copy(database, copy)
        yield copy
    finally:
        _remove(copy)


def pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(BLOCK):
            yield piece


def pieces_of(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), BLOCK):
        yield content[at : at + BLOCK]


def write_out(archive: Archive, file: KeptFile, target: Path) -> None:
    whole = hashlib.sha256()
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        store_folder.left_to_owner(target)
        for piece in archive.content(file):
            opened.write(piece)
            whole.update(piece)
        opened.flush()
        os.fsync(opened.fileno())
    if whole.hexdigest() != file.sha256:
        raise Misconfigured(f"{archive.path} is damaged: {file.name} is not as it was backed up. Use another copy")


def put_in_place(file: Path, place: Path) -> None:
    """Move a file to where it is to be, for good: no loss of power takes it back. Raises OSError."""
    sync(file)
    file.replace(place)
    sync(place.parent)


def _remove(copy: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal", ""):
        copy.with_name(f"{copy.name}{suffix}").unlink(missing_ok=True)


def _copy(database: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as there,
            closing(sqlite3.connect(copy)) as here,
        ):
            here.execute("PRAGMA synchronous = OFF")
            there.backup(here)  # in one step: a snapshot, which holds nobody up who writes
            found = str(here.execute("PRAGMA quick_check(1)").fetchone()[0]).splitlines()[-1]
    except sqlite3.Error as error:
        raise storage_error(error, database) from error
    if found != "ok":
        raise Misconfigured(f"{database} is damaged ({found}): this is no state to keep. Restore an older backup")


def set_aside(folder: Path, file: str) -> None:
    there = sorted(folder.glob(f"{file}*"))
    if there:
        kept = folder / f"before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        kept.mkdir(mode=0o700)
        for part in there:
            part.rename(kept / part.name)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A folder of its own in `folder`, empty, and removed at the end; also what a killed process has left there."""
    beside = folder / "restoring"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o700)
    store_folder.left_to_owner(beside)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


KEYS = "keys"


def ring_for(path: Path, archive: Archive, part: Part, *, new_keys: bool) -> KeyRing | None:
    if not path.exists() and (kept := part.file(KEYS)):
        store_folder.write(path, b"".join(archive.content(kept)).decode())
    if path.exists():
        return KeyRing.open(path)
    if new_keys:
        return None
    with_keys = (name for name in archive.having(part.part) if _has_keys(archive.unproved(name, part.part)))
    other = next((f"restore {name}, which holds keys, with --backup; " for name in with_keys), "")
    raise Misconfigured(
        f"there is no file {path}, and the backup holds no keys: without them nothing of it can be told from forged. "
        f"Put the file back from where you keep it; {other}or, if it is lost, take the backup as it is with --new-keys"
    )


def _has_keys(part: Part | None) -> bool:
    return part is not None and part.file(KEYS) is not None
