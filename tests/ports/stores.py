"""Run stores and archives under test: how each is opened, and what is done with any of them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from agent_service.journal import Commit, Run
from agent_service.ports import Archive, RunStore
from agent_service.store.sqlite import SqliteStore
from tests.kit.fakes import MemoryStore
from tests.kit.memory_log import MemoryLog, joined
from tests.kit.runs import wake_of


@dataclass(frozen=True, slots=True)
class Opened:
    store: RunStore
    archive: Archive


Opener = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens the same store each time it is called; it is closed in between."""


def memory(_: Path) -> Opener:
    store = MemoryStore()
    return lambda: contextlib.nullcontext(Opened(store, store))


def sqlite(folder: Path) -> Opener:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        async with SqliteStore.open(folder) as store:
            yield Opened(store, store)

    return opened


def shared_in_memory(folder: Path) -> Opener:
    """A shared store whose log is in memory; the copy begins anew each time."""
    log = MemoryLog()

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        async with joined(log, folder, "me") as member:
            yield Opened(member.store, member.store)
            await member.store.tell()

    return opened


async def stored(store: RunStore, commits: Sequence[Commit]) -> Commit:
    """Store the commits of one run, from its acceptance on; the last one is returned."""
    await store.accept(wake_of(commits[0]), commits[0])
    for commit in commits[1:]:
        await store.commit(commit)
    return commits[-1]


async def untold(store: RunStore) -> list[tuple[str, int, int]]:
    """Of each run: up to which entry all is done, and its newest entry."""
    return [(run.run_id, run.seqs[0] - 1, run.seqs[-1]) for run in await store.untold(100)]


def as_loaded(commit: Commit) -> Run:
    return Run(state=commit.state, head=commit.entry.hash)
