"""An agent that may have lost its bus takes nothing new, and writes nothing at all once another has the bus."""

import pytest

from agent_service.errors import TryAgain
from agent_service.store.owned import OwnedStore
from groundwork.nats.lease import Taken
from groundwork.service.errors import Failure
from tests.kit.fakes import MemoryStore
from tests.kit.runs import accepted, started, wake_of

AWAY = TryAgain("the bus cannot be asked")
TAKEN = Taken("another agent has taken this bus over")


def owned(store: MemoryStore, error: Failure) -> OwnedStore:
    async def held() -> None:
        raise error

    return OwnedStore(store, held)


@pytest.mark.parametrize("error", [AWAY, TAKEN])
async def test_a_new_run_is_not_stored_unless_the_bus_is_ours_for_sure(error: Failure) -> None:
    store, commit = MemoryStore(), accepted()
    with pytest.raises(TryAgain, match=str(error)):
        await owned(store, error).accept(wake_of(commit), commit)
    assert await store.load(commit.state.run_id) is None


async def test_a_run_that_is_here_goes_on_while_the_bus_is_away() -> None:
    store, commit = MemoryStore(), accepted()
    await store.accept(wake_of(commit), commit)
    await owned(store, AWAY).commit(started(commit))
    assert len(await store.entries(commit.state.run_id)) == 2


async def test_nothing_is_written_once_another_agent_has_the_bus() -> None:
    store, commit = MemoryStore(), accepted()
    await store.accept(wake_of(commit), commit)
    with pytest.raises(TryAgain, match=str(TAKEN)):
        await owned(store, TAKEN).commit(started(commit))
    assert len(await store.entries(commit.state.run_id)) == 1
