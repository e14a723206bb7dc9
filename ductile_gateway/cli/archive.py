"""`ductile-gateway backup` and `restore` of the ledger, with the agent keys that it trusts.

An archive has the rows as JSON lines, in pages that stay as they are while none of their rows changes. A ledger is
restored only where there is none. Its rows are written one by one; the same command finishes a restore that was killed,
and no gateway starts on the ledger before. Open calls of a shared ledger get the backup as their owner, which is never
alive, so that gateways adopt them. Calls since the backup are in doubt (bus/ownership).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import typer
from pydantic_core import from_json, to_json

from ductile_gateway.bus.ownership import ROLE, require_topology
from ductile_gateway.calls.call import OPEN
from ductile_gateway.cli.main import AS_JSON, CONFIG, settings_of
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MIGRATIONS, opening
from ductile_gateway.store.rows import (
    NOTHING,
    FileCarrier,
    Rows,
    StreamCarrier,
    columns_in,
    head_of,
    kind_of,
)
from ductile_gateway.webhooks.notifications import WAITING, Notification
from groundwork.archive.format import Archive, ArchiveWriter
from groundwork.archive.series import Series, add_store, move_aside, restore_keys, restore_store
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.shared_log import AppendConflict
from groundwork.service.commands import argument, flag, option, say
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.serving import refuse_running, stopped_service, stopped_store
from groundwork.service.store_folder import ID_FILE, claim_folder
from groundwork.sqlite.file import SqliteFile, open_file, open_for_reading
from schemas import subjects
from schemas.status import counted
from schemas.values import replace

commands = typer.Typer()

PLACE = argument("A folder, or a file that ends in .zip.", "FOLDER|FILE")
GATEWAY = "gateway"
COMMAND = f"{subjects.SERVICE_GATEWAY} command"
COPIES = "looking"
"""Folder of the copies that backups make of a shared ledger, beside those of gateways."""
ROWS, MARK = "rows", "mark.json"
PAGE = 64
"""Positions of a page of rows, which are restored together."""
_NEXT = (
    "SELECT position, subject, head, body FROM rows WHERE kind <> 'mark' AND position >= ? ORDER BY position LIMIT ?"
)
_NOT_EMPTY = "{}, and nothing is overwritten: {}"
_CALLS = "SELECT count(*) FROM rows WHERE kind = 'call'"


async def backup(settings: GatewaySettings, place: str, *, with_keys: bool, leave: bool, as_json: bool) -> None:
    """Raises TryAgain, and Misconfigured for a missing ledger, which `as_json` reports instead."""
    file = settings.store / FILE
    if settings.shared or file.is_file():
        async with _ledger(settings, leave=leave) as ledger:
            made = await _backed_up(settings, ledger, place, with_keys=with_keys, leave=leave)
    elif as_json:
        made = {"left_out": f"there is no ledger {file} on this machine"}
    else:
        raise Misconfigured(f"there is no ledger {file} on this machine")
    if as_json:
        say(json.dumps(made))
        return
    calls, new = made["about"]["calls"], made["written"] >> 10
    say(f"✓ {made['backup']} is in {made['file']}: {counted(calls, 'calls')}; {new} KiB were new")
    for keys in made["keys"]:
        say(f"The keys are not in it: keep {keys} in another place")


def _place_of(settings: GatewaySettings) -> str:
    return f"the stream {subjects.STREAM_LEDGER}" if settings.shared else str(settings.store)


@asynccontextmanager
async def _ledger(settings: GatewaySettings, *, leave: bool) -> AsyncIterator[SqliteFile]:
    """The ledger's file, or a copy of the shared one, to be read. `leave`: no gateway starts on the ledger again."""
    file = settings.store / FILE
    async with AsyncExitStack() as held:
        if settings.shared:
            folder = held.enter_context(claim_folder(settings.cache / COPIES))
            link = await held.enter_async_context(connect(settings.nats, COMMAND))
            log, file = opening.log_of_gateways(link), folder / opening.COPY
            if leave:
                await held.enter_async_context(_left(Rows(StreamCarrier(log)), _place_of(settings)))
                await refuse_running(link, ROLE)
            async with opening.kept_copy(log, folder):
                pass
        elif leave:
            held.enter_context(stopped_store(settings.store))
            there = await held.enter_async_context(open_file(file, MIGRATIONS))
            await held.enter_async_context(_left(Rows(FileCarrier(there)), _place_of(settings)))
        ledger = await held.enter_async_context(open_for_reading(file, MIGRATIONS))
        (await opening.mark_of(Rows(FileCarrier(ledger)))).check_complete(_place_of(settings))
        yield ledger


@asynccontextmanager
async def _left(rows: Rows, place: str) -> AsyncIterator[None]:
    """No gateway starts on the ledger inside, and afterwards unless it fails. One that was left before, perhaps by a
    command that was killed, can be left again."""
    before = await opening.mark_of(rows)
    before.check_complete(place)
    mark = replace(before, state="left")
    await opening.put_mark(rows, mark, before=before)
    try:
        yield
    except BaseException:
        await opening.put_mark(rows, before, before=mark)
        raise


async def _backed_up(
    settings: GatewaySettings, file: SqliteFile, place: str, *, with_keys: bool, leave: bool
) -> dict[str, Any]:
    with Series(place, GATEWAY).new_archive(KeyRing.open(settings.keys_path()), datetime.now(UTC)) as (name, archive):
        async with file.snapshot():
            ((calls,),) = await file.read(_CALLS)
            archive.add(MARK, to_json(columns_in(await opening.mark_of(Rows(FileCarrier(file))))))
            await _add_rows(archive, file, without={"position", "by"} if settings.shared else {"position"})
        keys = add_store(archive, settings.store, (ID_FILE,), settings.keys_path(), with_keys=with_keys)
        about = {"calls": int(calls)}
        archive.fields |= {"about": about, "moved": leave}
    made = {"file": str(archive.path), "backup": name, "written": archive.size, "about": about}
    return made | {"left_out": "", "keys": keys}


async def _add_rows(archive: ArchiveWriter, file: SqliteFile, *, without: set[str]) -> None:
    first = 0
    while found := await file.read(_NEXT, (first, PAGE)):
        page = found[0][0] // PAGE
        first = (page + 1) * PAGE
        lines = list[bytes]()
        for _, subject, head, body in (row for row in found if row[0] < first):
            columns = {name: value for name, value in from_json(head).items() if name not in without}
            lines.append(to_json((subject, columns, body.decode("latin-1"))))
        archive.add_lines(f"{ROWS}/{page:09}.jsonl", lines)


async def restore(
    settings: GatewaySettings,
    place: str,
    *,
    backup: str | None = None,
    moved: bool = False,
    new_keys: bool = False,
    as_json: bool = False,
) -> None:
    """`backup`: its name, or the newest. `moved`: nothing has happened since. `new_keys`: the old ones are lost. Raises
    TryAgain, and Misconfigured for an existing ledger, a running gateway or a backup without valid signature; and for
    one that was restored before, which `as_json` reports as restored, because `agentic restore` may be repeated."""
    is_set_up = partial(require_topology, shared=settings.shared)
    with Series(place, GATEWAY).open(backup) as (name, archive):
        restore_keys(archive, settings.keys_path(), new_keys=new_keys)
        async with (
            stopped_service(settings, ROLE, is_set_up, name=COMMAND) as link,
            _target(settings, link, name) as rows,
        ):
            restored = await _restore_rows(settings, archive, rows, name, moved=moved or archive.manifest.moved)
    where = _place_of(settings)
    if not (restored or as_json):
        remedy = opening.ANEW if settings.shared else "move it away, then run this again"
        raise Misconfigured(f"{where} was restored from {name} before, and may have newer calls: {remedy}")
    result = {"backup": name, "store": where, "calls": archive.manifest.about.get("calls", 0)}
    say(json.dumps(result) if as_json else f"✓ {where} is as it was in {name}")


@asynccontextmanager
async def _target(settings: GatewaySettings, link: NatsLink, backup: str) -> AsyncIterator[Rows]:
    """Rows to restore into: none yet, or those of this backup."""
    file = settings.store / FILE
    if settings.shared:
        log = opening.log_of_gateways(link)
        rows = Rows(StreamCarrier(log))
        if not _is_restored_from(backup, await opening.mark_of(rows)) and await log.end():
            raise Misconfigured(_NOT_EMPTY.format(f"{_place_of(settings)} is not empty", opening.ANEW))
        yield rows
        return
    if file.exists():
        async with open_file(file, MIGRATIONS) as there:
            known, ((calls,),) = await opening.mark_of(Rows(FileCarrier(there))), await there.read(_CALLS)
        if not (is_ours := _is_restored_from(backup, known)) and calls and known.state != "left":
            reason = f"{settings.store} has a ledger of {counted(calls, 'calls')}"
            raise Misconfigured(_NOT_EMPTY.format(reason, "move it away, then run this again"))
        if not is_ours:
            move_aside(settings.store, FILE)
    async with open_file(file, MIGRATIONS) as made:
        yield Rows(FileCarrier(made))


def _is_restored_from(backup: str, mark: opening.Mark) -> bool:
    return mark.backup == backup and mark.state != "left"


async def _restore_rows(settings: GatewaySettings, archive: Archive, rows: Rows, name: str, *, moved: bool) -> bool:
    """False if it was restored before."""
    mark = await opening.mark_of(rows)
    if mark.backup == name and mark.state == "here":
        return False
    if mark.state != "coming":
        before, taken = archive.decoded(opening.Mark, MARK, archive.read(MARK)), archive.manifest.at
        at = taken if moved else datetime.now(UTC)
        moved = moved and (not before.backup or before.moved)  # calls in doubt stay so
        old, mark = mark, opening.Mark("coming", name, taken, at, moved)
        await opening.put_mark(rows, mark, before=old)
    for page in sorted(file for file in archive.manifest.files if file.startswith(f"{ROWS}/")):
        await _restore_page(rows, archive.lines(page), owner=f"{opening.BACKUP}{name}" if settings.shared else "")
    if not settings.shared:
        restore_store(archive, settings.store, (ID_FILE,))
    await opening.put_mark(rows, replace(mark, state="here"), before=mark)
    return True


async def _restore_page(rows: Rows, lines: Iterable[bytes], *, owner: str) -> None:
    unordered = list[tuple[str, dict[str, Any], bytes]]()
    for subject, columns, body in map(from_json, lines):
        if owner and columns.get("state") in (OPEN, WAITING):
            columns["by"] = owner
        row = subject, columns, body.encode("latin-1")
        if columns["kind"] == kind_of(Notification):
            await _restore_row(rows, *row)
        else:
            unordered.append(row)
    await asyncio.gather(*(_restore_row(rows, *row) for row in unordered))


async def _restore_row(rows: Rows, subject: str, columns: dict[str, Any], body: bytes) -> None:
    """Keeps an existing row. Raises Misconfigured if it differs."""
    try:
        await rows.carrier.store(subject, columns, body, NOTHING)
    except AppendConflict:
        there = await rows.carrier.load(subject)
        if (there.head, there.body) != (head_of(columns), body):
            where = f"{subject} is there, but not as it was"
            raise Misconfigured(f"{where}: another process writes there") from None


@commands.command("backup")
def backup_command(
    place: str = PLACE,
    with_keys: bool = flag("Also the file with the keys: then keep the file secret.", "--with-keys"),
    leave: bool = flag("The ledger moves: no gateway may run, and none begins on it again.", "--leave"),
    config: Path | None = CONFIG,
    as_json: bool = AS_JSON,
) -> None:
    """`agentic backup` does this too.

    For a gateway on a machine of its own: back up what the agent keeps where that runs, and before this.
    """
    asyncio.run(backup(settings_of(config), place, with_keys=with_keys, leave=leave, as_json=as_json))


@commands.command("restore")
def restore_command(
    place: str = PLACE,
    backup: str | None = option("Which one; the newest without it.", metavar="NAME"),
    moved: bool = flag("Nothing has happened since: no write is in doubt.", "--moved"),
    new_keys: bool = flag("Take it as it is: the keys are lost.", "--new-keys"),
    config: Path | None = CONFIG,
    as_json: bool = AS_JSON,
) -> None:
    """No gateway may run."""
    restoring = restore(settings_of(config), place, backup=backup, moved=moved, new_keys=new_keys, as_json=as_json)
    asyncio.run(restoring)
