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


class Full(TryAgain): ...


_Meaning = tuple[type[TryAgain] | type[Broken], str]

_FULL: _Meaning = (Full, "no room for {path} ({cause}): nothing of this write is stored. Free space, then try again")
_BUSY: _Meaning = (TryAgain, "another connection kept {path} locked: nothing of this write is stored. Try again")
_FAILED: _Meaning = (
    Broken,
    "{path} failed ({cause}) and takes no more writes: check its disk, owner and mode, then restart the process",
)
"""Only a restart shows if the write was stored."""
_DAMAGE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_MEANINGS: dict[int, _Meaning] = {
    sqlite3.SQLITE_FULL: _FULL,
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), _BUSY),
    **dict.fromkeys((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, *_DAMAGE), _FAILED),
}


def is_damage(error: BaseException | None) -> bool:
    return _code(error) & 0xFF in _DAMAGE


def is_file_error(error: BaseException) -> bool:
    """True if the error stops all writers, and not only the statement that raised it."""
    return _code(error) & 0xFF in _MEANINGS


def storage_error(cause: BaseException, path: Path) -> TryAgain | Broken:
    """`cause` as the error that callers see. Unknown errors count as broken."""
    code = _code(cause)
    is_full = code == sqlite3.SQLITE_IOERR_SHMSIZE  # the index beside the WAL could not grow: no fsync has failed
    kind, text = _FULL if is_full else _MEANINGS.get(code & 0xFF, _FAILED)
    error = kind(text.format(path=path, cause=cause))
    error.__cause__ = cause
    return error


def full_error(path: Path, cause: str) -> Full:
    return Full(_FULL[1].format(path=path, cause=cause))


def _code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
