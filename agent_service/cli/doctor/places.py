"""Checks of this machine: SQLite, the agent's folders, its database. They read only."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from agent_service.errors import Damaged
from agent_service.settings import AgentSettings
from agent_service.store.sql.database import FILE, ahead, open_for_reading
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.findings import ok, warning, wrong
from agent_service.telling.plain import duration
from groundwork.service.errors import Fatal, TryAgain
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.reserve import FOR_OPENING, reserved
from schemas.gateway_status import Finding

OLDEST_SQLITE = (3, 37, 0)
"""The first with STRICT tables."""
LITTLE_ROOM = 1 << 30
NEARLY_FULL, MUCH_ROOM = 0.8, 20 << 30
"""The share of a disk that is taken, and how much free room is enough whatever that share is."""
"""Room in a file that nothing needs: in bytes, and as its share."""
SKEW = timedelta(seconds=5)
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
MOST_NAMED = 5
BEFORE = (
    "the way back is a backup that is made before, with the version that wrote it (`agentic backup FILE`), or a copy "
    "of both stores while nothing runs; then start the services"
)


def sqlite() -> Finding:
    found = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        return wrong("sqlite", found, remedy="use a Python that comes with SQLite 3.37 or newer")
    return ok("sqlite", found)


def folder(name: str, path: Path) -> Finding:
    """Whether the agent can write there, as this user, and has room."""
    existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        return wrong(name, f"{existing} is no folder", remedy=f"move it away, or set agent.{name} to a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        return wrong(name, f"{existing} cannot be written", remedy=f"give this user the folder, or set agent.{name}")
    size, _, free = shutil.disk_usage(existing)
    text = f"{path}{'' if existing == path.absolute() else ' (will be made)'}, {_size(free)} free"
    if free < FOR_OPENING:
        return wrong(name, text, remedy="free space: without it nothing can be stored")
    if free < LITTLE_ROOM or (free < size * (1 - NEARLY_FULL) and free < MUCH_ROOM):
        text += f" of {_size(size)}"
        return warning(name, text, remedy="free space soon: without it nothing can be stored")
    return ok(name, text)


async def database(settings: AgentSettings, *, deep: bool) -> AsyncIterator[Finding]:
    """What the database says of itself; `deep` reads all of it."""
    if not (settings.store / FILE).exists():
        yield ok("database", "none yet: the agent makes it when it starts")
        return
    try:
        if coming := ahead(settings.store):
            yield warning("database", coming, remedy=BEFORE)
            return
        async with open_for_reading(settings.store) as opened:
            yield await _contents(opened)
            yield await damage(SqliteStore(opened), all_runs=deep)
            if deep:
                yield await asyncio.to_thread(_integrity, opened.path)
    except (Fatal, TryAgain) as error:
        yield wrong("database", str(error), remedy="see above, then run doctor again")


async def _contents(opened: SqliteFile) -> Finding:
    store = SqliteStore(opened)
    counts = await store.counts()
    newest = await store.runs(limit=1)
    ahead = newest[0].updated_at - datetime.now(UTC) if newest else timedelta()
    text = f"{opened.path}, {sum(counts.values())} runs, {_size(opened.path.stat().st_size)}"
    if kept := reserved(opened.path):
        text += f", {_size(kept)} kept beside it for a full disk"
    if ahead > SKEW:
        remedy = "set the clock right: deadlines and timers follow it"
        return warning("database", f"{text}; its newest entry is {duration(ahead)} in the future", remedy=remedy)
    return ok("database", text)


def _integrity(path: Path) -> Finding:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        return wrong("integrity", f"{path}: {found}", remedy="restore the database from a backup")
    return ok("integrity", "the database is undamaged")


def _size(number: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} bytes"


async def damage(store: SqliteStore, *, all_runs: bool) -> Finding:
    """Every row of the runs that go on, or of all."""
    run_ids = await store.unsettled(ALWAYS if all_runs else datetime.now(UTC))
    found = [what for run_id in run_ids if (what := await _wrong_with(store, run_id))]
    if not found:
        return ok("runs", f"{len(run_ids)} {'of all' if all_runs else 'that go on'}, all can be read")
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    remedy = "stop the agent and restore the database from a backup: until then these runs are left alone"
    return wrong("runs", f"damaged: {', '.join(found[:MOST_NAMED])}{more}", remedy=remedy)


async def _wrong_with(store: SqliteStore, run_id: str) -> str:
    try:
        await store.load(run_id)
        for entry in await store.entries(run_id):
            entry.decoded()
    except Damaged as error:
        return f"{run_id} ({error.what})"
    except ValueError as error:
        return str(error)
    return ""
