"""Run stores under test: openers, and helpers for any of them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from agent_service.bus.topology import topology
from agent_service.run.journal import Commit, Run
from agent_service.store.runs import RunStore
from agent_service.store.shared import log_of_runs, open_shared
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from schemas import subjects
from tests.kit.cluster import delete
from tests.kit.runs import DIGEST

Opener = Callable[[], AbstractAsyncContextManager[RunStore]]
"""Opens the same store each time it is called; it is closed in between."""


def on_jetstream(folder: Path, settings: NatsSettings, replicas: int) -> Opener:
    """A shared store whose log is a stream, which is empty at first. The copy stays from one time to the next."""
    made: list[str] = []

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[RunStore]:
        async with connect(settings, "test") as link:
            if not made:
                await anew(link, replicas)
                made.append(subjects.STREAM_RUNS)
            async with open_shared(folder, log_of_runs(link)) as store:
                yield store

    return opened


async def anew(link: NatsLink, replicas: int) -> None:
    await delete(link, subjects.STREAM_RUNS)
    wanted = topology(replicas=replicas, max_gib=1.0, shared=True)
    await set_up(link, tuple(one for one in wanted if one.stream == subjects.STREAM_RUNS))


async def stored(store: RunStore, commits: Sequence[Commit]) -> Commit:
    await store.accept(commits[0], DIGEST)
    for commit in commits[1:]:
        await store.commit(commit)
    await store.caught_up()
    return commits[-1]


async def undispatched(store: RunStore) -> list[tuple[str, int, int]]:
    """By run: the entry that everything is dispatched up to, and the newest entry."""
    return [(run_id, seqs[0] - 1, seqs[-1]) for run_id, seqs in await store.undispatched(100)]


def as_loaded(commit: Commit) -> Run:
    return Run(state=commit.state, head=commit.entry.hash)
