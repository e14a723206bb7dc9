"""What can go wrong in storing to a SQLite file, named by what to do about it."""

import sqlite3
from pathlib import Path


class StorageError(Exception):
    """The write was not stored, unless the kind of error says otherwise."""


class StorageFull(StorageError):
    """No room: free space, then try again. Nothing of the write is stored; reading still works."""


class StorageBusy(StorageError):
    """Another connection held its lock for the whole waiting time: try again. Nothing of the write is stored."""


class StorageBroken(StorageError):
    """Disk or file failed: restart. Until then all writes are refused; only then it shows if this one was stored."""


class StorageClosed(StorageError):
    """The store is closing: write again after the next start."""


def storage_kind(error: BaseException) -> type[StorageError] | None:
    """What an error of SQLite means for all writers of its file; None if it is the fault of one statement alone."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StorageFull
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageBusy
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_SHMSIZE:
            return StorageFull  # the index beside the WAL could not grow: no fsync has failed
        case (
            sqlite3.SQLITE_IOERR
            | sqlite3.SQLITE_CORRUPT
            | sqlite3.SQLITE_NOTADB
            | sqlite3.SQLITE_READONLY
            | sqlite3.SQLITE_CANTOPEN
        ):
            return StorageBroken
    return None


def storage_error(cause: BaseException, path: Path) -> StorageError:
    """`cause` as the error that callers see; what we do not know counts as broken."""
    kind = storage_kind(cause) or StorageBroken
    error = kind(_TEXTS[kind].format(path=path, cause=cause))
    error.__cause__ = cause
    return error


_TEXTS = {
    StorageFull: "no room for {path} ({cause}): nothing of this write is stored. Free space, then try again",
    StorageBusy: "another connection kept {path} locked: nothing of this write is stored. Try again",
    StorageBroken: "{path} failed ({cause}) and takes no more writes: check the disk, then restart the process",
}
