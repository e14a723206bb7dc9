"""Every test of a port runs once for each kind of store: embedded, and shared in memory and on a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.store.stores import Stores
from tests.ledger.kit import Opener, embedded, in_memory, on_a_bus


@pytest.fixture(params=["sqlite", "memory", "bus"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "bus":
        return on_a_bus(tmp_path, request.getfixturevalue("link"))
    return embedded(tmp_path) if request.param == "sqlite" else in_memory(tmp_path)


@pytest.fixture
async def stores(opener: Opener) -> AsyncIterator[Stores]:
    async with opener() as opened:
        yield opened
