"""Access of commands to an agent's store, to the runs of an archive, and to the gateway's commands.

A store is read while the agent may run, and changed while none does. In an archive `runs.jsonl` has a line per run, and
the folder of a run has its journal, and in an export its pages.
"""

import asyncio
import hashlib
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_service import settings
from agent_service.bus.buckets import NatsArtifactStore
from agent_service.bus.topology import ROLE, check
from agent_service.core.waiting import Status
from agent_service.history.results import RecordedArtifact
from agent_service.history.text import MOST_CANDIDATES, id_part, is_run_id, resolve
from agent_service.run.journal import Commit, Entry, followed, growth_of
from agent_service.settings import AgentSettings
from agent_service.store.database import open_for_reading
from agent_service.store.lines import RunFilter
from agent_service.store.messages import SideRecord, record_in
from agent_service.store.moving import Place, require_complete
from agent_service.store.runs import RunStore
from agent_service.store.shared import log_of_runs, open_shared
from agent_service.views.pages import JOURNAL
from agent_service.views.workspace.files import FileList, TooLarge, Unsafe, Workspace
from groundwork.archive.format import Archive, Hash
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.link import NatsLink, connect
from groundwork.service import serving
from groundwork.service.errors import Exit, Failure, Misconfigured, NotDone, TryAgain, Unreachable
from groundwork.service.keys import KeyRing
from groundwork.service.program import own_command
from groundwork.service.store_folder import ID_FILE, claim_folder
from schemas import subjects
from schemas.fields import Instant
from schemas.values import replace

PROGRAM = "agentic-cli"
STOP = "agentic drain"
LOOKING = "looking"
"""Folder of readers' indexes, next to those of agents."""
AGENT, GATEWAY = "agentic", "gateway"
RUNS, BESIDE = "runs.jsonl", "beside.jsonl"
ARTIFACTS = "artifacts"
STORE_FILES = (ID_FILE, "progress.wanted")
OPEN = frozenset({Status.QUEUED, Status.RUNNING, Status.PAUSED})
NOWHERE = "neither the run's folder nor the bucket has it as its tool made it"


def bus_at_hand(of: AgentSettings) -> AbstractAsyncContextManager[NatsLink]:
    return connect(of.nats, PROGRAM)


def exclusive_bus(loaded: AgentSettings) -> AbstractAsyncContextManager[NatsLink]:
    """Holds the store while no agent runs. Raises Misconfigured for an agent at work, or a bus that is not set up."""
    is_set_up = partial(check, shared=loaded.shared)
    return serving.stopped_service(loaded, ROLE, is_set_up, name=PROGRAM, stop=STOP)


def place_of(loaded: AgentSettings, link: NatsLink) -> Place:
    return log_of_runs(link) if loaded.shared else loaded.store


class RunDeleted(NotDone):
    """Only the run's tombstone is left."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command on runs: `facts` for programs, `text` for people."""

    facts: dict[str, Any]
    text: str
    ok: bool = True


@dataclass(slots=True, kw_only=True)
class StoreReader:
    """`config`: the settings file. `ring`: the agent's keys. Connects to the bus for the first artifact; a bus that is
    away is tried once."""

    config: Path | None
    settings: AgentSettings
    ring: KeyRing | None
    store: RunStore
    workspace: Workspace
    opened: AsyncExitStack
    link: NatsLink | Unreachable | None = None
    stored: Mapping[str, str] | None = None

    async def named(self, name: str) -> str:
        if is_run_id(name):
            return name
        newest = await self.store.runs(RunFilter(run=id_part(name)), limit=MOST_CANDIDATES)
        return resolve(name, [(line.run_id, line.status, line.goal) for line in newest])

    async def entries(self, run_id: str) -> list[Entry]:
        """Raises NotDone for an unknown run, and RunDeleted."""
        entries = list(await self.store.entries(run_id))
        if not entries and not self.store.version(run_id):
            if tombstone := await self.store.tombstone(run_id):
                raise RunDeleted(str(tombstone), Exit.NOT_FOUND, {"code": "gone"})
            where = f"{self.settings.store} (configuration: {self.config or 'none'})"
            raise NotDone(f"there is no run {run_id} in {where}", Exit.NOT_FOUND)
        return entries

    def intact_copy(self, run_id: str, named: RecordedArtifact) -> bytes | None:
        """The content in the run's folder, unless it is missing or not what the journal names."""
        try:
            copy = self.workspace.read(run_id, named.path)
        except (Unsafe, TooLarge):
            return None
        return copy if copy is not None and hashlib.sha256(copy).hexdigest() == named.sha256 else None

    async def artifact(self, run_id: str, path: str) -> bytes | None:
        """Reads it from the bus. Raises TryAgain, and Misconfigured for a refused login."""
        return await NatsArtifactStore(await self._bus()).get(run_id, path)

    async def hashes(self) -> Mapping[str, str]:
        """SHA-256 (hex) of the artifacts on the bus at the first call, by key. Raises as `artifact` does."""
        if self.stored is None:
            self.stored = await artifact_hashes(await self._bus())
        return self.stored

    async def _bus(self) -> NatsLink:
        if self.link is None:
            try:
                self.link = await self.opened.enter_async_context(bus_at_hand(self.settings))
            except Unreachable as error:
                self.link = error
        if isinstance(self.link, Unreachable):
            raise TryAgain(f"artifacts are needed from the bus, which is away: {self.link}") from self.link
        return self.link


@asynccontextmanager
async def open_reader(config: Path | None) -> AsyncIterator[StoreReader]:
    loaded = settings.load(config)
    async with AsyncExitStack() as opened:
        if loaded.shared:
            link = await opened.enter_async_context(bus_at_hand(loaded))
            folder = opened.enter_context(claim_folder(loaded.cache / LOOKING))
            await require_complete(log := log_of_runs(link))
            store: RunStore = await opened.enter_async_context(open_shared(folder, log))
        else:
            await require_complete(loaded.store)
            store = RunStore(await opened.enter_async_context(open_for_reading(loaded.store)))
        yield StoreReader(
            config=config,
            settings=loaded,
            ring=KeyRing.open(loaded.keys_path()) if loaded.keys_path().exists() else None,
            store=store,
            workspace=Workspace(loaded.workspaces),
            opened=opened,
        )


class ArchivedRun(BaseModel):
    """`digest`: of its wake. `head`: hash of entry `version`, the newest. `positions`: of its entries in the journal of
    all runs. `artifacts_gone`: the rule that deleted them. `left_out`: reasons by artifact or child."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    wake_id: str
    digest: str
    accepted_at: Instant
    status: Status
    version: Annotated[int, Field(ge=1)]
    head: Hash
    dispatched_up_to: int = 0
    artifacts_gone: str = ""
    positions: tuple[int, ...] = ()
    left_out: dict[str, str] = {}


def commits_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[Commit]:
    """Commits of a journal, decided again; the newest has the brief and every growing item. Raises ValueError for
    entries that cannot be followed, or end otherwise than `run` says."""
    *commits, newest = followed(entries, run.run_id)
    state = newest.state
    found = newest.entry.seq, newest.entry.hash, len(entries), state.status, state.wake_id, state.accepted_at
    said = run.version, run.head, len(run.positions), run.status, run.wake_id, run.accepted_at
    if found != said:
        raise ValueError(f"{RUNS} says something else of the run than its journal")
    return [*commits, replace(newest, brief=state.brief, growth=growth_of(None, state))]


def journal_name(run_id: str) -> str:
    return f"{run_id}/{JOURNAL}.jsonl"


class ArchivedRuns:
    """The runs of an open archive. Methods raise Misconfigured for what cannot be read."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.all = tuple(archive.decoded(ArchivedRun, RUNS, line) for line in archive.lines(RUNS))
        self._folders = defaultdict[str, list[str]](list)
        for name in archive.manifest.files:
            run_id, _, below = name.partition("/")
            self._folders[run_id].append(below)

    def entries(self, run_id: str) -> list[Entry]:
        name = journal_name(run_id)
        return [self.archive.decoded(Entry, name, line) for line in self.archive.lines(name)]

    def side_records(self) -> list[SideRecord]:
        return list(map(self._side_record, self.archive.lines(BESIDE)))

    def _side_record(self, line: bytes) -> SideRecord:
        with suppress(ValueError, TypeError):
            subject, text = json.loads(line)
            if record := record_in(str(subject), json.dumps(text)):
                return record
        program = self.archive.manifest.program
        raise Misconfigured(f"{self.archive.path}: {BESIDE} cannot be read: use the version that made it, {program}")

    def files(self, run_id: str) -> FileList:
        """All but the journal; with `read` it is a folder of views.pages."""
        others = (name for name in self._folders.get(run_id, ()) if f"{run_id}/{name}" != journal_name(run_id))
        return FileList(run_id=run_id, files=(), foreign=tuple(others))

    def read(self, run_id: str, path: str) -> bytes | None:
        name = f"{run_id}/{path}"
        return self.archive.read(name) if name in self.archive.manifest.files else None


async def artifact_hashes(link: NatsLink) -> dict[str, str]:
    try:
        return {stored.key: stored.sha256 for stored in await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).list()}
    except Failure as error:
        raise TryAgain(str(error)) from error


async def run_gateway(*arguments: str, config: Path | None) -> dict[str, Any]:
    """Returns what a command of the gateway says as JSON. Raises NotDone with its error."""
    at = ("--config", str(config)) if config else ()
    command = own_command("ductile_gateway", *arguments, "--json", *at)
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    out, stderr = await process.communicate()
    if process.returncode:
        text = stderr.decode(errors="replace").strip()
        with suppress(ValueError, LookupError, TypeError):
            error = json.loads(text)["error"]
            raise NotDone(error["message"], Exit(error["exit_code"]), {"code": error["code"]})
        raise NotDone(text or f"the gateway's {arguments[0]} ended", Exit.FAILED)
    answer: dict[str, Any] = json.loads(out)
    return answer
