"""Keeps the pages and traces of runs up to date.

An agent with its own store writes both after each commit, and old pages on request. Agents that share a store write
pages on request; each sends the traces of its own entries, and a dead one's heir what that may not have sent.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent_service.audit.process import TrailProcess
from agent_service.run.moments import Moment
from agent_service.run.ports import Artifacts
from agent_service.run.recovery import FORGETTABLE
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.on_demand import OnDemand, PutAway
from agent_service.telling.folder.projector import Outcome, Projector
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.spans.sending import MARGIN


@dataclass(frozen=True, slots=True)
class Tracing:
    """Sends traces, and writes no pages."""

    process: TrailProcess

    async def write(self, run_ids: Collection[str]) -> Mapping[str, Outcome]:
        return await self.process.trace(run_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTrail:
    """`projector` follows this agent's commits, if `follows`; `kept` notes how far it came."""

    process: TrailProcess
    projector: Projector
    files: RunFiles
    kept: Workspace
    shared: bool

    @property
    def follows(self) -> bool:
        return not self.shared or self.process.sends

    def committed(self, moment: Moment) -> None:
        if self.follows:
            self.projector.moved(moment.after.run_id, ended=moment.after.final)

    async def catch_up(self, store: SqliteStore, now: datetime) -> None:
        if not self.shared:
            behind_since = self.kept.caught_up_at() or now
            self.projector.catch_up(await store.unsettled(behind_since - FORGETTABLE))

    async def take_over(self, store: SqliteStore, member: str, now: datetime, mine: Callable[[str], bool]) -> None:
        """Send what a dead member may not have sent of the runs that are `mine` now."""
        if self.process.sends:
            moved = await store.members.runs_moved_by(member, now - MARGIN)
            await self.process.trace([run_id for run_id in moved if mine(run_id)], member)


def kept_in_step(process: TrailProcess, workspaces: Path, store: SqliteStore, artifacts: Artifacts) -> PaperTrail:
    workspace = Workspace(workspaces)
    projector = Projector(process, workspace, artifacts, on_damage=store.quarantine)
    files = RunFiles(workspace, store, artifacts, PutAway(store, projector, workspace).bring_back)
    return PaperTrail(process=process, projector=projector, files=files, kept=workspace, shared=False)


def written_on_demand(
    process: TrailProcess, workspaces: Path, folder: Path, store: SqliteStore, artifacts: Artifacts
) -> PaperTrail:
    workspace, kept = Workspace(workspaces), Workspace(folder)
    asked = OnDemand(store, Projector(process, workspace, artifacts, on_damage=store.quarantine), workspace)
    files = RunFiles(workspace, store, artifacts, asked.bring_up_to_date)
    projector = Projector(Tracing(process), kept, artifacts)
    return PaperTrail(process=process, projector=projector, files=files, kept=kept, shared=True)
