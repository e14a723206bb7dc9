"""An agent that may have lost its bus takes nothing new, and writes nothing at all once another has the bus."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_service.store.sqlite import SqliteStore
from groundwork.nats.lease import Taken
from groundwork.service.errors import Failure, TryAgain
from tests.kit.runs import accepted, started, wake_of

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


@pytest.mark.parametrize("error", [AWAY, TAKEN])
async def test_a_new_run_is_not_stored_unless_the_bus_is_ours_for_sure(
    store: SqliteStore, lease: Lease, error: Failure
) -> None:
    commit, lease.error = accepted(), error
    with pytest.raises(TryAgain, match=str(error)):
        await store.accept(wake_of(commit), commit)
    assert await store.load(commit.state.run_id) is None


@pytest.mark.parametrize(("error", "entries"), [(None, 2), (AWAY, 2), (TAKEN, 1)])
async def test_a_run_that_is_here_goes_on_until_another_agent_has_the_bus(
    store: SqliteStore, lease: Lease, error: Failure | None, entries: int
) -> None:
    commit = accepted()
    await store.accept(wake_of(commit), commit)
    lease.error = error
    if error is TAKEN:
        with pytest.raises(TryAgain, match=str(TAKEN)):
            await store.commit(started(commit))
    else:
        await store.commit(started(commit))
    assert len(await store.entries(commit.state.run_id)) == entries
