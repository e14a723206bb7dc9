"""Several agents of one store: whoever is asked writes a run's folder, as it stands wherever that was decided; and each
span of a trace is sent once, by the agent whose entry it comes from."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import pytest

from agent_service.run.journal import Commit
from agent_service.run.moments import retell
from agent_service.store.shared_log.store import SharedStore
from agent_service.telling.folder.on_demand import OnDemand
from agent_service.telling.folder.projector import Outcome, Projector
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import TrailWriter
from agent_service.telling.spans.sending import Traces
from agent_service.telling.spans.trace import spans
from groundwork.service.errors import TryAgain
from groundwork.telemetry.settings import sampler
from groundwork.telemetry.span import Span
from tests.core.cues import RUN_ID
from tests.core.script import NOON
from tests.kit.memory_log import MemoryLog, joined
from tests.kit.runs import wake_of
from tests.projections.fakes import Shelf
from tests.projections.journals import CRITIQUE, PAGE, commits_of, entries_of, worked_example

COMMITS = commits_of(worked_example())
ALL = list(spans(retell(entries_of(worked_example()))))
ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


class Counting:
    """A writer that counts what it is asked for."""

    def __init__(self, writer: TrailWriter) -> None:
        self._writer = writer
        self.asked: list[str] = []

    async def write(self, run_ids: Collection[str]) -> Mapping[str, Outcome]:
        self.asked += run_ids
        return await self._writer.write(run_ids)


class Agent:
    """As far as people read of runs by it."""

    def __init__(self, store: SharedStore, folder: Path, shelf: Shelf) -> None:
        self.store = store
        self.workspace = Workspace(folder / "workspaces")
        self.writer = Counting(TrailWriter(store, self.workspace))
        on_demand = OnDemand(store, Projector(self.writer, self.workspace, shelf), self.workspace)
        self.files = RunFiles(self.workspace, store, shelf, on_demand.bring_up_to_date)

    async def commits(self, commit: Commit) -> None:
        if commit.entry.seq == 1:
            await self.store.accept(wake_of(commit), commit)
        else:
            await self.store.load(commit.entry.run_id)  # as whoever decides has
            await self.store.commit(commit)


@asynccontextmanager
async def agent(log: MemoryLog, folder: Path, name: str, shelf: Shelf) -> AsyncIterator[Agent]:
    (folder / name).mkdir()
    async with joined(log, folder / name, name) as member:
        yield Agent(member.store, folder / name, shelf)


@dataclass
class Two:
    a: Agent
    b: Agent
    shelf: Shelf

    async def play(self, commits: Sequence[Commit]) -> None:
        """The run moves between them."""
        for commit, one in zip(commits, cycle((self.a, self.b, self.b)), strict=False):
            await one.commits(commit)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    log, shelf = MemoryLog(), Shelf(dict(ARTIFACTS))
    async with agent(log, tmp_path, "a", shelf) as a, agent(log, tmp_path, "b", shelf) as b:
        yield Two(a, b, shelf)


async def test_a_folder_is_as_new_as_the_newest_entry_whoever_committed_it(two: Two) -> None:
    await two.play(COMMITS[:-1])
    before = [await one.files.read(RUN_ID, "trace.jsonl") for one in (two.a, two.b)]
    await two.a.commits(COMMITS[-1])
    after = [await one.files.read(RUN_ID, "trace.jsonl") for one in (two.a, two.b)]
    assert before[0] == before[1] != after[0] == after[1]
    for one in (two.a, two.b):
        assert verify(entries_of(worked_example()), one.workspace, RUN_ID) == []


async def test_a_folder_is_listed_with_its_artifacts_by_who_never_saw_the_run(two: Two) -> None:
    for commit in COMMITS:
        await two.a.commits(commit)
    listing = await two.b.files.files(RUN_ID)
    assert listing
    assert ARTIFACTS.keys() <= {file.path for file in listing.files}


async def test_nobody_is_shown_a_folder_that_could_not_be_brought_up_to_date(two: Two) -> None:
    await two.play(COMMITS)
    two.shelf.failure = TryAgain("the bus is away")
    with pytest.raises(TryAgain, match="the files of run"):
        await two.b.files.files(RUN_ID)
    two.shelf.failure = None
    assert await two.b.files.files(RUN_ID)


@dataclass
class Receiver:
    """Of the traces of all agents."""

    got: list[Span] = field(default_factory=list)

    def take(self, batch: Sequence[Span]) -> bool:
        self.got.extend(batch)
        return True


class Mark:
    def note(self) -> None:
        """All was sent."""

    def noted(self) -> object:
        return NOON + timedelta(days=1)


def traces_of(one: Agent, name: str, receiver: Receiver) -> Traces:
    committed = one.store.members.entries_by
    return Traces(one.store, receiver.take, Mark(), keeps=sampler({}), member=name, committed=committed)  # type: ignore[arg-type]


async def test_each_span_is_sent_once_however_often_its_run_moves(two: Two) -> None:
    receiver = Receiver()
    traces = traces_of(two.a, "a", receiver), traces_of(two.b, "b", receiver)
    for number in range(1, len(COMMITS) + 1):
        await two.play(COMMITS[number - 1 : number]) if number % 2 else await two.b.commits(COMMITS[number - 1])
        for one in traces:
            await one.tell([RUN_ID])
            await one.finish(5)
    assert sorted(receiver.got, key=repr) == sorted(ALL, key=repr)


async def test_what_a_dead_agent_had_not_sent_its_heir_sends(two: Two) -> None:
    await two.play(COMMITS)
    receiver = Receiver()
    heir = traces_of(two.b, "b", receiver)
    await heir.tell([RUN_ID])
    await heir.finish(5)
    assert len(receiver.got) < len(ALL)
    assert await two.b.store.members.runs_moved_by("a", NOON) == [RUN_ID]
    await heir.tell([RUN_ID], "a")
    await heir.finish(5)
    assert sorted(receiver.got, key=repr) == sorted(ALL, key=repr)
