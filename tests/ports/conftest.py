"""Every test of a run store runs once for each carrier: SQLite, and a shared log on one server and on three."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agent_service.store.runs import RunStore
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.settings import NatsSettings
from tests.kit.cluster import Cluster
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.ports.stores import Opener, on_jetstream

ON_JETSTREAM = {"R1": "shared_server", "R3": "shared_cluster"}


@pytest.fixture(params=["sqlite", *ON_JETSTREAM])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "sqlite":
        return partial(RunStore.open, tmp_path)
    server: EmbeddedNats | Cluster = request.getfixturevalue(ON_JETSTREAM[request.param])
    if isinstance(server, Cluster):
        return on_jetstream(tmp_path, server.settings, 3)
    return on_jetstream(tmp_path, NatsSettings(urls=(server.url,)), 1)


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[RunStore]:
    async with opener() as store:
        yield store


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
async def a(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path) as member:
        yield member


@pytest.fixture
async def b(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path) as member:
        yield member
