"""Numbered schema migrations of a SQLite file: a folder of `NNNN_name.sql`, counted in `PRAGMA user_version`.

Each script runs once, in order, in one transaction with its number. An older program refuses a newer file. Run it
before anything else opens the file: it does not guard against a second process.
"""

import contextlib
import logging
import os
import re
import sqlite3
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import quote

from groundwork.service.errors import Misconfigured
from groundwork.sqlite.errors import concerns_the_file, storage_error

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

log = logging.getLogger(__name__)


def migrate(path: Path, scripts: Traversable) -> int:
    """Bring the file (made if absent) up to the newest of `scripts`, a folder of `importlib.resources`; return its
    version. Raises Misconfigured for scripts with gaps or errors, and for a newer file; TryAgain and Broken. The file
    is then as the last complete script left it."""
    ordered = _ordered(scripts)
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            _refuse(path, found, known=len(ordered))
            if found == 0:  # said before there is a table: room that is free can be given back, page by page
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            for version, script in enumerate(ordered[found:], start=found + 1):
                _run(connection, script, version=version, path=path)
            if 0 < found < len(ordered):
                facts = {"file": str(path), "before": found, "now": len(ordered)}
                log.warning("a database was brought up to date: older programs refuse it from now on", extra=facts)
    except sqlite3.Error as error:
        raise storage_error(error, path) from error
    return len(ordered)


def ahead(path: Path, scripts: Traversable) -> str:
    """What `migrate` will do to an older file; empty for nothing, and for one that cannot be read. Raises Misconfigured
    for a newer one."""
    if not os.access(path, os.R_OK):
        return ""
    known = newest(scripts)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return ""
    _refuse(path, found, known=known)
    if found in (0, known):
        return ""
    return f"{path} has schema version {found}: the next start makes {known} of it, which older programs refuse"


def _refuse(path: Path, found: int, *, known: int) -> None:
    if found > known:
        raise Misconfigured(
            f"{path} has schema version {found}, and this program knows versions up to {known}: "
            "start the newer program that wrote it, or restore a backup from before that upgrade"
        )


def newest(scripts: Traversable) -> int:
    return len(_ordered(scripts))


def _ordered(scripts: Traversable) -> list[Traversable]:
    found = sorted((entry for entry in scripts.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    if not found:
        raise Misconfigured(f"no migration in {scripts}: the program is not completely installed, install it again")
    for expected, script in enumerate(found, start=1):
        name = _NAME.fullmatch(script.name)
        if name is None or int(name[1]) != expected:
            raise Misconfigured(
                f"migration {script.name} in {scripts} stands where {expected:04d}_<name>.sql must be: "
                "number the scripts 0001, 0002, … without gap or repetition"
            )
    return found


def _run(connection: sqlite3.Connection, script: Traversable, *, version: int, path: Path) -> None:
    sql = script.read_text(encoding="utf-8")
    try:  # closing the connection rolls back what fails here
        connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\n;PRAGMA user_version={version};\nCOMMIT;")
    except sqlite3.Error as error:
        if concerns_the_file(error):
            raise
        raise Misconfigured(
            f"migration {script.name} failed on {path} ({error}): nothing of it is stored, the file stays at version "
            f"{version - 1}. Correct the script, which begins and commits nothing by itself, then start again"
        ) from error
