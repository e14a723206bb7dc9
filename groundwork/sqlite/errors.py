"""Errors of SQLite in the terms of callers, and checks of a file."""

import sqlite3
from pathlib import Path

from groundwork.service.errors import Broken, TryAgain


def read_only_uri(path: Path) -> str:
    """URI that opens a file read-only."""
    return f"{path.absolute().as_uri()}?mode=ro"


def read_only(path: Path) -> sqlite3.Connection:
    """Opens a connection for one thread at a time. Raises sqlite3.Error."""
    return sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None, check_same_thread=False)


def damage_in(connection: sqlite3.Connection) -> str:
    """The first damage that SQLite finds, or "". Raises sqlite3.Error."""
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]).splitlines()[-1]
    return "" if found == "ok" else found


class Full(TryAgain): ...


_Meaning = tuple[type[TryAgain] | type[Broken], str]

_FULL: _Meaning = (Full, "no room for {path} ({cause}): nothing of this write is stored. Free space, then try again")
_BUSY: _Meaning = (TryAgain, "another connection kept {path} locked: nothing of this write is stored. Try again")
_FAILED: _Meaning = (
    Broken,
    "{path} failed ({cause}) and takes no more writes: check the disk, then restart the process",
)
"""Only a restart shows if the write was stored."""
_DENIED: _Meaning = (
    Broken,
    "{path} failed ({cause}) and takes no more writes: check their owner, mode and mount, then restart",
)


def is_damage(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_file_error(error: BaseException) -> bool:
    """True if the error stops all writers, and not only the statement that raised it."""
    return _meaning(error) is not None


def storage_error(cause: BaseException, path: Path) -> TryAgain | Broken:
    """`cause` as the error that callers see. Unknown errors count as broken."""
    kind, text = _meaning(cause) or _FAILED
    error = kind(text.format(path=path, cause=cause))
    error.__cause__ = cause
    return error


def full_error(path: Path, cause: str) -> Full:
    return Full(_FULL[1].format(path=path, cause=cause))


def _meaning(error: BaseException) -> _Meaning | None:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return _FULL
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return _BUSY
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_SHMSIZE:
            return _FULL  # the index beside the WAL could not grow: no fsync has failed
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _FAILED
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return _DENIED
    return None
