"""`ductile-gateway backup`: the ledger, and the keys of agents that it trusts, into a backup file."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.cli import exits
from ductile_gateway.cli.options import AsJson, Config, Place
from ductile_gateway.clock import SystemClock
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE
from ductile_gateway.store.agent_keys import FILE as PINS
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.store.shared import opening
from ductile_gateway.store.shared.moving import kept_alone
from ductile_gateway.store.shared.pins import copied
from groundwork.backup.archive import Archive, place_of
from groundwork.backup.files import KEYS, pieces, snapshot
from groundwork.backup.told import Part, Whole
from groundwork.nats.link import connect
from groundwork.service.errors import Misconfigured
from groundwork.service.installed import installed_version
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
    backup: str
    written: int = 0
    about: dict[str, int]
    left_out: str = ""
    keys: tuple[str, ...] = ()


def backup(settings: GatewaySettings, place: str, *, into: str | None, with_keys: bool, as_json: bool) -> None:
    """`into`: a backup that the agent's command makes, and completes. Raises Misconfigured and TryAgain."""
    file = place_of(place)
    if not (settings.shared or (settings.store / FILE).is_file()):
        why = f"there is no ledger {settings.store / FILE} on this machine"
        if not into:
            raise Misconfigured(why)
        made = BackedUp(file=str(file), backup=into, about={}, left_out=why)
    elif settings.shared:
        with claimed(settings.cache / LOOKING) as folder:
            asyncio.run(_fetch(settings, folder))
            made = _backed_up(settings, folder / opening.FILE, file, into, with_keys=with_keys)
    else:
        made = _backed_up(settings, settings.store / FILE, file, into, with_keys=with_keys)
    if as_json:
        sys.stdout.write(f"{json.dumps(asdict(made))}\n")
        return
    sys.stdout.write(f"✓ {made.backup} is in {file}: {made.about['calls']} calls; {made.written >> 10} KiB were new\n")
    for keys in made.keys:
        sys.stdout.write(f"The keys are not in it: keep {keys} in another place\n")


async def _fetch(settings: GatewaySettings, folder: Path) -> None:
    link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} backup")
    try:
        async with opening.kept_copy(opening.log_of_gateways(link), folder) as (file, _):
            PinnedKeys(folder, SystemClock()).keep(copied(file))
    finally:
        await link.close()


def _backed_up(settings: GatewaySettings, ledger: Path, file: Path, into: str | None, *, with_keys: bool) -> BackedUp:
    begun, ring, folder = datetime.now(UTC), KeyRing.open(settings.keys_path()), ledger.parent
    with Archive.to_write(file, with_keys=with_keys) as archive, snapshot(ledger, file) as copy:
        if settings.shared:
            _as_of_one(copy)
        files = [archive.keep(FILE, pieces(copy))]
        files += [archive.keep(part, pieces(there)) for part in BESIDE if (there := folder / part).exists()]
        if with_keys:
            files.append(archive.keep(KEYS, pieces(settings.keys_path())))
        about = {"calls": _calls(copy)}
        program, at, name = installed_version(), begun.isoformat(), into or archive.fresh_name(begun)
        part = Part(part=GATEWAY, at=at, program=program, store=known_id(folder), files=tuple(files), about=about)
        archive.tell(name, part, ring)
        if not into:
            archive.complete(Whole(backup=name, at=at, parts={GATEWAY: archive.digest(name, GATEWAY)}), ring)
        keys = () if with_keys else (str(settings.keys_path()),)
        return BackedUp(file=str(file), backup=name, written=archive.written, about=about, keys=keys)


def _as_of_one(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        kept_alone(connection)


def _calls(copy: Path) -> int:
    with closing(sqlite3.connect(copy)) as connection:
        ((calls,),) = connection.execute("SELECT count(*) FROM calls").fetchall()
    return int(calls)


@commands.command("backup")
def backup_command(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the file with the keys, which nobody else may have.")
    ] = False,
    into: Annotated[str | None, typer.Option(hidden=True)] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """`agentic backup` does this too.

    For a gateway on a machine of its own: back up what the agent keeps where that runs, and before this.
    """
    backup(exits.settings_of(config), place, into=into, with_keys=with_keys, as_json=as_json)
