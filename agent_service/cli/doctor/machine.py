"""Checks of this machine, read-only: SQLite, folders, database, the HTTP API, and the model (nothing that costs)."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx2

from agent_service.admission.callers import HttpSettings
from agent_service.api.door import Access
from agent_service.bus.room import CANNOT_WRITE, RESTART
from agent_service.errors import Damaged, ModelError
from agent_service.history.plain import duration, ok, warning, wrong
from agent_service.models.opening import open_model
from agent_service.models.scripted_model import read_script
from agent_service.models.settings import ModelSettings
from agent_service.settings import AgentSettings
from agent_service.store.sql.database import FILE, ahead, open_for_reading
from agent_service.store.sqlite import SqliteStore
from groundwork.service.address import called
from groundwork.service.config_file import secrets_in
from groundwork.service.errors import Fatal, Misconfigured, TryAgain
from groundwork.service.secret import equal_ones
from groundwork.service.store_folder import known_id
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.reserve import FOR_OPENING, reserved
from schemas.status import Finding

OLDEST_SQLITE = (3, 37, 0)
"""The first with STRICT tables."""
LITTLE_ROOM = 1 << 30
NEARLY_FULL, MUCH_ROOM = 0.8, 20 << 30
"""The share of a disk that is taken, and how much free room is enough whatever that share is."""
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
    """`deep` reads all of it."""
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


ANSWER_WITHIN_S = 5.0


def tokens(http: HttpSettings) -> Finding:
    try:
        Access(http)
    except Misconfigured as error:
        return wrong("tokens", str(error), remedy="correct agent.http")
    if not http.tokens:
        return ok("tokens", f"none: {http.host} is this machine's own, everybody on it may call")
    names = ", ".join(f"{token.name} ({'/'.join(sorted(token.scopes))})" for token in http.tokens)
    return ok("tokens", names)


def secrets(file: Path | None) -> Iterator[Finding]:
    if twins := equal_ones(secrets_in(file, os.environ) if file else {}):
        yield warning("secrets", "; ".join(twins), remedy="give each its own, such as from `openssl rand -hex 24`")


async def api(http: HttpSettings, store: Path | None) -> Finding:
    """`store`: None for one of several that share a store."""
    where = f"http://{called(http.host)}:{http.port}"
    if http.port == 0:
        return warning("http", "the API takes a free port at each start", remedy="set agent.http.port to find it again")
    try:
        async with httpx2.AsyncClient(base_url=where, trust_env=False, timeout=ANSWER_WITHIN_S) as client:
            answer = await client.get("/readyz")
            said = answer.json()
            checks = said["checks"]
    except httpx2.TransportError:
        return warning("http", f"no agent answers at {where}", remedy="start `agentic serve`")
    except (ValueError, KeyError, TypeError):
        remedy = "set agent.http.port to a port of its own"
        return wrong("http", f"what answers at {where} is no agent", remedy=remedy)
    if store and said.get("store", own := id_of(store)) != own:
        text = f"the agent at {where} has another store than {store}: it is not the one that is configured here"
        return wrong("http", text, remedy="set agent.http.port to a port of its own, or stop that one")
    troubles = [f"{name}: {trouble}" for name, trouble in checks.items() if trouble != "ok"]
    if {name for name, trouble in checks.items() if trouble != "ok"} == {"halt"}:
        return wrong("http", f"the agent at {where}: {checks['halt']}", remedy="`agentic go-on` lets everything go on")
    if troubles:
        remedy = RESTART if CANNOT_WRITE in checks.get("room", "") else "see its log"
        return wrong("http", f"the agent at {where} is not ready: {'; '.join(troubles)}", remedy=remedy)
    return ok("http", f"the agent at {where} is ready")


def id_of(store: Path) -> str:
    """Empty where it cannot be read, which the check of the folder tells."""
    with suppress(OSError):
        return known_id(store)
    return ""


MODEL_ANSWERS_WITHIN_S = 15.0


async def model(settings: ModelSettings) -> Finding:
    if settings.provider == "scripted":
        return await asyncio.to_thread(_script, settings)
    names = f"{settings.provider}: {', '.join(settings.names())}"
    try:
        async with open_model(settings) as provider, asyncio.timeout(MODEL_ANSWERS_WITHIN_S):
            findings = await provider.check()
    except Misconfigured as error:
        return wrong("model", str(error), remedy="correct the section agent.model of the configuration")
    except TimeoutError:
        return warning(
            "model", f"{names}: no answer in {MODEL_ANSWERS_WITHIN_S:g} s", remedy="ask again later: runs wait"
        )
    except ModelError as error:
        if error.remedy == "try_again":
            return warning("model", f"{names}: {error}", remedy="ask again later: runs wait until it answers")
        return wrong("model", f"{names}: {error}", remedy="correct the section agent.model of the configuration")
    if findings:
        return warning("model", f"{names}: {'; '.join(findings)}", remedy="choose another in agent.model.model")
    return ok("model", f"{names}, which the provider knows")


def _script(settings: ModelSettings) -> Finding:
    file = settings.script_file()
    try:
        script = read_script(file)
    except Misconfigured as error:
        return wrong("model", str(error), remedy="correct the script, or set agent.model.script to another")
    return ok(
        "model", f"scripted: {script.name}, {len(script.rules)} rules in {file} (it follows them, and does not think)"
    )
