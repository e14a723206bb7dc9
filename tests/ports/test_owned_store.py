"""An agent that may have lost its bus takes nothing new, and writes nothing at all once another has the bus."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_service.store.sqlite import SqliteStore
from groundwork.nats.leases.lease import Taken
from groundwork.service.errors import Failure, TryAgain
from tests.kit.runs import accepted, wake_of, whole_run

AWAY = TryAgain("the bus cannot be asked")
TAKEN = Taken("another agent has taken this bus over")


class Lease:
    """Held until it is said to be otherwise."""

    def __init__(self) -> None:
        self.error: Failure | None = None

    async def held(self) -> None:
        if self.error:
            raise self.error


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
async def store(tmp_path: Path, lease: Lease) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path, lease.held) as store:
        yield store


async def test_a_new_run_is_not_stored_unless_the_bus_is_ours_for_sure(store: SqliteStore, lease: Lease) -> None:
    commit = accepted()
    for lease.error in (AWAY, TAKEN):
        with pytest.raises(TryAgain, match=str(lease.error)):
            await store.accept(wake_of(commit), commit)
        assert await store.load(commit.state.run_id) is None


async def test_a_run_that_is_here_goes_on_until_another_agent_has_the_bus(store: SqliteStore, lease: Lease) -> None:
    first, *others = whole_run(1)
    await store.accept(wake_of(first), first)
    for lease.error, commit in zip((None, AWAY), others, strict=False):
        await store.commit(commit)
    lease.error = TAKEN
    with pytest.raises(TryAgain, match=str(TAKEN)):
        await store.commit(others[2])
    assert len(await store.entries(first.state.run_id)) == 3
