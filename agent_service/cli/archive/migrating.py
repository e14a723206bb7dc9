"""`agentic migrate`: runs move from the SQLite store of one agent into the stream that several share, or back.

    nobody is at work ─▶ marked as moving ─▶ written, and compared ─▶ marked as arrived

The same command finishes an interrupted move. Until then no agent begins on either store.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_service import settings
from agent_service.bus.topology import check
from agent_service.cli import whereabouts
from agent_service.cli.archive.records import Outcome, bus_at_hand
from agent_service.cli.services.at_work import nobody_at_work
from agent_service.store.opening import Copied, copied, left_out, log_of_runs
from agent_service.store.shared_log import marks
from agent_service.store.shared_log.marks import Mark, put_mark
from agent_service.store.shared_log.moving import IntoLog
from agent_service.store.sql.database import FILE, open_database
from groundwork.backup.files import set_aside
from groundwork.backup.told import backup_in
from groundwork.nats.link import NatsLink
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import ID_FILE, AlreadyRunning, ProcessLock, store_id
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

LOOK = "look with `agentic verify --all`"
USUAL = Path(".agentic/agent")
"""The folder of the SQLite store, where the configuration names a shared one."""
NAMED = 3
"""Flaws that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated(Outcome):
    source: str
    target: str
    runs: int
    entries: int

    def __str__(self) -> str:
        if not self.runs and not self.entries:
            return f"✓ {self.source} is moved to {self.target} already: nothing was written"
        return (
            f"✓ {self.runs} runs are in {self.target}, each entry as it was in {self.source}; "
            f"{self.entries} entries were written now"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What both directions work with. `folder` is that of the SQLite store, `store` its id."""

    folder: Path
    link: NatsLink
    store: str


async def into_stream(config: Path | None, sqlite: Path | None) -> Migrated:
    """From SQLite to JetStream. Raises Misconfigured where they cannot be moved as they are, and TryAgain."""
    async with _moving(config, sqlite) as move:
        if not (move.folder / FILE).is_file():
            raise Misconfigured(f"there is no database in {move.folder}: name the folder of the store with --sqlite")
        log = log_of_runs(move.link)
        mark = await marks.mark_in(log)
        if mark.state in ("leaving", "left") or (mark.store and mark.store != move.store):
            raise _not_ours(mark)
        if mark.state == "here" and mark.store:
            marks.mark_moved_away(move.folder)
            return Migrated(source=str(move.folder), target=subjects.STREAM_RUNS, runs=0, entries=0)
        async with open_database(move.folder) as source:
            runs = await _runs(source)
        async with said_to_come(move, mark) as written:
            marks.mark_moved_away(move.folder)
    return Migrated(source=str(move.folder), target=subjects.STREAM_RUNS, runs=runs, entries=written)


@asynccontextmanager
async def said_to_come(move: Move, mark: Mark) -> AsyncIterator[int]:
    """The runs come while this is held; agents may begin after it. `mark`: the present one. Raises as `into_stream`."""
    log = log_of_runs(move.link)
    with TemporaryDirectory(dir=move.folder, prefix="copy-") as beside:
        async with open_database(move.folder) as source, copied(move.link, Path(beside)) as there:
            await _refuse_strangers(mark, there, move)
            if not mark.store:
                mark = await put_mark(log, Mark(state="coming", store=move.store), mark)
                await nobody_at_work(move.link, but=move.store)
            written = await IntoLog(log, there, there.database).move(source)
    yield written
    await put_mark(log, Mark(state="here", store=move.store), mark)


async def into_sqlite(config: Path | None, sqlite: Path | None) -> Migrated:
    async with _moving(config, sqlite) as move:
        log = log_of_runs(move.link)
        mark = await marks.mark_in(log)
        if mark.state == "coming" or (mark.state != "here" and mark.store != move.store):
            raise _not_ours(mark)
        written = 0
        if mark.state != "left":
            if mark.state == "here":
                _refuse_another(move.folder)
                mark = await _leaving(move, mark)
            written = await _fetch(move)
            await put_mark(log, Mark(state="left", store=move.store), mark)
        marks.mark_brought_back(move.folder)
        async with open_database(move.folder) as database:
            runs = await _runs(database)
    return Migrated(source=subjects.STREAM_RUNS, target=str(move.folder), runs=runs, entries=written)


@asynccontextmanager
async def _moving(config: Path | None, sqlite: Path | None) -> AsyncIterator[Move]:
    loaded = settings.load(whereabouts.nearby(config))
    folder = sqlite or (USUAL if loaded.shared else loaded.store)
    async with AsyncExitStack() as opened:
        store_folder.closed(folder)
        try:
            opened.enter_context(ProcessLock(folder))
        except AlreadyRunning as error:
            raise Misconfigured(f"{error}. Nothing was moved") from error
        link = await opened.enter_async_context(bus_at_hand(loaded))
        move = Move(folder=folder, link=link, store=store_id(folder))
        await check(link, shared=True)
        await nobody_at_work(move.link, but=move.store)
        yield move


async def _refuse_strangers(mark: Mark, there: Copied, move: Move) -> None:
    if not mark.store and (runs := await _runs(there.database)):
        raise Misconfigured(
            f"the stream {subjects.STREAM_RUNS} holds {runs} runs of its own: {move.folder} can be moved only into an "
            "empty one"
        )


def _refuse_another(folder: Path) -> None:
    if (folder / FILE).exists() and not (folder / marks.FILE).exists():
        raise Misconfigured(
            f"{folder} is a store with runs of its own: name another folder with --sqlite, or move it away"
        )


async def _leaving(move: Move, mark: Mark) -> Mark:
    log = log_of_runs(move.link)
    leaving = await put_mark(log, Mark(state="leaving", store=move.store), mark)
    try:
        await nobody_at_work(move.link, but=move.store)
    except Misconfigured:
        await put_mark(log, mark, leaving)
        raise
    return leaving


async def _fetch(move: Move) -> int:
    beside = move.folder / "coming"
    shutil.rmtree(beside, ignore_errors=True)
    marks.mark_moved_away(move.folder)
    async with copied(move.link, beside) as there:
        if flaws := await left_out(there.database):
            told = "; ".join(f"{about}: {why}" for about, why in list(flaws.items())[:NAMED])
            raise Misconfigured(f"the copy of the stream is not fit to be a store: {told}. {LOOK}")
        ((entries,),) = await there.database.read("SELECT count(*) FROM journal")
    set_aside(move.folder, FILE)
    for part in sorted(beside.glob(f"{FILE}*"), reverse=True):
        part.rename(move.folder / part.name)
    shutil.rmtree(beside)
    return int(entries)


def _not_ours(mark: Mark) -> Misconfigured:
    match mark.state:
        case "left":
            anew = f"`nats stream rm {subjects.STREAM_RUNS}`, then `agentic setup --shared`"
            mend = f"Its runs are there now: start the agent of that store; for others make the stream anew: {anew}"
        case "here":
            mend = f"Its runs are in the stream, which takes no others: `{marks.TO_FILE}` brings them out again"
        case _:
            mend = f"That was not finished: run `{marks.command_of(mark)}` again"
    which = f" (the one whose folder has that id in {ID_FILE}; --sqlite names it)" if not backup_in(mark.store) else ""
    of = f"the stream {subjects.STREAM_RUNS} is that of the store {mark.store} ({mark.state})"
    return Misconfigured(f"{of}{which}. {mend}")


async def _runs(database: SqliteFile) -> int:
    ((runs,),) = await database.read("SELECT count(*) FROM runs")
    return int(runs)
