"""`ductile-gateway backup`: the ledger, and the keys of agents that it trusts, into a backup file."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import asdict, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.bus.prerequisites import nobody_at_work
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import AsJson, Config, Place
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MOVED, opening
from ductile_gateway.store.moving import kept_alone, mark_of, put_mark, refuse_unless_here
from ductile_gateway.store.pins import FILE as PINS
from ductile_gateway.store.pins import FilePins, copied_pins
from ductile_gateway.store.stream import StreamRows
from groundwork.archive.files import snapshot
from groundwork.archive.series import KEYS, Series
from groundwork.nats.link import NatsLink, connect
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import ID_FILE, AlreadyRunning, ProcessLock, claimed, known_id
from schemas import subjects
from schemas.values import dataclass

commands = typer.Typer()

GATEWAY = "gateway"
BESIDE = (ID_FILE, PINS)
LOOKING = "looking"
"""Where the copies of a shared ledger are that this makes, beside those of gateways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp:
    """`left_out`: why nothing was backed up; empty where it was. `keys`: the files with keys, which are not in it."""

    file: str
    backup: str = ""
    written: int = 0
    about: dict[str, int] = field(default_factory=dict)
    left_out: str = ""
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"✓ {self.backup} is in {self.file}: {self.about['calls']} calls; {self.written >> 10} KiB were new"]
        return "\n".join(lines + [f"The keys are not in it: keep {keys} in another place" for keys in self.keys])


def backup(settings: GatewaySettings, place: str, *, with_keys: bool, leave: bool, as_json: bool) -> None:
    """For programs a ledger that is not there is told, not raised. Raises Misconfigured and TryAgain."""
    if not (settings.shared or (settings.store / FILE).is_file()):
        made = BackedUp(file=place, left_out=f"there is no ledger {settings.store / FILE} on this machine")
        if not as_json:
            raise Misconfigured(made.left_out)
    elif settings.shared:
        with claimed(settings.cache / LOOKING) as folder:
            made = asyncio.run(_of_stream(settings, folder, place, with_keys=with_keys, leave=leave))
    else:
        with ExitStack() as held:
            if leave:
                held.enter_context(held_alone(settings.store))
            made = _backed_up(settings, settings.store / FILE, place, with_keys=with_keys, leave=leave)
            if leave:
                store_folder.write(settings.store / MOVED, f"{made.backup}\n")
    sys.stdout.write(f"{json.dumps(asdict(made)) if as_json else made}\n")


async def _of_stream(settings: GatewaySettings, folder: Path, place: str, *, with_keys: bool, leave: bool) -> BackedUp:
    link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} backup")
    log = opening.log_of_gateways(link)
    try:
        async with _left(link, StreamRows(log)) if leave else nullcontext():
            if not leave:
                await refuse_unless_here(StreamRows(log))
            async with opening.kept_copy(log, folder) as (file, _):
                FilePins(folder).keep(copied_pins(file))
            return _backed_up(settings, folder / opening.FILE, place, with_keys=with_keys, leave=leave)
    finally:
        await link.close()


@asynccontextmanager
async def _left(link: NatsLink, rows: StreamRows) -> AsyncIterator[None]:
    """Inside, and afterwards unless it fails, no gateway begins on the stream."""
    before = await mark_of(rows)
    if before.state == "coming":
        await refuse_unless_here(rows)
    left = before._replace(state="left")
    await put_mark(rows, left, before=before)
    try:
        await nobody_at_work(link)
        yield
    except BaseException:
        await put_mark(rows, before, before=left)
        raise


def _backed_up(settings: GatewaySettings, ledger: Path, place: str, *, with_keys: bool, leave: bool) -> BackedUp:
    at, folder, series = datetime.now(UTC), ledger.parent, Series(place, GATEWAY)
    with series.writing(KeyRing.open(settings.keys_path()), at) as (file, archive), snapshot(ledger, file) as copy:
        with closing(sqlite3.connect(copy)) as connection, connection:
            if settings.shared:
                kept_alone(connection)
            ((calls,),) = connection.execute("SELECT count(*) FROM rows WHERE kind = 'call'").fetchall()
        archive.add_file(FILE, copy)
        for name in (name for name in BESIDE if (folder / name).exists()):
            archive.add(name, (folder / name).read_bytes())
        if with_keys:
            archive.add(KEYS, settings.keys_path().read_bytes())
        about = {"calls": int(calls)}
        archive.said |= {"at": at, "store": known_id(folder), "about": about, "moved": leave}
    keys = () if with_keys else (str(settings.keys_path()),)
    return BackedUp(file=str(file), backup=series.name_of(file, at), written=archive.size, about=about, keys=keys)


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """No gateway of this machine begins in the folder inside. Raises Misconfigured while one is there."""
    with ExitStack() as held:
        try:
            store_folder.closed(folder)
            held.enter_context(ProcessLock(folder))
        except (AlreadyRunning, OSError) as error:
            raise Misconfigured(f"{error}. Nothing was changed") from error
        yield


@commands.command("backup")
def backup_command(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the file with the keys, which nobody else may have.")
    ] = False,
    leave: Annotated[
        bool, typer.Option("--leave", help="The ledger moves: no gateway may run, and none begins on it again.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """`agentic backup` does this too.

    For a gateway on a machine of its own: back up what the agent keeps where that runs, and before this.
    """
    backup(exits.settings_of(config), place, with_keys=with_keys, leave=leave, as_json=as_json)
