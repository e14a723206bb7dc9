"""Numbered schema migrations of a SQLite file: a folder of `NNNN_name.sql`, counted in `PRAGMA user_version`.

Each script runs once, in order, in one transaction with its number. An older program refuses a newer file. Run it
before anything else opens the file: it does not guard against a second process.
"""

import contextlib
import logging
import os
import sqlite3
from importlib.resources.abc import Traversable
from pathlib import Path

from groundwork.service.errors import Misconfigured
from groundwork.sqlite.errors import read_only, storage_error

log = logging.getLogger(__name__)


def migrate(path: Path, scripts: Traversable) -> int:
    """Bring the file (made if absent) up to the newest of `scripts`, a folder of `importlib.resources`; return its
    version. Raises Misconfigured for a newer file; TryAgain and Broken. The file is then as the last complete script
    left it."""
    ordered = _ordered(scripts)
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = _version(path, connection, known=len(ordered))
            if found == 0:  # said before there is a table: room that is free can be given back, page by page
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            for version, script in enumerate(ordered[found:], start=found + 1):
                sql = script.read_text(encoding="utf-8")  # closing the connection rolls back what fails
                connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\n;PRAGMA user_version={version};\nCOMMIT;")
            if 0 < found < len(ordered):
                facts = {"file": str(path), "before": found, "now": len(ordered)}
                log.warning("a database was brought up to date: older programs refuse it from now on", extra=facts)
    except sqlite3.Error as error:
        raise storage_error(error, path) from error
    return len(ordered)


def ahead(path: Path, scripts: Traversable) -> str:
    """What `migrate` will do to an older file; empty for nothing, and for one that cannot be read. Raises Misconfigured
    for a newer one."""
    known, found = newest(scripts), 0
    if os.access(path, os.R_OK):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(read_only(path)) as connection:
            found = _version(path, connection, known=known)
    if found in (0, known):
        return ""
    return f"{path} has schema version {found}: the next start makes {known} of it, which older programs refuse"


def newest(scripts: Traversable) -> int:
    return len(_ordered(scripts))


def _version(path: Path, connection: sqlite3.Connection, *, known: int) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > known:
        raise Misconfigured(
            f"{path} has schema version {found}, and this program knows versions up to {known}: "
            "start the newer program that wrote it, or restore a backup from before that upgrade"
        )
    return found


def _ordered(scripts: Traversable) -> list[Traversable]:
    return sorted((entry for entry in scripts.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
