"""Fakes of the ports, for tests of what stands on them. Each passes the conformance suite of its port."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from agent_service.archive.tombstones import ArtifactsGone, Tombstone
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, VersionMoved, WakeConflict
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.lines import EVERY_RUN, RunLine, Wanted, line_of
from agent_service.run.ports import Place, Untold, Wake
from agent_service.store.sqlite import Alone
from schemas.status import Halt
from tests.kit.runs import NOON, run_id


class FakeClock:
    """Stands still until it is advanced; run ids count up. Fills the port Clock."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._runs = 0

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def new_run_id(self) -> str:
        self._runs += 1
        return run_id(self._runs)


class MemoryArtifacts:
    """Contents in a dict, by run and path. Fills the port KeptArtifacts."""

    def __init__(self) -> None:
        self.contents: dict[tuple[str, str], bytes] = {}

    async def get(self, run_id: str, path: str) -> bytes | None:
        return self.contents.get((run_id, path))

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        self.contents[run_id, path] = content

    async def remove(self, run_id: str, path: str) -> None:
        self.contents.pop((run_id, path), None)

    async def sizes(self) -> dict[str, int]:
        runs = {run_id for run_id, _ in self.contents}
        return {run: sum(len(c) for (of, _), c in self.contents.items() if of == run) for run in runs}


class MemoryHalts:
    """Fills the port Halts."""

    def __init__(self) -> None:
        self.halt: Halt | None = None

    async def newest(self) -> Halt | None:
        return self.halt

    async def keep(self, halt: Halt) -> None:
        self.halt = halt


class MemoryBoard:
    """Fills the port Board."""

    def __init__(self) -> None:
        self.halt: Halt | None = None

    async def show(self, halt: Halt) -> None:
        self.halt = halt

    async def shown(self) -> Halt | None:
        return self.halt


class MemoryStore(Alone):
    """Runs in dicts. Fills the ports RunStore and Archive; what is told is written at once instead of later."""

    def __init__(self) -> None:
        self._commits: dict[str, list[Commit]] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self._wakes: dict[str, tuple[str, str]] = {}
        self._told: dict[str, int] = {}
        self._stored: list[Entry] = []

    async def accept(self, wake: Wake, commit: Commit) -> str:
        known = self._wakes.get(wake.wake_id)
        if known is None:
            self._append(commit)
            known = self._wakes[wake.wake_id] = (wake.digest, commit.entry.run_id)
        digest, run_id = known
        if digest != wake.digest:
            raise WakeConflict(wake.wake_id, run_id)
        return run_id

    async def load(self, run_id: str) -> Run | None:
        commits = self._commits.get(run_id)
        return Run(state=commits[-1].state, head=commits[-1].entry.hash) if commits else None

    async def tombstone(self, run_id: str) -> Tombstone | None:
        return self.tombstones.get(run_id)

    async def artifacts_gone(self, run_id: str) -> ArtifactsGone | None:
        del run_id
        return None

    async def commit(self, commit: Commit) -> None:
        if commit.entry.run_id not in self._commits:
            raise VersionMoved(commit.entry.run_id)
        self._append(commit)

    def told(self, run_id: str, seq: int, *, since: int = 1) -> None:
        del since
        if self._told.get(run_id, 0) < seq <= len(self._commits.get(run_id, ())):
            self._told[run_id] = seq

    def quarantine(self, found: Damaged) -> None:
        raise found

    async def untold(self, limit: int) -> Sequence[Untold]:
        left = ((run, range(self._told.get(run, 0) + 1, len(self._commits[run]) + 1)) for run in sorted(self._commits))
        return [Untold(run_id=run, seqs=tuple(seqs)) for run, seqs in left if seqs][:limit]

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        timers = sorted((c[-1].state.due_at, run) for run, c in self._commits.items() if c[-1].state.due_at)
        return [run for due_at, run in timers if due_at <= now][:limit]

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        entries = [commit.entry for commit in self._commits.get(run_id, []) if commit.entry.seq > after]
        return entries[:limit]

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        said = [entry for entry in await self.entries(run_id) if entry.kind == "SignalReceived"]
        return [entry for entry in said if json.loads(entry.event)["signal"]["signal_id"] == signal_id]

    def version(self, run_id: str) -> int:
        return len(self._commits.get(run_id, ()))

    def newest(self) -> int:
        return len(self._stored)

    def places(self, after: int, limit: int) -> Sequence[Place]:
        stored = enumerate(self._stored[after : after + limit], start=after + 1)
        return [Place(position, entry.run_id, entry.seq) for position, entry in stored]

    async def runs(self, wanted: Wanted = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        newest = [self._commits[run] for run in sorted(self._commits, reverse=True) if before is None or run < before]
        return [_line(commits) for commits in newest if _is(wanted, commits[-1].state)][:limit]

    async def queued(self, limit: int) -> Sequence[str]:
        return [run for run in sorted(self._commits) if self._commits[run][-1].state.status is Status.QUEUED][:limit]

    async def run_of(self, wake_id: str) -> str | None:
        return self._wakes[wake_id][1] if wake_id in self._wakes else None

    async def unsettled(self, since: datetime) -> Sequence[str]:
        return [
            run_id
            for run_id, commits in self._commits.items()
            if not commits[-1].state.final or any(commit.entry.at >= since for commit in commits)
        ]

    async def counts(self) -> dict[Status, int]:
        statuses = [commits[-1].state.status for commits in self._commits.values()]
        return {status: statuses.count(status) for status in Status}

    def _append(self, commit: Commit) -> None:
        entry, commits = commit.entry, self._commits.setdefault(commit.entry.run_id, [])
        if entry.seq != len(commits) + 1:
            raise VersionMoved(entry.run_id)
        commits.append(commit)
        self._stored.append(entry)


def _line(commits: Sequence[Commit]) -> RunLine:
    return replace(line_of(commits[-1].state), updated_at=max(commit.entry.at for commit in commits))


def _is(wanted: Wanted, run: RunState) -> bool:
    said = f"{run.run_id}\n{run.summary}\n{run.brief.goal}".lower()
    planned = run.plan.actions if run.plan else ()
    tools = {record.tool for record in run.completed} | {action.tool for action in planned}
    return (
        (not wanted.statuses or run.status in wanted.statuses)
        and wanted.text.lower() in said
        and (not wanted.tool or wanted.tool in tools)
        and (wanted.since is None or run.accepted_at >= wanted.since)
    )
