"""Every test of a run store or an archive runs once for each adapter in `OPENERS`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_service.ports import Archive, RunStore
from tests.ports.stores import Opened, Opener, memory, shared_in_memory, sqlite

OPENERS = {"memory": memory, "sqlite": sqlite, "shared": shared_in_memory}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return OPENERS[request.param](tmp_path)


@pytest.fixture
async def opened(opener: Opener) -> AsyncIterator[Opened]:
    async with opener() as opened:
        yield opened


@pytest.fixture
def store(opened: Opened) -> RunStore:
    return opened.store


@pytest.fixture
def archive(opened: Opened) -> Archive:
    return opened.archive
