"""Several agents' store: `agentic migrate` moves runs into its stream and back, and commands look at it by a copy."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from agent_service.bus.topology import topology
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
from groundwork.nats.topology import create_missing
from groundwork.service.errors import Misconfigured
from groundwork.service.foundations import Ground
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import store_id
from schemas import subjects
from tests.cli.calling import Called, agentic
from tests.cli.examined import configured, found
from tests.kit.runs import accepted, run_id, wake_of, whole_run
from tests.kit.struck import struck
from tests.ports.stores import stored

MANY = 30


@pytest.fixture
async def config(tmp_path: Path, nats_server: EmbeddedNats) -> Path:
    """Of one agent, with runs at every point of their way, on a bus that is set up for several."""
    return await alone(tmp_path, nats_server.url)


async def alone(folder: Path, url: str) -> Path:
    config = configured(folder, url)
    assert agentic("setup", "--config", config, "--max-gib", "0.1", "--shared").code == 0
    loaded = load(config, {})
    KeyRing.open(loaded.keys_path())
    async with SqliteStore.open(loaded.store) as store:
        for number in range(1, MANY):
            await stored(store, whole_run(number, steps=number % 4 + 1)[: -(number % 3) or None])
        await store.accept(wake_of(accepted(MANY)), accepted(MANY))
    return config


@pytest.fixture
async def link(nats_server: EmbeddedNats) -> AsyncIterator[NatsLink]:
    async with linked(NatsSettings(urls=(nats_server.url,))) as link:
        yield link


@asynccontextmanager
async def linked(bus: NatsSettings) -> AsyncIterator[NatsLink]:
    link = await connect(bus)
    try:
        yield link
    finally:
        await link.close()


def moved(config: Path, source: str, target: str, *more: str | Path) -> Called:
    return agentic("migrate", "--from", source, "--to", target, "--config", config, "--json", *more)


async def test_runs_go_into_the_stream_and_back_and_each_entry_is_what_it_was(config: Path, tmp_path: Path) -> None:
    there = moved(config, "sqlite", "jetstream")
    assert (there.code, there.document["runs"]) == (0, MANY), there
    back = moved(config, "jetstream", "sqlite", "--sqlite", tmp_path / "back")
    assert (back.code, back.document["runs"]) == (0, MANY), back
    async with open_database(load(config, {}).store) as old, open_database(tmp_path / "back") as new:
        assert await differences(old, new) == []


async def test_neither_store_is_begun_with_while_its_runs_are_elsewhere(config: Path, link: NatsLink) -> None:
    loaded, log = load(config, {}), log_of_runs(link)
    assert moved(config, "sqlite", "jetstream").code == 0
    await refuse_unless_here(log)
    role = Role(bucket=subjects.LEASE_BUCKET, key="agent", command="")
    lease = Lease(link, role, Owner.here(loaded.store, ttl_s=10))
    await lease.acquire()
    ground = Ground(link=link, lease=lease, predecessor=None, folder=loaded.store)
    with pytest.raises(Misconfigured, match=r"set agent\.store: jetstream"):
        async with open_store(loaded, ground, lambda _: None):
            pass
    await lease.release()
    assert moved(config, "jetstream", "sqlite").code == 0
    with pytest.raises(Misconfigured, match="were moved to the SQLite store"):
        await refuse_unless_here(log)


async def test_a_move_that_was_interrupted_bars_both_stores_and_is_finished_by_the_next(
    config: Path, link: NatsLink
) -> None:
    log = log_of_runs(link)
    await put_mark(log, Mark(state="coming", store=store_id(load(config, {}).store)), Mark())
    with pytest.raises(Misconfigured, match="not finished"):
        await refuse_unless_here(log)
    finished = moved(config, "sqlite", "jetstream")
    assert (finished.code, finished.document["runs"]) == (0, MANY)
    await refuse_unless_here(log)
    again = moved(config, "sqlite", "jetstream")
    assert (again.code, again.document["entries"]) == (0, 0)


async def test_a_stream_of_another_store_agents_at_work_and_a_bus_for_one_are_refused_and_nothing_is_moved(
    config: Path, link: NatsLink, tmp_path: Path
) -> None:
    log = log_of_runs(link)
    mark = await put_mark(log, Mark(state="here", store="store_of_others"), Mark())
    refused = moved(config, "sqlite", "jetstream")
    assert (refused.code, "is that of the store store_of_others" in refused.error["message"]) == (78, True)
    assert "stream rm" not in refused.error["message"]
    mark = await put_mark(log, Mark(state="left", store="store_of_others"), mark)
    for way in (("sqlite", "jetstream"), ("jetstream", "sqlite")):
        refused = moved(config, *way)
        assert (refused.code, "start the agent of that store" in refused.error["message"]) == (78, True)
    (tmp_path / "other").mkdir()
    role = Role(bucket=subjects.LEASE_BUCKET, key=subjects.member("agent", "store_1"), command="")
    async with hold(Lease(link, role, Owner.here(tmp_path / "other", ttl_s=10)), link):
        refused = await asyncio.to_thread(moved, config, "sqlite", "jetstream")
    assert (refused.code, "agents are at work" in refused.error["message"]) == (78, True)
    await link.jetstream.delete_stream(subjects.STREAM_RUNS)
    refused = moved(config, "sqlite", "jetstream")
    assert (refused.code, "`agentic setup --shared`" in refused.error["message"]) == (78, True)


@contextmanager
def shared(folder: Path) -> Iterator[Path]:
    """The configuration of an agent that shares its store with others: runs of one agent were moved there."""
    nats = EmbeddedNats(folder / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(nats.start())
        config = runner.run(alone(folder, nats.url))
        assert moved(config, "sqlite", "jetstream").code == 0
        settings = json.loads(config.read_text())
        store = settings["agent"]["store"]
        settings["agent"] |= {"store": "jetstream", "cache": str(folder / "copy"), "keys_file": f"{store}.keys"}
        made = folder / "shared.yaml"
        made.write_text(json.dumps(settings))
        yield made
        runner.run(nats.stop())


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For tests that look, and change nothing of the stream."""
    with shared(tmp_path_factory.mktemp("shared")) as made:
        yield made


async def test_all_runs_are_verified_fact_by_fact_and_a_folder_is_written_from_the_stream(several: Path) -> None:
    told = agentic("verify", "--all", "--config", several, "--json")
    assert (told.code, told.document["runs"], told.document["flaws"]) == (0, MANY, []), told
    assert agentic("rebuild", run_id(5), "--config", several).code == 0
    assert agentic("verify", run_id(5), "--config", several).code == 0
    checks = await found(several)
    assert (checks["streams"].mark, checks["cache"].mark, "database" in checks) == ("ok", "ok", False), checks


def test_what_no_agent_wrote_into_the_stream_is_named_with_its_run(tmp_path: Path) -> None:
    async def forge(bus: NatsSettings) -> None:
        async with linked(bus) as link:
            body = b'{"v": 1, "by": "somebody"}'
            await link.publish(subjects.stored_run(run_id(5)), body, msg_id="forged", headers={})

    with shared(tmp_path) as config:
        asyncio.run(forge(bus_of(config)))
        told = agentic("verify", "--all", "--config", config, "--json")
    assert told.code == 1
    assert [flaw["text"] for flaw in told.document["flaws"] if run_id(5) in flaw["text"]], told


def test_it_is_backed_up_as_it_is_in_the_stream_and_restored_for_one_agent(several: Path, tmp_path: Path) -> None:
    place, one = tmp_path / "it.backup", tmp_path / "one.yaml"
    made = agentic("backup", place, "--config", several, "--json")
    assert (made.code, made.document["about"]["agent"]["runs"]) == (0, MANY), made
    settings = json.loads(several.read_text())
    settings["agent"]["store"] = str(tmp_path / "one")
    one.write_text(json.dumps(settings))
    refused = agentic("restore", place, "--config", several)
    assert (refused.code, "nothing is overwritten" in refused.err) == (78, True)
    told = agentic("restore", place, "--config", one, "--json")
    assert (told.code, told.document["runs"]) == (0, MANY), told
    assert (told.document["calls"], told.document["stopped"]) == (None, True), "nobody knows what they have written"
    verdict = agentic("verify", "--all", "--config", one, "--json")
    assert (verdict.document["runs"], {flaw["place"] for flaw in verdict.document["flaws"]}) == (MANY, set()), verdict


AT_A_RESTORE = (
    "agent_service.store.shared_log.moving:IntoLog._append",
    "agent_service.store.shared_log.moving:IntoLog._write_the_rest",
    "agent_service.cli.archive.migrating:said_to_come",
)


@pytest.mark.timeout(400)
def test_a_restore_into_the_stream_that_is_killed_bars_agents_until_it_is_finished(
    several: Path, tmp_path: Path
) -> None:
    place = tmp_path / "it.backup"
    assert agentic("backup", place, "--config", several).code == 0
    with another(several, tmp_path / "other") as other, struck(tmp_path, *AT_A_RESTORE) as command:
        for _ in command.strikes("restore", place, "--config", other):
            why = asyncio.run(barred(bus_of(other)))
            assert not why or "run `agentic restore FILE --backup" in why
            assert command.run("restore", place, "--config", other) in ((0,) if why else (0, 78))
            assert asyncio.run(barred(bus_of(other))) == ""
            asyncio.run(remade(bus_of(other)))
        verdict = agentic("verify", "--all", "--config", other, "--json")
        assert (verdict.document["runs"], verdict.document["flaws"]) == (MANY, []), verdict


@contextmanager
def another(config: Path, folder: Path) -> Iterator[Path]:
    """The configuration of an agent with the same keys on a bus of its own, on which nothing is."""
    nats = EmbeddedNats(folder / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(nats.start())
        settings = json.loads(config.read_text())
        settings["nats"]["urls"] = [nats.url]
        settings["agent"] |= {"cache": str(folder / "copy"), "workspaces": str(folder / "workspaces")}
        made = folder / "shared.yaml"
        made.write_text(json.dumps(settings))
        try:
            runner.run(remade(bus_of(made)))
            yield made
        finally:
            runner.run(nats.stop())


def bus_of(config: Path) -> NatsSettings:
    return NatsSettings(**json.loads(config.read_text())["nats"])


async def remade(bus: NatsSettings) -> None:
    """With a stream in which nothing is."""
    async with linked(bus) as link:
        with suppress(NotFoundError):
            await link.jetstream.delete_stream(subjects.STREAM_RUNS)
        await create_missing(link, topology(max_gib=0.1, shared=True))


async def barred(bus: NatsSettings) -> str:
    """Why no agent begins on it."""
    async with linked(bus) as link:
        try:
            await refuse_unless_here(log_of_runs(link))
        except Misconfigured as error:
            return str(error)
    return ""
