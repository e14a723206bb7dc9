"""`ductile-gateway migrate`: the ledger moves from the database of one gateway into the stream of several, or back.

    nobody is at work ─▶ said that it moves ─▶ written, and held against what it was ─▶ said that it is there

It may be interrupted anywhere, and the same command finishes it. Until then no gateway begins with either.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from ductile_gateway.bus.prerequisites import ROLE, require
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import Config
from ductile_gateway.clock import SystemClock
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MOVED, marks, open_store, opening
from ductile_gateway.store.marks import Mark, mark_of, put_mark
from ductile_gateway.store.moving import begun_here, bring, counted, kept_alone, refuse_a_stream_with_rows, rows_of
from ductile_gateway.store.pins import FilePins, copied_pins
from ductile_gateway.store.stream import StreamRows
from groundwork.archive.files import put_in_place, set_aside
from groundwork.archive.series import backup_in
from groundwork.nats.leases.lease import look, look_at_all
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.shared_log import SharedLog
from groundwork.nats.topology import asked
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import AlreadyRunning, ProcessLock, store_id
from groundwork.sqlite.file import SqliteFile
from schemas import subjects


async def nobody_at_work(link: NatsLink, *, but: str = "") -> None:
    """Raises Misconfigured where a gateway lives, other than the one with the store `but`; and TryAgain."""
    records = [await look(link, ROLE), *await look_at_all(link, ROLE)]
    living = [record.owner for record in records if record and not record.free and record.owner.holder != but]
    if living:
        raise Misconfigured(
            f"gateways are at work: {'; '.join(map(str, living))}. Stop them all, then run this again; what died "
            "without a word is taken for alive until its lease has lapsed"
        )


commands = typer.Typer()

Stores = StrEnum("Stores", ["JETSTREAM", "SQLITE"])
ALONE = Path(GatewaySettings.model_fields["store"].default)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    folder: Path
    store: str
    link: NatsLink
    log: SharedLog
    rows: StreamRows


async def migrate(settings: GatewaySettings, *, to: str, sqlite: Path | None) -> None:
    """Move it, and tell. Raises Misconfigured where it cannot be moved as it is, and TryAgain."""
    folder = sqlite or (ALONE if settings.shared else settings.store)
    async with _moving(settings, folder) as move:
        moved = await (_into_stream(move) if to == "jetstream" else _into_database(move))
    place = f"the stream {subjects.STREAM_LEDGER}" if to == "jetstream" else str(folder)
    sys.stdout.write(f"✓ the ledger is in {place}, each row as it was; {moved} rows were moved now\n")


async def _into_stream(move: _Move) -> int:
    mark = await mark_of(move.rows)
    if mark.state in ("leaving", "left") or (mark.store and mark.store != move.store):
        raise _not_ours(mark)
    moved = 0
    if not mark.is_("here", move.store):
        if not mark.store:
            await refuse_a_stream_with_rows(move.log)
            mark = await put_mark(move.rows, "coming", move.store, before=mark)
            await nobody_at_work(move.link, but=move.store)
        moved = await _write(move)
        await put_mark(move.rows, "here", move.store, before=mark)
    store_folder.write(move.folder / MOVED, f"{subjects.STREAM_LEDGER}\n")
    return moved


async def _into_database(move: _Move) -> int:
    mark = await mark_of(move.rows)
    if mark.state == "coming" or (mark.state != "here" and mark.store != move.store):
        raise _not_ours(mark)
    moved = 0
    if mark.state != "left":
        if (move.folder / FILE).exists() and not (move.folder / MOVED).exists():
            raise Misconfigured(f"{move.folder} has a ledger of its own: name another folder with --sqlite")
        store_folder.write(move.folder / MOVED, f"{subjects.STREAM_LEDGER}\n")
        leaving = await put_mark(move.rows, "leaving", move.store, before=mark)
        try:
            moved = await _fetch(move)
        except Misconfigured:
            await put_mark(move.rows, mark.state, mark.store, before=leaving)
            raise
        await put_mark(move.rows, "left", move.store, before=leaving)
    (move.folder / MOVED).unlink(missing_ok=True)
    return moved


@asynccontextmanager
async def _moving(settings: GatewaySettings, folder: Path) -> AsyncIterator[_Move]:
    """Holds off all gateways. Raises Misconfigured where one is at work, and for a bus without the stream."""
    store_folder.closed(folder)
    async with AsyncExitStack() as opened:
        try:
            opened.enter_context(ProcessLock(folder))
        except AlreadyRunning as error:
            raise Misconfigured(f"{error}. Nothing was moved") from error
        link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} migrate")
        opened.push_async_callback(link.close)
        await require(link, shared=True)
        log = opening.log_of_gateways(link)
        move = _Move(
            folder=folder,
            store=store_id(folder),
            link=link,
            log=log,
            rows=StreamRows(log),
        )
        await nobody_at_work(move.link, but=move.store)
        yield move


async def _write(move: _Move) -> int:
    """How many rows are there now. Raises Misconfigured where one is not as it was."""
    known = FilePins(move.folder, SystemClock()).pins()
    async with open_store(move.folder) as file:
        told = [one async for one in rows_of(file, known, store=move.store)]
    return await bring(move.log, told)


async def _fetch(move: _Move) -> int:
    with TemporaryDirectory(dir=move.folder, prefix="copy-") as beside:
        async with opening.copy_of(move.log, Path(beside)) as (file, _):
            rows = await counted(file)
            flaw = await _flaw(move, file, rows)
            known = copied_pins(file)
            await file.write(kept_alone)
        if flaw:
            raise Misconfigured(f"{flaw}. Nothing was moved")
        set_aside(move.folder, FILE)
        put_in_place(Path(beside) / opening.FILE, move.folder / FILE)
    if known:
        FilePins(move.folder, SystemClock()).keep(known)
    return sum(rows.values())


async def _flaw(move: _Move, file: SqliteFile, rows: Mapping[str, int]) -> str:
    if begun := await begun_here(file):
        return (
            f"calls of plugins that write were begun and not seen to end: {', '.join(begun)}. Start the gateways that "
            "began them (or any, which leaves them in doubt), and stop them once `ductile-gateway.status` tells of none"
        )
    for kind, number in rows.items():
        of_kind = f"{subjects.LEDGER}.{kind}.*"
        asking = move.link.jetstream.stream_info(subjects.STREAM_LEDGER, subjects_filter=of_kind)
        info = await asked(move.link, f"stream {subjects.STREAM_LEDGER}", asking)
        if (there := len(info.state.subjects or {})) != number:
            return f"the copy has {number} rows of the kind {kind}, and the stream {there}: see the log"
    return ""


def _not_ours(mark: Mark) -> Misconfigured:
    backup = backup_in(mark.store)
    finish = f"run `{marks.RESTORE} {backup}` again" if backup else "name that store's folder with --sqlite"
    return Misconfigured(
        f"the ledger of the stream {subjects.STREAM_LEDGER} is {mark.state}, of the {'' if backup else 'store '}"
        f"{mark.store}: {finish}; or make the stream anew: `nats stream rm {subjects.STREAM_LEDGER}`, then "
        "`agentic setup --shared`"
    )


@commands.command("migrate")
def migrate_command(
    config: Config = None,
    to: Annotated[Stores, typer.Option(help="Where the ledger is to be.")] = Stores.JETSTREAM,
    sqlite: Annotated[
        Path | None, typer.Option(help="The folder of the database, if not that of the settings.", metavar="FOLDER")
    ] = None,
) -> None:
    """No gateway may run."""
    asyncio.run(migrate(exits.settings_of(config), to=to.value, sqlite=sqlite))
