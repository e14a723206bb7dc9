"""Every test of a port runs once for each kind of store: embedded, and shared in memory and on a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.stores import Stores
from tests.ledger.openers import Opener, embedded, in_memory, on_a_bus


@pytest.fixture(params=["sqlite", "memory", "bus"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    match request.param:
        case "sqlite":
            return embedded(tmp_path)
        case "memory":
            return in_memory(tmp_path)
    return on_a_bus(tmp_path, request.getfixturevalue("link"))


@pytest.fixture
async def stores(opener: Opener) -> AsyncIterator[Stores]:
    async with opener() as opened:
        yield opened


@pytest.fixture
def ledger(stores: Stores) -> SqliteLedger:
    return stores.ledger
