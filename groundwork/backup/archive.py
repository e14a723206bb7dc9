"""A backup file: one SQLite file of blocks, each kept once by its hash, and what is told of them.

A later backup writes only new blocks. A backup counts once its `Whole` is stored, which is last. What is told is sealed
with the keys of the service, and holds the hash of every block.
"""

import contextlib
import hashlib
import os
import shlex
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from groundwork.backup.told import KeptFile, Part, Whole
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.sqlite.errors import storage_error

T = TypeVar("T", Part, Whole)

BLOCK = 64 * 1024
LONGEST_TEXT = 1 << 30
"""Bytes of what is told of a part, some 70 of them for each of its blocks."""
NAME = "agentic.backup"
PURPOSE = "backup"
WHOLE = "whole"
FORMAT = 1
WRITTEN_AT_ONCE = 64 << 20

_OURS = 0x4147424B
_SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA application_id = {_OURS};
PRAGMA user_version = {FORMAT};
BEGIN;
CREATE TABLE blocks (hash BLOB NOT NULL PRIMARY KEY, content BLOB NOT NULL); -- hash: SHA-256; content: by zlib
CREATE TABLE told (
    backup TEXT NOT NULL,
    part   TEXT NOT NULL,
    text   BLOB NOT NULL, -- JSON, by zlib
    seal   TEXT NOT NULL, -- by a key of the service whose part it is
    PRIMARY KEY (backup, part)
);
COMMIT;
"""


def place_of(named: str) -> Path:
    """The file that is meant: in a folder it has a name of its own."""
    path = Path(named)
    return path / NAME if path.is_dir() or named.endswith("/") else path


class Archive:
    """Each method raises Misconfigured for a damaged file, and TryAgain where there is no room. `written`: bytes since
    opened."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.written = 0
        self._connection = connection
        self._unsaved = 0

    @classmethod
    @contextlib.contextmanager
    def to_write(cls, path: Path, *, with_keys: bool = False) -> Iterator["Archive"]:
        """Made if absent, for this user alone. Raises Misconfigured also while another process writes there, and where
        others may read it and keys are to go into it."""
        with _explained(path), contextlib.closing(_made(path)) as connection:
            if with_keys and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Misconfigured(
                    f"{path} is not yours alone, and keys are to go into it: chmod 600 {shlex.quote(str(path))}, or "
                    "leave out --with-keys"
                )
            _begin(connection, path)
            yield cls(path, connection)
            connection.execute("COMMIT")

    @classmethod
    @contextlib.contextmanager
    def to_read(cls, path: Path) -> Iterator["Archive"]:
        if not path.is_file():
            raise Misconfigured(f"there is no backup {path}: name the file, or its folder")
        mode = "rw" if os.access(path, os.W_OK) else "ro"
        with _explained(path), contextlib.closing(_opened(path, mode)) as connection:
            _check_format(connection, path)
            yield cls(path, connection)

    def keep(self, name: str, content: Iterable[bytes]) -> KeptFile:
        size, whole, blocks = 0, hashlib.sha256(), []
        for piece in content:
            digest = hashlib.sha256(piece).digest()
            self._keep_block(digest, piece)
            size += len(piece)
            whole.update(piece)
            blocks.append(digest.hex())
        return KeptFile(name=name, size=size, sha256=whole.hexdigest(), blocks=tuple(blocks))

    def content(self, file: KeptFile) -> Iterator[bytes]:
        for block in file.blocks:
            rows = self._connection.execute("SELECT content FROM blocks WHERE hash = ?", (bytes.fromhex(block),))
            found = next((_inflated(content, BLOCK) for (content,) in rows), b"")
            if hashlib.sha256(found).hexdigest() != block:
                raise Misconfigured(f"{self.path} is damaged: {file.name} is not as it was backed up. Use another copy")
            yield found

    def fresh_name(self, at: datetime) -> str:
        """Of a backup of that instant: none in the file has it, and names sort as the backups were made."""
        name = f"{at:%Y%m%dT%H%M%S}Z"
        taken = {backup for (backup,) in self._connection.execute("SELECT backup FROM told")}
        others = (f"{name}-{number}" for number in count(2))
        return next(one for one in chain((name,), others) if one not in taken)

    def tell(self, backup: str, part: Part, ring: KeyRing) -> None:
        self._tell(backup, part.part, part.model_dump_json(), ring)

    def complete(self, whole: Whole, ring: KeyRing) -> None:
        self._tell(whole.backup, WHOLE, whole.model_dump_json(), ring)

    def backups(self) -> list[str]:
        rows = self._connection.execute("SELECT backup FROM told WHERE part = ? ORDER BY backup DESC", (WHOLE,))
        return [backup for (backup,) in rows]

    def having(self, part: str) -> list[str]:
        having = {name for (name,) in self._connection.execute("SELECT backup FROM told WHERE part = ?", (part,))}
        return [backup for backup in self.backups() if backup in having]

    def newest(self, part: str, ring: KeyRing) -> Part | None:
        """What was told last of a part with these keys, also where its backup is not whole."""
        told = "SELECT backup FROM told WHERE part = ? ORDER BY backup DESC LIMIT 1"
        with contextlib.suppress(Misconfigured):
            for (backup,) in self._connection.execute(told, (part,)).fetchall():
                return self.part(backup, part, ring)
        return None

    def digest(self, backup: str, part: str) -> str:
        """The SHA-256 of what is told of a part; empty where nothing is."""
        told = "SELECT text FROM told WHERE backup = ? AND part = ?"
        rows = self._connection.execute(told, (backup, part)).fetchall()
        return "".join(hashlib.sha256(_inflated(text)).hexdigest() for (text,) in rows)

    def unproved(self, backup: str, part: str) -> Part | None:
        found = self._told(backup, part)
        return self._read(Part, found[0]) if found else None

    def part(self, backup: str, part: str, ring: KeyRing | None) -> Part | None:
        """The same, as the holder of the keys has said; without a ring as it is. Raises Misconfigured."""
        return self._proved(Part, backup, part, ring)

    def whole(self, backup: str, ring: KeyRing | None) -> Whole:
        """What the backup is made of. Raises Misconfigured also where a part of it is missing or is another."""
        whole = self._proved(Whole, backup, WHOLE, ring)
        if whole is None:
            there = ", ".join(self.backups()) or "none"
            raise Misconfigured(f"{self.path} has no whole backup {backup}: it has {there}")
        if strange := [part for part, digest in whole.parts.items() if self.digest(backup, part) != digest]:
            raise Misconfigured(f"{self.path} is damaged: of the backup {backup} the part {strange[0]} is another one")
        return whole

    def forget_all_but(self, most: int) -> None:
        """Keep the newest backups, the newest with a part that these lack, and the blocks that they need."""
        newest = self.backups()[:most]
        if not newest:
            return
        told = self._connection.execute("SELECT backup, part FROM told").fetchall()
        with_each = {backup for part in {part for _, part in told} for backup in self.having(part)[:1]}
        gone = {(backup,) for backup, _ in told if backup < newest[-1] and backup not in with_each}
        self._connection.executemany("DELETE FROM told WHERE backup = ?", gone)
        needed = set[bytes]()
        for (text,) in self._connection.execute("SELECT text FROM told WHERE part <> ?", (WHOLE,)):
            files = self._read(Part, _inflated(text)).files
            needed.update(bytes.fromhex(block) for file in files for block in file.blocks)
        held = [digest for (digest,) in self._connection.execute("SELECT hash FROM blocks")]
        unneeded = [(digest,) for digest in held if digest not in needed]
        self._connection.executemany("DELETE FROM blocks WHERE hash = ?", unneeded)
        self._save()
        self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA incremental_vacuum").fetchall()
        self._connection.execute("BEGIN IMMEDIATE")

    def _keep_block(self, digest: bytes, piece: bytes) -> None:
        if self._connection.execute("SELECT 1 FROM blocks WHERE hash = ?", (digest,)).fetchone():
            return
        content = zlib.compress(piece, 1)
        self._connection.execute("INSERT INTO blocks (hash, content) VALUES (?, ?)", (digest, content))
        self.written += len(content)
        self._unsaved += len(content)
        if self._unsaved >= WRITTEN_AT_ONCE:
            self._save()

    def _save(self) -> None:
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")
        self._unsaved = 0

    def _tell(self, backup: str, part: str, text: str, ring: KeyRing) -> None:
        row = backup, part, zlib.compress(text.encode()), ring.mac(PURPOSE, backup, part, text)
        self._connection.execute("INSERT OR REPLACE INTO told (backup, part, text, seal) VALUES (?, ?, ?, ?)", row)
        self._save()

    def _told(self, backup: str, part: str) -> tuple[bytes, str] | None:
        told = "SELECT text, seal FROM told WHERE backup = ? AND part = ?"
        rows = self._connection.execute(told, (backup, part)).fetchall()
        return next(((_inflated(text), seal) for text, seal in rows), None)

    def _proved(self, kind: type[T], backup: str, part: str, ring: KeyRing | None) -> T | None:
        found = self._told(backup, part)
        if found is None:
            return None
        text, seal = found
        if ring and not ring.checks(seal, PURPOSE, backup, part, text):
            raise Misconfigured(
                f"what {self.path} tells of {part} in the backup {backup} was not said with these keys: it was changed "
                "by other hands, or is of another installation. Restore the keys file that it was made with"
            )
        return self._read(kind, text)

    def _read(self, kind: type[T], text: bytes) -> T:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise Misconfigured(f"{self.path} is damaged: use another copy of it") from error


def _made(path: Path) -> sqlite3.Connection:
    if path.name == NAME and path.parent.parent.is_dir():
        path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.parent.is_dir():
        raise Misconfigured(f"there is no folder {path.parent}: make it, or correct the path. Nothing was backed up")
    if not path.exists():
        path.touch(mode=0o600)
    return _opened(path, "rw")


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, isolation_level=None)


def _begin(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    if path.stat().st_size == 0:
        connection.executescript(_SCHEMA)
    _check_format(connection, path)
    connection.execute("BEGIN IMMEDIATE")


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    ((ours,),) = connection.execute("PRAGMA application_id").fetchall()
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if ours != _OURS:
        raise Misconfigured(f"{path} is no backup: name another file")
    if version > FORMAT:
        raise Misconfigured(f"{path} was made by a newer version of the program: use that one")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # What it cannot make out of a damaged file has no code, or is no text.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise Misconfigured(f"{path} is no backup: name another file") from error
        if code == sqlite3.SQLITE_CORRUPT or isinstance(error, UnicodeDecodeError):
            raise Misconfigured(f"{path} is damaged ({error}): use another copy of it") from error
        raise storage_error(error, path) from error
    except OSError as error:
        raise Misconfigured(f"{error.filename or path} cannot be used: {error.strerror}") from error


def _inflated(content: bytes, most: int = LONGEST_TEXT) -> bytes:
    """Nothing where it is damaged, which its hash shows, or more than `most` bytes, which no backup writes."""
    inflating = zlib.decompressobj()
    with contextlib.suppress(zlib.error):
        found = inflating.decompress(content, most + 1)
        return found if inflating.eof and len(found) <= most else b""
    return b""
