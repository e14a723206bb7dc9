"""`ductile-gateway backup`: the ledger, and the keys of agents that it trusts, into a backup file."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.cli import exits
from ductile_gateway.cli.options import AsJson, Config, Place
from ductile_gateway.clock import SystemClock
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, opening
from ductile_gateway.store.moving import kept_alone
from ductile_gateway.store.pins import FILE as PINS
from ductile_gateway.store.pins import FilePins, copied_pins
from groundwork.archive.files import snapshot
from groundwork.archive.series import KEYS, Series
from groundwork.nats.link import connect
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import ID_FILE, claimed, known_id
from schemas import subjects

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


def backup(settings: GatewaySettings, place: str, *, with_keys: bool, as_json: bool) -> None:
    """For programs a ledger that is not there is told, not raised. Raises Misconfigured and TryAgain."""
    if not (settings.shared or (settings.store / FILE).is_file()):
        made = BackedUp(file=place, left_out=f"there is no ledger {settings.store / FILE} on this machine")
        if not as_json:
            raise Misconfigured(made.left_out)
    elif settings.shared:
        with claimed(settings.cache / LOOKING) as folder:
            asyncio.run(_fetch(settings, folder))
            made = _backed_up(settings, folder / opening.FILE, place, with_keys=with_keys)
    else:
        made = _backed_up(settings, settings.store / FILE, place, with_keys=with_keys)
    sys.stdout.write(f"{json.dumps(asdict(made)) if as_json else made}\n")


async def _fetch(settings: GatewaySettings, folder: Path) -> None:
    link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} backup")
    try:
        async with opening.kept_copy(opening.log_of_gateways(link), folder) as (file, _):
            FilePins(folder, SystemClock()).keep(copied_pins(file))
    finally:
        await link.close()


def _backed_up(settings: GatewaySettings, ledger: Path, place: str, *, with_keys: bool) -> BackedUp:
    at, folder, series = datetime.now(UTC), ledger.parent, Series(place, GATEWAY)
    with series.writing(KeyRing.open(settings.keys_path()), at) as (file, archive), snapshot(ledger, file) as copy:
        if settings.shared:
            _as_of_one(copy)
        archive.add_file(FILE, copy)
        for name in (name for name in BESIDE if (folder / name).exists()):
            archive.add(name, (folder / name).read_bytes())
        if with_keys:
            archive.add(KEYS, settings.keys_path().read_bytes())
        about = {"calls": _calls(copy)}
        archive.said |= {"at": at, "store": known_id(folder), "about": about}
    keys = () if with_keys else (str(settings.keys_path()),)
    return BackedUp(file=str(file), backup=series.name_of(file, at), written=archive.size, about=about, keys=keys)


def _as_of_one(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        kept_alone(connection)


def _calls(copy: Path) -> int:
    with closing(sqlite3.connect(copy)) as connection:
        ((calls,),) = connection.execute("SELECT count(*) FROM rows WHERE kind = 'call'").fetchall()
    return int(calls)


@commands.command("backup")
def backup_command(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the file with the keys, which nobody else may have.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """`agentic backup` does this too.

    For a gateway on a machine of its own: back up what the agent keeps where that runs, and before this.
    """
    backup(exits.settings_of(config), place, with_keys=with_keys, as_json=as_json)
