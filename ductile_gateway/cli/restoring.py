"""`ductile-gateway restore`: the ledger of a backup becomes that of this machine, which has none.

It is written and proved beside the place where it is to be, and moved there last: killed, it has restored nothing, and
the same command begins anew. What was under way then, and what runs may have done since, is in doubt (store/restored).
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ductile_gateway.bus.prerequisites import ROLE
from ductile_gateway.cli.backing_up import GATEWAY, SHARED
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.agent_keys import FILE as PINS
from ductile_gateway.store.restored import Restored, note, read
from ductile_gateway.store.seals import seal_once
from groundwork.backup.archive import Archive, place_of
from groundwork.backup.files import put_in_place, set_aside, staging, write_out
from groundwork.backup.keys import ring_for
from groundwork.backup.told import Part
from groundwork.nats.lease_record import look
from groundwork.nats.link import connect
from groundwork.service import private_file
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import KeyRing
from groundwork.service.process_lock import AlreadyRunning, ProcessLock
from groundwork.service.store_id import ID_FILE
from groundwork.sqlite.file import SqliteFile
from schemas import subjects


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
    if settings.shared:
        raise Misconfigured(SHARED)
    with Archive.to_read(place_of(order.place)) as archive:
        name = order.backup or next(iter(archive.backups()), "")
        kept = archive.unproved(name, GATEWAY)
        if kept is None:
            raise Misconfigured(f"{archive.path} has no ledger of a gateway in the backup {name or '(there is none)'}")
        ring = ring_for(settings.keys_path(), archive, kept, new_keys=order.new_keys)
        part = archive.part(name, GATEWAY, ring) or kept
        async with _nobody_at_work(settings):
            known = read(settings.store)
            if not (known and known.backup == name and (settings.store / FILE).exists()):
                await _refuse_to_overwrite(settings.store)
                await _restore(settings, archive, part, replace(order, backup=name))
    told = {"backup": name, "store": str(settings.store), "calls": part.about.get("calls", 0)}
    sys.stdout.write(f"{json.dumps(told)}\n" if order.as_json else f"✓ {settings.store} is as it was in {name}\n")


@asynccontextmanager
async def _nobody_at_work(settings: GatewaySettings) -> AsyncIterator[None]:
    """Raises Misconfigured while a gateway has the folder, or the bus."""
    async with AsyncExitStack() as opened:
        try:
            private_file.closed(settings.store)
            opened.enter_context(ProcessLock(settings.store))
        except (AlreadyRunning, OSError) as error:
            raise Misconfigured(f"{error}. Nothing was restored") from error
        link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} restore")
        opened.push_async_callback(link.close)
        if (record := await look(link, ROLE)) and not record.free:
            raise Misconfigured(
                f"a gateway is at work: {record.owner}. Stop it, then run this again; one that died without a word is "
                f"taken for alive for {record.owner.ttl_s:g} s"
            )
        yield


async def _refuse_to_overwrite(folder: Path) -> None:
    """Raises Misconfigured for a ledger with calls."""
    if not (folder / FILE).exists():
        return
    async with open_store(folder) as there:
        ((calls,),) = await there.read("SELECT count(*) FROM calls")
    if calls:
        raise Misconfigured(
            f"{folder} has a ledger of {calls} calls, and nothing is overwritten: move it away, then run this again"
        )


async def _restore(settings: GatewaySettings, archive: Archive, part: Part, order: Order) -> None:
    folder = settings.store
    with staging(folder) as beside:
        for name in (FILE, PINS, ID_FILE):
            if kept := part.file(name):
                write_out(archive, kept, beside / name)
        ring = KeyRing.open(settings.keys_path())
        async with open_store(beside) as file:
            if order.new_keys:
                await _seal_anew(file, settings.keys_path(), ring)
        sealed = settings.keys_path().with_name(f"{settings.keys_path().name}.sealed")
        sealed.touch(mode=0o600)
        private_file.left_to_owner(sealed)
        set_aside(folder, FILE)
        taken = datetime.fromisoformat(part.at)
        at = taken if order.moved else datetime.now(UTC)
        note(folder, Restored(backup=order.backup or "", taken=taken, at=at, moved=order.moved))
        for name in (PINS, ID_FILE, FILE):
            if (beside / name).exists():
                put_in_place(beside / name, folder / name)


async def _seal_anew(file: SqliteFile, keys: Path, ring: KeyRing) -> None:
    """As it is, with keys that have sealed nothing yet."""
    keys.with_name(f"{keys.name}.sealed").unlink(missing_ok=True)
    for table in ("calls", "artifacts"):
        await file.write(lambda connection, table=table: connection.execute(f"UPDATE {table} SET seal = NULL").rowcount)  # type: ignore[misc]  # noqa: S608
    await seal_once(file, keys, ring)
