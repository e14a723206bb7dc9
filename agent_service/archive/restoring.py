"""`agentic restore`: an archive's ledger, artifacts and runs into a store without runs.

No agent starts on the store of a killed restore, and the same command goes on with it. Each run is decided again from
its entries. The ledger puts writes that may have been made since the backup in doubt, for a person
(`ductile_gateway.bus.ownership`).
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.archive import access
from agent_service.archive.access import ARTIFACTS, GATEWAY, OPEN, ArchivedRun, ArchivedRuns, Report
from agent_service.bus.buckets import FOLDER, NatsArtifactStore, key_of
from agent_service.bus.reading import signed_endings
from agent_service.bus.topology import ROLE
from agent_service.errors import NewerVersion
from agent_service.history.results import kept_artifacts
from agent_service.history.text import one_line
from agent_service.run.inbound import turn_id
from agent_service.run.journal import Commit
from agent_service.settings import AgentSettings
from agent_service.store.database import FILE, open_database, open_for_reading, statements_of, store_commit
from agent_service.store.lines import line_of
from agent_service.store.messages import (
    LEVEL,
    ROW,
    HaltRecord,
    RunRow,
    SideRecord,
    TombstoneRecord,
    encoded,
    message_of,
    row_in,
)
from agent_service.store.moving import MoveMarker, read_marker, write_marker
from agent_service.store.runs import RunStore
from agent_service.store.shared import log_of_runs
from groundwork.archive.format import Archive
from groundwork.archive.series import Series, move_aside, restore_keys, restore_store
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.service import serving, store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.status import Halt, counted

Followed = tuple[ArchivedRun, Sequence[Commit]]

TOGETHER = 32
"""Runs that are on their way to a log at once."""
MINUTE = "%Y-%m-%d %H:%M UTC"
IN_DOUBT = "What these write first is in doubt, for it may have been done since: a person is asked then."
NO_LEDGER = (
    "! the ledger is not in the backup, so it is not known what these have written since, and everything stands still. "
    "Let it go on once the ledger is there (`ductile-gateway restore`), or those are cancelled that must not write "
    "twice"
)


async def restore(
    config: Path | None,
    place: str,
    *,
    backup: str | None = None,
    dry_run: bool = False,
    stopped: bool = False,
    moved: bool = False,
    new_keys: bool = False,
) -> Report:
    """`backup`: a name; None for the newest. `stopped`: with the kill switch on. `moved`: nothing happened since.
    Raises TryAgain, and Misconfigured for a store with runs, a damaged archive, or a bus that is not set up."""
    loaded = settings.load(config)
    with Series(place, access.AGENT).open(backup) as (name, archive):
        manifest, runs = archive.manifest, ArchivedRuns(archive)
        records = runs.side_records()
        if dry_run:
            return await _dry_run(loaded, archive, runs, name)
        restore_keys(archive, loaded.keys_path(), new_keys=new_keys)
        moved = moved or manifest.moved
        async with access.exclusive_bus(loaded) as link, _barred(loaded, link, name):
            calls = None
            if archive.nested(GATEWAY):
                options = [option for option, is_set in {"--moved": moved, "--new-keys": new_keys}.items() if is_set]
                calls = int((await access.run_gateway("restore", str(archive.path), *options, config=config))["calls"])
            artifacts = await _restore_artifacts(archive, link)
            unknown = calls is None and not moved  # open runs may have written since
            stopped = stopped or (unknown and any(run.status in OPEN for run in runs.all))
            found = await _restore_runs(runs, records, loaded, link, stopped=stopped)
    found |= {"file": str(archive.path), "backup": name, "taken": manifest.at.isoformat(), "moved": moved}
    found |= {"store": subjects.STREAM_RUNS if loaded.shared else str(loaded.store)}
    found |= {"calls": calls, "artifacts": artifacts}
    found["left_out"] = {part: f"when the backup was made: {why}" for part, why in manifest.left_out.items()}
    return Report(found, "\n".join(_text(found)), ok=not found["flawed"])


async def _dry_run(loaded: AgentSettings, archive: Archive, runs: ArchivedRuns, name: str) -> Report:
    if loaded.keys_path().exists():
        archive.prove(KeyRing.open(loaded.keys_path()))
    async with access.bus_at_hand(loaded) as link:
        await _refuse_to_overwrite(loaded, link, name)
    open_runs = [run.run_id for run in runs.all if run.status in OPEN]
    facts = {"dry_run": True, "backup": name, "runs": len(runs.all), "under_way": open_runs}
    what, taken = counted(len(runs.all), "runs"), f"{archive.manifest.at:{MINUTE}}"
    return Report(facts, f"would restore {what} of {taken}, {len(open_runs)} of them open. Nothing was changed")


def _text(found: Mapping[str, Any]) -> Iterator[str]:
    counts = ", ".join(counted(found[what], what) for what in ("runs", "calls", "artifacts") if found[what] is not None)
    yield f"✓ {found['store']} is as it was at {datetime.fromisoformat(found['taken']):{MINUTE}}: {counts}"
    yield from (f"! without {part}: {why}" for part, why in (found["left_out"] | found["flawed"]).items())
    for run_id, what in found["ended_since"].items():
        yield (
            f"! {run_id} went on after the backup: {what}. Once the agent runs, `agentic cancel {run_id}` keeps it "
            "from going on from where it was then"
        )
    for run_id, what in found["begun_since"].items():
        yield f"! {run_id} began after the backup, so it is nowhere: {what}. Nothing goes on; start it anew if need be"
    yield from (f"  under way: {run_id}, {what}" for run_id, what in found["under_way"].items())
    if found["under_way"] and not found["moved"]:
        yield NO_LEDGER if found["calls"] is None else IN_DOUBT
    then = "; everything stands still until `agentic go-on`" if found["stopped"] else ""
    yield f"Now start the gateway and the agent{then}"


@asynccontextmanager
async def _barred(loaded: AgentSettings, link: NatsLink, name: str) -> AsyncIterator[None]:
    """No agent starts on the store inside, nor after it if it fails."""
    before, place = await _refuse_to_overwrite(loaded, link, name), access.place_of(loaded, link)
    if not loaded.shared and before.state != "coming":
        move_aside(loaded.store, FILE)
    mark = await write_marker(place, MoveMarker(state="coming", archive=name), before)
    await serving.refuse_running(link, ROLE, stop=access.STOP)  # also one that began before that
    yield
    await write_marker(place, MoveMarker(archive=name), mark)


async def _refuse_to_overwrite(loaded: AgentSettings, link: NatsLink, name: str) -> MoveMarker:
    """Returns the store's mark. Raises Misconfigured for a store with runs, unless these come from an unfinished
    restore of this backup."""
    mark = await read_marker(access.place_of(loaded, link))
    if (mark.state, mark.archive) == ("coming", name):
        return mark
    if loaded.shared and await log_of_runs(link).end():
        whose = f" of {mark.archive}" if mark.archive else ""
        raise Misconfigured(
            f"nothing is overwritten in the stream {subjects.STREAM_RUNS}, and it has runs{whose}: make it anew: "
            f"`nats stream rm {subjects.STREAM_RUNS}`, then `agentic setup --shared`"
        )
    if not loaded.shared and (loaded.store / FILE).exists() and mark.state == "here":
        async with open_for_reading(loaded.store) as database:  # an agent may run, as in a dry run
            ((runs,),) = await database.read("SELECT count(*) FROM runs")
        if runs:
            raise Misconfigured(
                f"{loaded.store} is a store with {runs} runs, and nothing is overwritten: move it away, then run this "
                "again"
            )
    return mark


async def _restore_artifacts(archive: Archive, link: NatsLink) -> int:
    """Puts artifacts that the bucket lacks or has differently. Artifacts of an older backup replace none."""
    bucket, count = NatsArtifactStore(link), 0
    there, older = await access.artifact_hashes(link), ARTIFACTS in archive.manifest.left_out
    for name, digest in archive.manifest.files.items():
        run_id, _, path = name.partition("/")
        if path.startswith(FOLDER):
            count += 1
            key = key_of(run_id, path)
            if there.get(key) != digest and not (older and key in there):
                await bucket.put(run_id, path, archive.read(name))
    return count


async def _restore_runs(
    runs: ArchivedRuns, records: list[SideRecord], loaded: AgentSettings, link: NatsLink, *, stopped: bool
) -> dict[str, Any]:
    flawed, under_way = dict[str, str](), dict[str, str]()
    ends = await signed_endings(link, KeyRing.open(loaded.keys_path()))
    followed = _followed(runs, flawed, under_way)
    if stopped:
        records += _halt_after(records, runs.archive.manifest.at)
    if loaded.shared:
        await append_runs(log_of_runs(link), followed, records)
    else:
        for part in loaded.store.glob(f"{FILE}*"):  # of a restore that was killed
            part.unlink()
        async with open_database(loaded.store, durable=False) as database:
            await load_runs(database, followed)
            await RunStore(database).put(*records, after=None)
        store_folder.sync(loaded.store / FILE)
        restore_store(runs.archive, loaded.store, access.STORE_FILES)
    versions = {run.run_id: run.version for run in runs.all}
    deleted = {record.run_id for record in records if isinstance(record, TombstoneRecord)}
    since: dict[str, dict[str, str]] = {"ended_since": {}, "begun_since": {}}
    for end in ends:  # those on the bus that are later than the backup
        if versions.get(end.run_id, 0) < end.seq and end.run_id not in deleted:
            text = f"{end.subject} was told with entry {end.seq}"
            since["ended_since" if end.run_id in versions else "begun_since"][end.run_id] = text
    number = len(runs.all) - len(flawed)
    return {"flawed": flawed, "runs": number, "under_way": under_way, "stopped": stopped, **since}


def _followed(runs: ArchivedRuns, flawed: dict[str, str], under_way: dict[str, str]) -> Iterator[Followed]:
    """Runs decided again. Adds why one is left out to `flawed`, and where an open one stands to `under_way`."""
    for run in runs.all:
        try:
            commits = access.commits_of(run, runs.entries(run.run_id))
        except ValueError as error:
            flawed[run.run_id] = f"its journal cannot be followed: {error}"
            continue
        if run.status in OPEN:
            line = line_of(commits[-1].state)
            under_way[run.run_id] = one_line(f"{line.status}, step {line.steps}: {line.goal}", 120)
        yield run, commits


async def load_runs(database: SqliteFile, runs: Iterable[Followed]) -> None:
    """Writes runs into a database that the caller alone has open."""
    for run, commits in runs:
        await database.write(partial(_load, run, commits))


def _load(run: ArchivedRun, commits: Sequence[Commit], connection: sqlite3.Connection) -> None:
    up_to = run.dispatched_up_to
    for commit, position in zip(commits, run.positions, strict=True):
        store_commit(statements_of(commit, digest=run.digest, dispatched_up_to=up_to, position=position), connection)


async def append_runs(log: SharedLog, runs: Iterable[Followed], records: Iterable[SideRecord]) -> None:
    """Raises Misconfigured if the log has another run, and TryAgain."""
    rest = iter(runs)
    while some := list(islice(rest, TOGETHER)):
        await asyncio.gather(*(_append_run(log, *one) for one in some))
    for record in records:
        newest = await log.newest(record.subject)
        if newest is None or newest.headers.get(ROW) != record.text:
            await log.append(record.subject, b"", after=None, headers=record.header)


async def _append_run(log: SharedLog, run: ArchivedRun, commits: Sequence[Commit]) -> None:
    """Entries that are not dispatched belong to one turn, which an agent queues."""
    subject = subjects.stored_run(run.wake_id, run.run_id)
    newest = await log.newest(subjects.stored_wake(run.wake_id))
    row, place = (row_in(newest), newest.seq) if newest else (None, 0)
    if newest and (row is None or row.seq > len(commits) or row.head != commits[row.seq - 1].entry.hash):
        raise Misconfigured(f"the log has another entry of {subject}: use a stream made anew")
    for commit in commits[row.seq if row else 0 :]:
        by = turn_id(run.run_id, run.version) if commit.entry.seq > run.dispatched_up_to else ""
        newest_one = commit.entry.seq == run.version
        body = encoded(message_of(commit, by, whole=newest_one))
        dispatched = run.dispatched_up_to if newest_one else 0
        row = RunRow.of(commit, row, by=by, dispatched=dispatched, digest=run.digest, whole_at=0, size=len(body))
        try:
            place = await log.append(subject, body, after=place, headers=row.header)
        except AppendConflict as error:
            raise Misconfigured(
                f"another process writes to {subject}: stop all agents that share this store, then run this again"
            ) from error


def _halt_after(records: Iterable[SideRecord], taken: datetime) -> list[SideRecord]:
    halts = [record.halt for record in records if isinstance(record, HaltRecord)]
    newest = max(halts, key=lambda halt: halt.number, default=None)
    if newest and newest.until is None:
        return []
    number, reason = newest.number + 1 if newest else 1, f"restored from the backup of {taken:{MINUTE}}"
    return [HaltRecord(v=LEVEL, by="", halt=Halt(number=number, since=taken, by="agentic restore", reason=reason))]


async def restore_artifacts(config: Path | None) -> Report:
    """Puts contents that the bucket has lost from the runs' folders, if their SHA-256 is the journal's. The agent may
    run. Raises Misconfigured without a readable store, and TryAgain if the bus does not answer."""
    kept_there, back, lost = 0, list[str](), dict[str, str]()
    async with access.open_reader(config) as reader, access.bus_at_hand(reader.settings) as link:
        stored, run_ids = await access.artifact_hashes(link), await reader.store.with_artifacts()
        for run_id in run_ids:
            try:
                named = kept_artifacts(entry.record() for entry in await reader.entries(run_id))
            except access.RunDeleted:  # meanwhile
                continue
            except (ValueError, NewerVersion) as error:
                lost[run_id] = str(error)
                continue
            for path, artifact in named.items():
                key, digest = key_of(run_id, path), artifact.sha256
                there = stored.get(key)
                if there and digest in (None, there):
                    kept_there += 1
                elif digest is None:
                    lost[key] = "its tool told no SHA-256, so no copy can be proved"
                elif content := await asyncio.to_thread(reader.intact_copy, run_id, artifact):
                    await NatsArtifactStore(link).put(run_id, path, content)
                    back.append(key)
                else:
                    lost[key] = access.NOWHERE
    counts = f"{len(back)} artifacts came back from the runs' folders, {kept_there} were in the bucket"
    text = [f"✓ {counts}, of {len(run_ids)} runs", *(f"! {key}: {why}" for key, why in lost.items())]
    facts = {"runs": len(run_ids), "kept": kept_there, "back": back, "lost": lost}
    return Report(facts, "\n".join(text), ok=not lost)
