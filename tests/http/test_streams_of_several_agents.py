"""Who follows runs at one of several agents is pushed what any of them commits, as if this one had."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest

from agent_service.api.event_streams import EventStream, EventStreams
from agent_service.api.feed import Feed
from agent_service.journal import Commit, Entry
from agent_service.moments import tell
from agent_service.store.sqlite import SqliteStore
from tests.http.house import overheard
from tests.kit.runs import wake_of, whole_run

WITHIN_S = 5.0
NEVER_S = 3600.0
"""So that nothing comes because somebody looks from time to time."""


class ReadStore(SqliteStore):
    """Counts how often journals are read."""

    reads = 0

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        self.reads += 1
        return await super().entries(run_id, after, limit)


class Place:
    """One of several agents, as far as its event streams go."""

    def __init__(self, store: ReadStore) -> None:
        self.store = store
        self.feed = Feed(store, look_every_s=NEVER_S)
        self.streams = EventStreams(self.feed, store, store)

    async def commits(self, commit: Commit) -> None:
        """An entry of this agent's own."""
        before = await self.store.load(commit.entry.run_id)
        await self._stored(commit)
        self.feed.tell(tell(before.state if before else None, commit.entry))

    async def overhears(self, commit: Commit) -> None:
        """One of another's."""
        await self._stored(commit)
        self.feed.elsewhere(overheard(commit, self.store.newest()))

    async def _stored(self, commit: Commit) -> None:
        if commit.entry.seq == 1:
            await self.store.accept(wake_of(commit), commit)
        else:
            await self.store.commit(commit)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with ReadStore.open(tmp_path) as store:
        yield Place(store)


async def ids(stream: EventStream, many: int) -> list[int]:
    """Of the first events of a stream."""
    told: list[int] = []
    chunks = aiter(stream.body_iterator)
    while len(told) < many:
        told += await more(chunks)
    return told


async def more(chunks: AsyncIterator[str | bytes | memoryview]) -> list[int]:
    """The ids of the events that come next."""
    chunk = await asyncio.wait_for(anext(chunks), WITHIN_S)
    assert isinstance(chunk, bytes)
    return [int(line.removeprefix("id: ")) for line in chunk.decode().split("\n") if line.startswith("id: ")]


async def test_a_run_that_moves_between_agents_is_told_without_a_gap(place: Place) -> None:
    run = whole_run(steps=8)
    await place.commits(run[0])
    reader = asyncio.create_task(ids(await place.streams.follow_run(run[0].entry.run_id, None), len(run)))
    await asyncio.sleep(0)
    for commit, happens in zip(run[1:], cycle((place.commits, place.overhears, place.overhears)), strict=False):
        await happens(commit)
    assert await reader == [commit.entry.seq for commit in run]


async def test_what_another_agent_commits_is_told_at_its_position_in_the_journal(place: Place) -> None:
    commits = [commit for pair in zip(whole_run(1), whole_run(2), strict=True) for commit in pair]
    reader = asyncio.create_task(ids(await place.streams.follow_all(0), len(commits)))
    await asyncio.sleep(0)
    for commit, happens in zip(commits, cycle((place.overhears, place.commits)), strict=False):
        await happens(commit)
    assert await reader == list(range(1, len(commits) + 1))


async def test_once_a_run_is_known_the_journal_is_not_read_for_each_entry(place: Place) -> None:
    run = whole_run(steps=9)
    await place.overhears(run[0])
    stream = await place.streams.follow_run(run[0].entry.run_id, None)
    chunks = aiter(stream.body_iterator)
    assert await more(chunks) == [1]
    for commit in run[1:]:
        await place.overhears(commit)
        assert await more(chunks) == [commit.entry.seq]
    assert place.store.reads == 1
