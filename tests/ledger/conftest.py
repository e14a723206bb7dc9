"""Runs every test of a port with each kind of store: embedded, and shared on a server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.ledger.kit import RUN_BYTES, Opener, Stores, embedded, joined, ledger_stream


@pytest.fixture(params=["sqlite", "bus"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "sqlite":
        return embedded(tmp_path)
    link = request.getfixturevalue("link")

    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        await ledger_stream(link)
        async with joined(tmp_path, link, "a", run_bytes=RUN_BYTES) as stores:
            yield stores

    return opened


@pytest.fixture
async def stores(opener: Opener) -> AsyncIterator[Stores]:
    async with opener() as opened:
        yield opened
