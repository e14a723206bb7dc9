"""The stores of a gateway under test: how each kind is opened, and opened again."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from ductile_gateway.store import open_store
from ductile_gateway.store.seals import Seals
from ductile_gateway.store.stores import Stores
from groundwork.service.key_ring import KeyRing
from tests.ledger.crowd import Crowd

Opener = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the same stores each time it is called; they are closed in between."""
RUN_BYTES = 100


def embedded(folder: Path) -> Opener:
    seals = Seals(KeyRing.fresh())

    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        async with open_store(folder) as file:
            yield Stores.embedded(file, seals, folder=folder, run_bytes=RUN_BYTES)

    return opened


def shared(folder: Path) -> Opener:
    crowd = Crowd(folder)
    return lambda: crowd.gateway("a", run_bytes=RUN_BYTES)
