"""Files on their way into an archive and out of it."""

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
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


def write_out(pieces: Iterable[bytes], target: Path) -> None:
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        store_folder.left_to_owner(target)
        for piece in pieces:
            opened.write(piece)
        opened.flush()
        os.fsync(opened.fileno())


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
