"""`ductile-gateway restore`: the ledger of a backup becomes that of this machine, which has none.

It is written and proved beside its place, and moved there last: killed before, it has restored nothing. Killed on its
way into the stream of several gateways, it bars them until the same command has finished it. What was under way, and
what runs may have done since, is in doubt (store/restored).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.bus.prerequisites import nobody_at_work, require
from ductile_gateway.cli import exits
from ductile_gateway.cli.backing_up import GATEWAY, held_alone
from ductile_gateway.cli.options import AsJson, Config, Place
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MOVED, open_store, opening
from ductile_gateway.store.moving import ANEW, Mark, bring, mark_of, put_mark, rows_of
from ductile_gateway.store.pins import FILE as PINS
from ductile_gateway.store.pins import FilePins
from ductile_gateway.store.restored import Restored
from ductile_gateway.store.rows import LocalRows
from ductile_gateway.store.stream import StreamRows
from groundwork.archive.files import put_in_place, set_aside, staging, write_out
from groundwork.archive.format import Archive
from groundwork.archive.series import Series, of_backup
from groundwork.nats.link import NatsLink, connect
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import ID_FILE
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.values import dataclass, replace

commands = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`backup`: its name, or the newest. `moved`: nothing has happened since. `new_keys`: the old ones are lost."""

    place: str
    backup: str | None = None
    moved: bool = False
    new_keys: bool = False
    as_json: bool = False


async def restore(settings: GatewaySettings, order: Order) -> None:
    """Raises Misconfigured where there is a ledger, or a backup that does not prove itself, and TryAgain."""
    series = Series(order.place, GATEWAY)
    with series.opened(order.backup) as (name, opened):
        archive = opened.within(GATEWAY) or opened
        series.ring_for(settings.keys_path(), archive, new_keys=order.new_keys)
        order = replace(order, backup=name, moved=order.moved or archive.manifest.moved)
        async with _alone(settings) as link:
            if settings.shared:
                await _into_stream(settings, archive, order, link)
            else:
                await _into_folder(settings, archive, order)
    place = f"the stream {subjects.STREAM_LEDGER}" if settings.shared else str(settings.store)
    told = {"backup": name, "store": place, "calls": archive.manifest.about.get("calls", 0)}
    sys.stdout.write(f"{json.dumps(told)}\n" if order.as_json else f"✓ {place} is as it was in {name}\n")


@asynccontextmanager
async def _alone(settings: GatewaySettings) -> AsyncIterator[NatsLink]:
    """Raises Misconfigured while a gateway has the folder, or the bus, and for a bus that was not set up."""
    with held_alone(settings.private_folder()):
        link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} restore")
        try:
            await require(link, shared=settings.shared)
            await nobody_at_work(link)
            yield link
        finally:
            await link.close()


async def _is_restored(folder: Path, order: Order) -> bool:
    """Raises Misconfigured where there is another ledger, which was not moved away."""
    if not (folder / FILE).exists() or (folder / MOVED).exists():
        return False
    async with open_store(folder) as there:
        known = await LocalRows(there).read(Restored)
        ((calls,),) = await there.read("SELECT count(*) FROM rows WHERE kind = 'call'")
    if known and known.backup == order.backup:
        return True
    if calls:
        raise Misconfigured(
            f"{folder} has a ledger of {calls} calls, and nothing is overwritten: move it away, then run this again"
        )
    return False


async def _into_folder(settings: GatewaySettings, archive: Archive, order: Order) -> None:
    folder = settings.store
    if await _is_restored(folder, order):
        return
    async with _written_out(settings, archive) as beside:
        async with open_store(beside) as file:
            await _note(file, _restored(archive, order))
        set_aside(folder, FILE)
        for name in (PINS, ID_FILE, FILE):
            if (beside / name).exists():
                put_in_place(beside / name, folder / name)
    (folder / MOVED).unlink(missing_ok=True)


async def _into_stream(settings: GatewaySettings, archive: Archive, order: Order, link: NatsLink) -> None:
    log, backup = opening.log_of_gateways(link), order.backup or ""
    rows = StreamRows(log)
    mark, coming, here = await mark_of(rows), Mark("coming", backup), Mark("here", backup)
    if mark == here:
        return
    if mark != coming:
        if await log.end():
            raise Misconfigured(f"the stream {subjects.STREAM_LEDGER} is not empty, and nothing is overwritten: {ANEW}")
        await put_mark(rows, coming, before=mark)
    async with _written_out(settings, archive) as beside, open_store(beside) as file:
        await _note(file, await rows.read(Restored) or _restored(archive, order))
        await bring(log, [one async for one in rows_of(file, FilePins(beside).pins(), owner=of_backup(backup))])
    await put_mark(rows, here, before=coming)


def _restored(archive: Archive, order: Order) -> Restored:
    taken = archive.manifest.at
    at = taken if order.moved else datetime.now(UTC)
    return Restored.of(order.backup or "", taken=taken, at=at, moved=order.moved)


async def _note(file: SqliteFile, restored: Restored) -> None:
    """What an earlier restore left in doubt stays so after a move."""

    def noted(before: Restored | None) -> Restored:
        return restored._replace(moved=restored.moved and (before is None or before.moved))

    await LocalRows(file).change(Restored, noted)


@asynccontextmanager
async def _written_out(settings: GatewaySettings, archive: Archive) -> AsyncIterator[Path]:
    with staging(settings.private_folder()) as beside:
        write_out(archive.pieces(FILE), beside / FILE)
        for name in (name for name in (PINS, ID_FILE) if name in archive.manifest.files):
            write_out([archive.read(name)], beside / name)
        yield beside


@commands.command("restore")
def restore_command(
    place: Place,
    backup: Annotated[str | None, typer.Option(help="Which one; the newest without it.", metavar="NAME")] = None,
    moved: Annotated[bool, typer.Option("--moved", help="Nothing has happened since: no write is in doubt.")] = False,
    new_keys: Annotated[bool, typer.Option("--new-keys", help="Take it as it is: the keys are lost.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """No gateway may run."""
    order = Order(place=place, backup=backup, moved=moved, new_keys=new_keys, as_json=as_json)
    asyncio.run(restore(exits.settings_of(config), order))
