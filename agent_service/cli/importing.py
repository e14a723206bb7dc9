"""`agentic import`: runs of another store, from a file that `agentic export` has made, to be read in this one.

    the file is whole ─▶ nobody is at work ─▶ none of its runs is here ─▶ artifacts ─▶ runs, in one transaction ─▶ pages

The runs come behind their artifacts: killed before that, it has imported nothing, and the same command does it all.
What is stored of a run is folded from its journal, never taken from the file.

Into a store that several share they come entry by entry, and their agents write the pages. Killed among them, it leaves
a run of which the first entries are there: agents leave it alone, and the same command brings the rest.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.bus.artifacts import NatsArtifacts
from agent_service.cli import configuration
from agent_service.cli.alone import alone
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import Exit
from agent_service.cli.exported_file import VerifiedFile, told_of
from agent_service.cli.records import LOOKING
from agent_service.settings import AgentSettings
from agent_service.store.copying import copied
from agent_service.store.imports import Foreign, SqliteImports
from agent_service.store.moving.into_log import IntoLog
from agent_service.store.seals import Seals
from agent_service.store.sql.database import open_database
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.export.file import ExportFile
from agent_service.telling.export.judging import Judged, folded, judge
from agent_service.telling.export.manifest import ExportedRun
from agent_service.telling.folder.workspace import MAX_BYTES, Workspace
from agent_service.telling.folder.writer import rewrite
from agent_service.telling.outputs import is_artifact_path
from groundwork.backup.files import staging
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import KeyRing
from groundwork.service.slots import claimed
from schemas import subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`runs` by id with their status; `public` is the key that the file was signed with, empty where nobody did."""

    file: str
    store: str
    runs: dict[str, str]
    artifacts: int
    public: str

    def for_programs(self) -> dict[str, Any]:
        return {"ok": True, **asdict(self)}

    def __str__(self) -> str:
        first = next(iter(self.runs))
        signed = "" if self.public else "; nobody has signed the file, so its runs are as it says"
        lines = [f"✓ {run_id} ({status}) is in {self.store}, to be read" for run_id, status in self.runs.items()]
        return "\n".join(
            (*lines, f"{self.artifacts} artifacts are in the bucket{signed}", f"See `agentic show {first}`")
        )


async def import_file(path: Path, key: str | None, config: Path | None) -> Imported:
    """Raises Misconfigured for what is no such file and while an agent is at work, and NotDone for one that was
    changed, for runs that had not ended, and for runs that are here."""
    loaded = settings.load(configuration.nearby(config))
    if not loaded.keys_path().exists():
        raise Misconfigured(f"there is no file {loaded.keys_path()}: start the agent once, which makes its keys")
    with ExportFile.opened(path) as file:
        judged = judge(file, key=key)
        _check(told_of(file, judged, key))
        foreign = [_foreign(run, judged) for run in file.manifest.runs]
        artifacts = await _take(file, foreign, loaded)
    return Imported(
        file=str(path),
        store=subjects.STREAM_RUNS if loaded.shared else str(loaded.store),
        runs={run.state.run_id: run.state.status.value for run in foreign},
        artifacts=artifacts,
        public=judged.signature.public if judged.signature else "",
    )


def _check(verified: VerifiedFile) -> None:
    if not verified.ok:
        raise NotDone(f"nothing was imported, for the file is not as it was written:\n{verified}", Exit.FAILED)
    if going_on := [run.run_id for run in verified.manifest.runs if not run.ended]:
        raise NotDone(
            f"nothing was imported: {', '.join(going_on)} had not ended, and its agent may go on with it, so that two "
            "would do the same. Export it again once it has ended; to move an open run, move its whole store with "
            "`agentic backup` and `agentic restore --moved`",
            Exit.REFUSED,
        )


def _foreign(run: ExportedRun, judged: Judged) -> Foreign:
    entries = judged.journals[run.run_id]
    return Foreign(state=folded(entries), digest=run.digest, entries=entries)


async def _take(file: ExportFile, foreign: Sequence[Foreign], loaded: AgentSettings) -> int:
    """How many artifacts there are."""
    seals = Seals(KeyRing.open(loaded.keys_path()))
    async with alone(loaded) as link:
        if loaded.shared:
            return await _into_stream(file, foreign, loaded, link, seals)
        async with SqliteStore.open(loaded.store, seals=seals) as store:
            _refuse(await store.imports.taken(foreign))
            artifacts = await _put_artifacts(file, link)
            await store.imports.take(foreign, seals, datetime.now(UTC))
            for run in foreign:
                await rewrite(run.state.run_id, store, Workspace(loaded.workspaces), NatsArtifacts(link))
    return artifacts


async def _into_stream(
    file: ExportFile, foreign: Sequence[Foreign], loaded: AgentSettings, link: NatsLink, seals: Seals
) -> int:
    """By way of a store of one agent, which is told as facts. How many artifacts there are."""
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(claimed(loaded.cache / LOOKING))
        there = await opened.enter_async_context(copied(link, folder))
        imports = SqliteImports(there.database)
        left = await imports.left(foreign)
        _refuse(await imports.taken(left or foreign, begun=bool(left)))
        artifacts = await _put_artifacts(file, link)
        source = await opened.enter_async_context(open_database(opened.enter_context(staging(loaded.cache))))
        await SqliteImports(source).take(left, seals, datetime.now(UTC))
        await IntoLog(there.log, there, there.database).write(source, seals)
        if missing := await imports.left(left):
            named = ", ".join(run.state.run_id for run in missing)
            raise Misconfigured(f"{named} did not come as exported: look with `agentic verify --all`")
    return artifacts


def _refuse(taken: dict[str, str]) -> None:
    if taken:
        why = "; ".join(f"{run_id} {text}" for run_id, text in taken.items())
        raise NotDone(f"nothing was imported: {why}", Exit.REFUSED)


async def _put_artifacts(file: ExportFile, link: NatsLink) -> int:
    bucket = NatsArtifacts(link)
    names = [name for name in file.manifest.files if is_artifact_path(name.partition("/")[2])]
    for name in names:
        run_id, _, artifact = name.partition("/")
        await bucket.put(run_id, artifact, await asyncio.to_thread(file.read, name, MAX_BYTES))
    return len(names)
