"""Every test of a port runs once for each kind of store in `OPENERS`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.stores import Stores
from tests.ledger.openers import Opener, embedded, shared

OPENERS = {"sqlite": embedded, "shared": shared}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return OPENERS[request.param](tmp_path)


@pytest.fixture
async def stores(opener: Opener) -> AsyncIterator[Stores]:
    async with opener() as opened:
        yield opened


@pytest.fixture
def ledger(stores: Stores) -> SqliteLedger:
    return stores.ledger
