"""`agentic migrate` moves the runs of one agent into the stream that several share, and back, each entry as it was."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_service.settings import load
from agent_service.store.opening import log_of_runs, open_store
from agent_service.store.shared_log.marks import Mark, put_mark, refuse_unless_here
from agent_service.store.shared_log.moving import differences
from agent_service.store.sql.database import open_database
from agent_service.store.sqlite import SqliteStore
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import Lease, Owner, Role, hold
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from groundwork.service.foundations import Ground
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import store_id
from schemas import subjects
from tests.cli.calling import Called, agentic
from tests.cli.examined import configured
from tests.kit.runs import accepted, wake_of, whole_run
from tests.ports.stores import stored

MANY = 30


@pytest.fixture
def config(tmp_path: Path, nats_server: EmbeddedNats) -> Path:
    made = configured(tmp_path, nats_server.url)
    assert agentic("setup", "--config", made, "--max-gib", "0.1", "--shared").code == 0
    return made


@pytest.fixture
async def link(nats_server: EmbeddedNats) -> AsyncIterator[NatsLink]:
    link = await connect(NatsSettings(urls=(nats_server.url,)))
    yield link
    await link.close()


async def filled(config: Path) -> Path:
    """The folder of its store, with runs at every point of their way."""
    loaded = load(config, {})
    KeyRing.open(loaded.keys_path())
    async with SqliteStore.open(loaded.store) as store:
        for number in range(1, MANY):
            await stored(store, whole_run(number, steps=number % 4 + 1)[: -(number % 3) or None])
        await store.accept(wake_of(accepted(MANY)), accepted(MANY))
    return loaded.store


def moved(config: Path, source: str, target: str, *more: str | Path) -> Called:
    return agentic("migrate", "--from", source, "--to", target, "--config", config, "--json", *more)


async def test_runs_go_into_the_stream_and_back_and_each_entry_is_what_it_was(config: Path, tmp_path: Path) -> None:
    folder = await filled(config)
    there = moved(config, "sqlite", "jetstream")
    assert (there.code, there.document["runs"]) == (0, MANY), there
    back = moved(config, "jetstream", "sqlite", "--sqlite", tmp_path / "back")
    assert (back.code, back.document["runs"]) == (0, MANY), back
    async with open_database(folder) as old, open_database(tmp_path / "back") as new:
        assert await differences(old, new) == []


async def _ground(link: NatsLink, folder: Path) -> Ground:
    lease = Lease(link, Role(bucket=subjects.LEASE_BUCKET, key="agent", command=""), Owner.here(folder, ttl_s=10))
    await lease.acquire()
    return Ground(link=link, lease=lease, predecessor=None, folder=folder)


async def test_neither_store_is_begun_with_while_its_runs_are_elsewhere(config: Path, link: NatsLink) -> None:
    folder = await filled(config)
    log = log_of_runs(link)
    assert moved(config, "sqlite", "jetstream").code == 0
    await refuse_unless_here(log)
    ground = await _ground(link, folder)
    with pytest.raises(Misconfigured, match=r"set agent\.store: jetstream"):
        async with open_store(load(config, {}), ground, lambda _: None):
            pass
    await ground.lease.release()
    assert moved(config, "jetstream", "sqlite").code == 0
    with pytest.raises(Misconfigured, match="were moved to the SQLite store"):
        await refuse_unless_here(log)


async def test_a_move_that_was_interrupted_bars_both_stores_and_is_finished_by_the_next(
    config: Path, link: NatsLink
) -> None:
    folder = await filled(config)
    log = log_of_runs(link)
    await put_mark(log, Mark(state="coming", store=store_id(folder)), Mark())
    with pytest.raises(Misconfigured, match="not finished"):
        await refuse_unless_here(log)
    finished = moved(config, "sqlite", "jetstream")
    assert (finished.code, finished.document["runs"]) == (0, MANY)
    await refuse_unless_here(log)
    again = moved(config, "sqlite", "jetstream")
    assert (again.code, again.document["entries"]) == (0, 0)


async def test_a_stream_with_runs_of_another_store_is_refused_and_never_to_be_removed(
    config: Path, link: NatsLink
) -> None:
    await filled(config)
    log = log_of_runs(link)
    mark = await put_mark(log, Mark(state="here", store="store_of_others"), Mark())
    refused = moved(config, "sqlite", "jetstream")
    assert (refused.code, "is that of the store store_of_others" in refused.error["message"]) == (78, True)
    assert "stream rm" not in refused.error["message"]
    await put_mark(log, Mark(state="left", store="store_of_others"), mark)
    for way in (("sqlite", "jetstream"), ("jetstream", "sqlite")):
        refused = moved(config, *way)
        assert (refused.code, "start the agent of that store" in refused.error["message"]) == (78, True)


async def test_on_a_bus_that_is_not_set_up_for_several_it_is_said_what_to_do(config: Path, link: NatsLink) -> None:
    await filled(config)
    await link.jetstream.delete_stream(subjects.STREAM_RUNS)
    refused = moved(config, "sqlite", "jetstream")
    assert (refused.code, "`agentic setup --shared`" in refused.error["message"]) == (78, True)


async def test_nothing_is_moved_while_an_agent_lives(config: Path, link: NatsLink, tmp_path: Path) -> None:
    await filled(config)
    (tmp_path / "other").mkdir()
    role = Role(bucket=subjects.LEASE_BUCKET, key=subjects.member("agent", "store_1"), command="")
    async with hold(Lease(link, role, Owner.here(tmp_path / "other", ttl_s=10)), link):
        refused = await asyncio.to_thread(moved, config, "sqlite", "jetstream")
    assert (refused.code, "agents are at work" in refused.error["message"]) == (78, True)
    assert moved(config, "sqlite", "jetstream").code == 0
