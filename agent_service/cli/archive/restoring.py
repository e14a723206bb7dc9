"""`agentic restore`: a backup's ledger, artifacts and runs, onto a machine that has no runs; or lost artifacts alone.

Runs come last, so that a killed restore leaves nothing that an agent begins with, and the same command goes on.
Writes that may have been made since the backup are left to a person, by the ledger (`ductile_gateway.store.restored`).
With --artifacts, contents come back from the runs' folders where their SHA-256 is the journal's; the agent may run.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.bus.buckets import NatsArtifacts, content_type_of, key_of
from agent_service.bus.endings import told_ends
from agent_service.cli import whereabouts
from agent_service.cli.archive.backing_up import AGENT, ARTIFACTS, BESIDE, GATEWAY, run_gateway
from agent_service.cli.archive.migrating import Move, said_to_come
from agent_service.cli.archive.records import Outcome, Records, artifacts_of, bus_at_hand, records
from agent_service.cli.services.alone import alone
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import Damaged
from agent_service.history.artifacts import NamedArtifact
from agent_service.history.plain import one_line
from agent_service.run.lines import RunLine, Wanted
from agent_service.settings import AgentSettings
from agent_service.store.opening import log_of_runs
from agent_service.store.shared_log.marks import mark_in
from agent_service.store.sql.database import FILE, open_database
from agent_service.store.sqlite import SqliteStore
from agent_service.views.folder.disk import TooLarge, Unsafe
from groundwork.backup.archive import Archive, place_of
from groundwork.backup.files import put_in_place, ring_for, set_aside, staging, write_out
from groundwork.backup.told import Part, Whole, of_backup
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from schemas import subjects
from schemas.status import Halt

NEITHER = "neither the bucket nor the run's folder has it"
NOT_THE_SAME = "what is there is not what its tool made, by its SHA-256"
NO_HASH = "its tool told no SHA-256, so no copy can be proved"


@dataclass(slots=True, kw_only=True)
class Back(Outcome):
    """`kept` are in the bucket as they were; `back` were brought back; `lost` by name, and why."""

    runs: int = 0
    kept: int = 0
    back: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.lost

    def __str__(self) -> str:
        there = f"{len(self.back)} artifacts came back from the runs' folders, {self.kept} were in the bucket"
        return "\n".join([f"✓ {there}, of {self.runs} runs", *(f"! {key}: {why}" for key, why in self.lost.items())])


async def bring_back(config: Path | None) -> Back:
    """Raises Misconfigured without a store that can be read, and TryAgain where the bus does not answer."""
    async with records(config) as kept, bus_at_hand(kept.settings) as link:
        stored = {one.key: one.sha256 for one in await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).list()}
        found = Back()
        for run_id, paths in (await kept.store.artifacts()).items():
            found.runs += 1
            await _of_run(kept, link, (run_id, paths), stored, found)
    return found


async def _of_run(
    kept: Records, link: NatsLink, run: tuple[str, Sequence[str]], stored: Mapping[str, str], found: Back
) -> None:
    run_id, paths = run
    folder = await asyncio.to_thread(kept.workspace.files, run_id)
    copies = {file.path: file.sha256 for file in folder.files} if folder else {}
    apart = [path for path in paths if stored.get(key_of(run_id, path), "") != copies.get(path)]
    found.kept += len(paths) - len(apart)
    try:
        named = artifacts_of(await kept.entries(run_id)) if apart else {}
    except Damaged as error:
        found.lost |= dict.fromkeys((key_of(run_id, path) for path in apart), str(error))
        return
    for path in apart:
        key = key_of(run_id, path)
        why, content = await asyncio.to_thread(_proved, kept, run_id, named.get(path), stored.get(key))
        if content is not None:
            await NatsArtifacts(link).put(run_id, path, content)
            found.back.append(key)
        elif why:
            found.lost[key] = why
        else:
            found.kept += 1


def _proved(kept: Records, run_id: str, named: NamedArtifact | None, stored: str | None) -> tuple[str, bytes | None]:
    if named is None or named.sha256 is None:
        return ("" if stored else NO_HASH), None
    if stored == named.sha256:
        return "", None
    try:
        copy = kept.workspace.read(run_id, named.path)
    except (Unsafe, TooLarge):
        copy = None
    if copy is None:
        return (NOT_THE_SAME if stored else NEITHER), None
    return ("", copy) if hashlib.sha256(copy).hexdigest() == named.sha256 else (NOT_THE_SAME, None)


OPEN = frozenset(set(Status) - FINAL)
MANY = 1_000_000
IN_DOUBT = "What these write first is in doubt, for it may have been done since: a person is asked then."
NO_LEDGER = (
    "! the ledger is not in the backup, so nobody knows what these have written since, and everything stands still. "
    "Let it go on once the ledger is there (`ductile-gateway restore`), or those are cancelled that must not write "
    "twice"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`backup`: its name, or the newest. `stopped`: kill switch on. `moved`: nothing happened since."""

    place: str
    backup: str | None = None
    stopped: bool = False
    moved: bool = False
    new_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Outcome):
    """`under_way`: open runs and what each waits for. `ended_since`, `begun_since` the backup, as the bus knows."""

    file: str
    backup: str
    taken: str
    store: str
    runs: int
    calls: int | None
    artifacts: int
    stopped: bool
    moved: bool
    under_way: Mapping[str, str]
    ended_since: Mapping[str, str]
    begun_since: Mapping[str, str]
    left_out: Mapping[str, str]

    def __str__(self) -> str:
        calls = "" if self.calls is None else f"{self.calls} calls, "
        lines = [f"✓ {self.store} is as it was at {self.taken}: {self.runs} runs, {calls}{self.artifacts} artifacts"]
        lines += [f"! without {part}: {why}" for part, why in self.left_out.items()]
        lines += [
            f"! {run_id} went on after the backup: {what}. Once the agent runs, `agentic cancel {run_id}` keeps it "
            "from going on from where it was then"
            for run_id, what in self.ended_since.items()
        ]
        lines += [
            f"! {run_id} began after the backup, so it is nowhere: {what}. Nothing goes on; start it anew if need be"
            for run_id, what in self.begun_since.items()
        ]
        lines += [f"  under way: {run_id}, {what}" for run_id, what in self.under_way.items()]
        if self.under_way and not self.moved:
            lines.append(NO_LEDGER if self.calls is None else IN_DOUBT)
        begin = "start the gateway and the agent"
        lines.append(f"Now {begin}; everything stands still until `agentic go-on`" if self.stopped else f"Now {begin}")
        return "\n".join(lines)


async def restore(config: Path | None, order: Order) -> Restored:
    """Raises Misconfigured for runs in the way, a flawed backup, a bus that was not set up; and TryAgain."""
    path = whereabouts.nearby(config)
    loaded = settings.load(path)
    with Archive.to_read(place_of(order.place)) as archive:
        newest = (name for name in archive.backups() if archive.unproved(name, AGENT))
        order = replace(order, backup=order.backup or next(newest, None))
        part, whole, ring = _restoring_proved(archive, loaded, order)
        async with alone(loaded) as link:
            if loaded.shared:
                await _refuse_a_stream_with_runs(link, of_backup(whole.backup))
            else:
                await _refuse_to_overwrite(loaded.store)
            calls = await _restore_ledger(path, order) if GATEWAY in whole.parts else None
            their = next((name for name in archive.having(ARTIFACTS) if name <= whole.backup), None)
            kept = archive.part(their, ARTIFACTS, ring) if their else None
            bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
            artifacts = await _restore_artifacts(archive, kept, bucket, but_those_there=their != whole.backup)
            unknown = calls is None and not order.moved
            found = await _restore_runs(archive, part, loaded, order, link, unknown=unknown)
    return Restored(
        file=str(archive.path),
        backup=whole.backup,
        taken=part.at,
        store=subjects.STREAM_RUNS if loaded.shared else str(loaded.store),
        calls=calls,
        artifacts=artifacts,
        moved=order.moved,
        left_out=_left_out(whole, their),
        **found,
    )


def _restoring_proved(archive: Archive, loaded: AgentSettings, order: Order) -> tuple[Part, Whole, KeyRing | None]:
    name = order.backup or ""
    kept = archive.unproved(name, AGENT)
    if kept is None:
        raise Misconfigured(f"{archive.path} has no backup {name} of an agent: it has {', '.join(archive.backups())}")
    ring = ring_for(loaded.keys_path(), archive, kept, new_keys=order.new_keys)
    whole = archive.whole(name, ring)
    return archive.part(name, AGENT, ring) or kept, whole, ring


async def _refuse_to_overwrite(folder: Path) -> None:
    if not (folder / FILE).exists():
        return
    async with open_database(folder) as there:
        ((runs,),) = await there.read("SELECT count(*) FROM runs")
    if runs:
        raise Misconfigured(
            f"{folder} is a store with {runs} runs, and nothing is overwritten: move it away, then run this again"
        )


async def _refuse_a_stream_with_runs(link: NatsLink, store: str) -> None:
    """Raises Misconfigured, unless these are on their way into it."""
    log = log_of_runs(link)
    mark = await mark_in(log)
    if (mark.state, mark.store) != ("coming", store) and await log.end():
        coming = f"runs of the {mark.store} are on their way into it" if mark.state == "coming" else "it has runs"
        raise Misconfigured(
            f"nothing is overwritten in the stream {subjects.STREAM_RUNS}, and {coming}: make it anew: "
            f"`nats stream rm {subjects.STREAM_RUNS}`, then `agentic setup --shared`"
        )


async def _restore_ledger(config: Path | None, order: Order) -> int:
    asked = {"--moved": order.moved, "--new-keys": order.new_keys}
    options = [option for option, wanted in asked.items() if wanted]
    answer = await run_gateway(
        "restore", order.place, "--backup", order.backup or "", "--json", *options, config=config
    )
    return int(answer["calls"])


def _left_out(whole: Whole, artifacts_of: str | None) -> dict[str, str]:
    told = {part: f"when the backup was made: {why}" for part, why in whole.left_out.items()}
    if ARTIFACTS in told and artifacts_of:
        told[ARTIFACTS] += f". Those of {artifacts_of} were taken, which has none that were made after it"
    return told


async def _restore_artifacts(
    archive: Archive, part: Part | None, bucket: ArtifactBucket, *, but_those_there: bool
) -> int:
    files = part.files if part else ()
    there = {one.key for one in await bucket.list()} if files and but_those_there else set[str]()
    for file in files:
        if file.name not in there:
            await bucket.put(file.name, b"".join(archive.content(file)), content_type_of(file.name))
    return len(files)


async def _restore_runs(
    archive: Archive, part: Part, loaded: AgentSettings, order: Order, link: NatsLink, *, unknown: bool
) -> dict[str, Any]:
    ring = KeyRing.open(loaded.keys_path())
    with staging(loaded.cache if loaded.shared else loaded.store) as beside:
        for name in (FILE, *BESIDE):
            if kept := part.file(name):
                write_out(archive, kept, beside / name)
        async with SqliteStore.open(beside) as store:
            found = await _found(store, ring, link)
            found["stopped"] = order.stopped or (unknown and bool(found["under_way"]))
            if found["stopped"]:
                await _stop(store, part)
        if loaded.shared:
            move = Move(folder=beside, link=link, store=of_backup(order.backup or ""))
            async with said_to_come(move, await mark_in(log_of_runs(link))):
                return found
        set_aside(loaded.store, FILE)
        for name in BESIDE:
            if (beside / name).exists():
                put_in_place(beside / name, loaded.store / name)
        put_in_place(beside / FILE, loaded.store / FILE)
    return found


async def _found(store: SqliteStore, ring: KeyRing, link: NatsLink) -> dict[str, Any]:
    runs = sum((await store.counts()).values())
    lines = await store.runs(Wanted(statuses=OPEN), limit=MANY)
    under_way = {line.run_id: _said_of(line) for line in lines}
    return {"runs": runs, "under_way": under_way, **await _heard_since(store, ring, link)}


def _said_of(line: RunLine) -> str:
    waits = line.waiting_for.kind if line.waiting_for else "its turn"
    tool = f" {line.tool}" if waits == "tool" else ""
    return one_line(f"{line.status}, step {line.steps}, waits for {waits}{tool}: {line.goal}", 120)


async def _heard_since(store: SqliteStore, ring: KeyRing, link: NatsLink) -> dict[str, dict[str, str]]:
    ended, begun = dict[str, str](), dict[str, str]()
    for end in await told_ends(link, ring):
        version, told = store.version(end.run_id), f"{end.subject} was told with entry {end.seq}"
        if version and version < end.seq:
            ended[end.run_id] = told
        elif not version and await store.tombstone(end.run_id) is None:
            begun[end.run_id] = told
    return {"ended_since": ended, "begun_since": begun}


async def _stop(store: SqliteStore, part: Part) -> None:
    before = await store.halts.newest()
    if before and before.until is None:
        return
    number = before.number + 1 if before else 1
    reason = f"restored from the backup of {part.at}"
    since = datetime.fromisoformat(part.at)
    await store.halts.keep(Halt(number=number, since=since, by="agentic restore", reason=reason))
