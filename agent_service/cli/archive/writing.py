"""`agentic backup` and `agentic export --all`: all runs into an archive.

A backup is made while the agent, the gateway and the bus go on. It takes the runs as of one instant, then the ledger,
then artifacts: so the ledger knows each call of a run in the backup, and the bucket each artifact. A run that was
changed by other hands is left out, for the agent signs the archive.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_service import settings
from agent_service.archive.runs import ARTIFACTS, ArchivedRun, Runs, journal_name, journal_of, write_beside, write_runs
from agent_service.cli import whereabouts
from agent_service.cli.archive.records import Outcome, Records, bus_at_hand, records
from agent_service.cli.services.alone import alone
from agent_service.core.waiting import Status
from agent_service.run.journal import Entry, flaw_in_chain
from agent_service.settings import AgentSettings
from agent_service.store.archived import beside_runs, stored_runs
from agent_service.store.opening import log_of_runs
from agent_service.store.shared_log.marks import (
    Mark,
    is_moved_away,
    mark_in,
    mark_moved_away,
    put_mark,
    refuse_unless_here,
    take_mark_away,
)
from groundwork.archive.format import Archive, Writer, writing
from groundwork.archive.series import KEYS, SUFFIX, Series
from groundwork.nats.artifact_bucket import ArtifactBucket, NoSuchArtifact
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import ID_FILE, known_id
from schemas import subjects

AGENT, GATEWAY = "agentic", "gateway"
BESIDE_DATABASE = (ID_FILE, "progress.wanted")
OPEN = frozenset({Status.QUEUED, Status.RUNNING, Status.PAUSED})
NOWHERE = "neither the run's folder nor the bucket has it as its tool made it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    place: str
    with_keys: bool = False
    most: int | None = None


@dataclass(slots=True, kw_only=True)
class Written(Outcome):
    """`what` is in the archive, `size`: bytes that are new. `about`: counts, by service. `keys`: the files with keys,
    which are not in it. `then`: what comes next."""

    what: str
    file: str
    backup: str = ""
    size: int = 0
    about: dict[str, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """Of an export: status by id."""
    left_out: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    then: str = ""

    @property
    def ok(self) -> bool:
        return self.left_out.keys() <= {GATEWAY}

    def __str__(self) -> str:
        counts = [f"{number} {what}" for about in self.about.values() for what, number in about.items()]
        lines = [f"✓ {self.what} is in {self.file}: {', '.join([*counts, f'{self.size / 1024:.1f} KiB are new'])}"]
        lines += [f"! without {part}: {why}" for part, why in self.left_out.items()]
        if still := [run_id for run_id, status in self.runs.items() if Status(status) in OPEN]:
            lines.append(f"! {', '.join(still)} had not ended: this is how it stood")
        if self.keys:
            lines.append(
                f"The keys are not in it, and nothing can be proved without them: keep {' and '.join(self.keys)} in "
                "another place too; or make backups --with-keys, which nobody else may read then"
            )
        return "\n".join([*lines, self.then or f"Anybody can check it: `agentic verify {self.file}`"])


async def backup(config: Path | None, order: Order) -> Written:
    """Raises Misconfigured for a store that cannot be backed up, and TryAgain."""
    path = whereabouts.nearby(config)
    loaded = settings.load(path)
    if not loaded.keys_path().exists():
        raise Misconfigured(f"there is no file {loaded.keys_path()}: start the agent once, which makes its keys")
    ring, at, series = KeyRing.open(loaded.keys_path()), datetime.now(UTC), Series(order.place, AGENT)
    before = series.newest()
    async with records(path) as kept:
        with series.writing(ring, at) as (file, archive):
            name = series.name_of(file, at)
            made = Written(what=name, file=str(file), backup=name)
            runs, artifacts = await _add_runs(kept, archive, made)
            await _add_ledger(path, order, archive, made)
            await _add_artifacts(loaded, archive, before, made)
            write_runs(archive, (_without(run, artifacts.get(run.run_id, ()), archive) for run in runs))
            _add_folder(loaded, archive, order, made)
            counts = {what: number for about in made.about.values() for what, number in about.items()}
            archive.said |= {"at": at, "about": counts, "left_out": made.left_out}
        made.size = archive.size
    if order.most:
        series.keep_only(order.most)
    return made


async def export_all(place: Path, config: Path | None) -> Written:
    """Of a store that is left: no agent may run, and none begins on it again. Raises Misconfigured and TryAgain."""
    path = whereabouts.nearby(config)
    loaded = settings.load(path)
    async with alone(loaded) as link, _left(loaded, link), records(path) as kept:
        file = file_in(place, AGENT)
        then = f"No agent begins on their store now: name the new one, then run `agentic restore {file}`"
        made = Written(what="every run", file=str(file), then=then)
        with writing(file, kept.ring) as archive:
            runs, _ = await _add_runs(kept, archive, made)
            write_runs(archive, runs)
            _add_folder(loaded, archive, Order(place=str(file)), made)
            archive.said |= {"at": datetime.now(UTC), "moved": True, "left_out": made.left_out}
    return made


@asynccontextmanager
async def _left(loaded: AgentSettings, link: NatsLink) -> AsyncIterator[None]:
    """Inside, and afterwards unless it fails, no agent begins on the store."""
    log = log_of_runs(link)
    before = await mark_in(log) if loaded.shared else Mark(state="left" if is_moved_away(loaded.store) else "here")
    if before.state == "coming":
        await refuse_unless_here(log)
    if loaded.shared:
        mark = await put_mark(log, Mark(state="left"), before)
    else:
        mark_moved_away(loaded.store)
    try:
        yield
    except BaseException:
        if loaded.shared:
            await put_mark(log, before, mark)
        elif before.state == "here":
            take_mark_away(loaded.store)
        raise


async def _add_runs(kept: Records, archive: Writer, made: Written) -> tuple[list[ArchivedRun], dict[str, list[str]]]:
    """The runs, and the paths of their artifacts by run."""
    await kept.database.read("BEGIN")  # from here on all is read as of one instant
    base = archive.base
    heads = {run.run_id: run.head for run in Runs(base).all} if base else {}
    runs, artifacts = list[ArchivedRun](), await kept.store.artifacts()
    async for run in stored_runs(kept.database):
        name = journal_name(run.run_id)
        if base and heads.get(run.run_id) == run.head:
            archive.take_over(name, base)
        else:
            entries = await kept.store.entries(run.run_id)
            if flaw := _flaw(run, entries):
                made.left_out[run.run_id] = f"it is not as its agent left it: {flaw}"
                continue
            archive.add(name, journal_of(entries))
        runs.append(run)
    write_beside(archive, await beside_runs(kept.database))
    await kept.database.read("COMMIT")
    made.about["agent"] = {"runs": len(runs), "of them under way": sum(run.status in OPEN for run in runs)}
    return runs, artifacts


def _without(run: ArchivedRun, artifacts: Iterable[str], archive: Writer) -> ArchivedRun:
    lacked = [path for path in artifacts if f"{run.run_id}/{path}" not in archive.files]
    return run.model_copy(update={"left_out": dict.fromkeys(lacked, NOWHERE)})


def _flaw(run: ArchivedRun, entries: Sequence[Entry]) -> str | None:
    if not entries or (len(entries), entries[-1].hash) != (run.version, run.head):
        return f"its journal does not end with entry {run.version}"
    return flaw_in_chain(entries)


async def _add_ledger(config: Path | None, order: Order, archive: Writer, made: Written) -> None:
    with TemporaryDirectory(dir=Path(made.file).parent, prefix="ledger-") as beside:
        file = f"{beside}/{GATEWAY}{SUFFIX}"
        options = ["--json", *(["--with-keys"] if order.with_keys else [])]
        told = await run_gateway("backup", file, *options, config=config)
        if told["left_out"]:
            made.left_out[GATEWAY] = told["left_out"]
            return
        with Archive.opened(Path(file)) as ledger:
            archive.include(GATEWAY, ledger)
    made.about[GATEWAY] = told["about"]
    made.keys = tuple(told["keys"])


async def run_gateway(*arguments: str, config: Path | None) -> dict[str, Any]:
    named = ("--config", str(config)) if config else ()
    called = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ductile_gateway", *arguments, *named),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await called.communicate()
    if called.returncode:
        raise Misconfigured(complaint.decode(errors="replace").strip() or f"the gateway's {arguments[0]} ended")
    answer: dict[str, Any] = json.loads(out)
    return answer


async def _add_artifacts(loaded: AgentSettings, archive: Writer, previous: Path | None, made: Written) -> None:
    """Where the bus is away, what the previous backup has is taken over."""
    try:
        async with bus_at_hand(loaded) as link:
            bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
            for one in await bucket.list():
                await _add_artifact(archive, bucket, one.key, one.sha256)
    except Failure as error:
        made.left_out[ARTIFACTS] = str(error)
        if previous and _take_artifacts_over(archive, previous):
            made.left_out[ARTIFACTS] += f". Those of {previous.name} are in it"
    else:
        made.about[ARTIFACTS] = {"artifacts": sum(f"/{ARTIFACTS}/" in name for name in archive.files)}


def _take_artifacts_over(archive: Writer, previous: Path) -> bool:
    with Archive.opened(previous) as older:
        names = [name for name in older.manifest.files if f"/{ARTIFACTS}/" in name]
        for name in names:
            archive.take_over(name, older)
    return bool(names)


async def _add_artifact(archive: Writer, bucket: ArtifactBucket, key: str, digest: str) -> None:
    run_id, _, path = key.partition("/")
    name = f"{run_id}/{ARTIFACTS}/{path}"
    if digest in archive.held:
        archive.files[name] = digest
        return
    try:
        archive.add(name, await bucket.get(key))
    except NoSuchArtifact:
        return


def _add_folder(loaded: AgentSettings, archive: Writer, order: Order, made: Written) -> None:
    """What lies beside the database, and the keys."""
    archive.said["store"] = known_id(loaded.store)
    for name in BESIDE_DATABASE:
        if (loaded.store / name).exists():
            archive.add(name, (loaded.store / name).read_bytes())
    if order.with_keys:
        archive.add(KEYS, loaded.keys_path().read_bytes())
    else:
        made.keys = (str(loaded.keys_path()), *made.keys)


def file_in(place: Path | None, run_id: str) -> Path:
    if place is None or place.is_dir():
        return (place or Path()) / f"{run_id}{SUFFIX}"
    return place if place.suffix == SUFFIX else place.with_name(f"{place.name}{SUFFIX}")
