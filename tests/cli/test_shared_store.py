"""Several agents' store: `agentic migrate` moves runs into its stream and back, and commands look at it by a copy."""

import json
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
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from groundwork.service.foundations import Ground
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import store_id
from schemas import subjects
from tests.cli.calling import Called, called
from tests.cli.examined import configured, found
from tests.kit.runs import accepted, run_id, wake_of, whole_run
from tests.ports.stores import stored

MANY = 30


@pytest.fixture
async def config(tmp_path: Path, nats_server: EmbeddedNats) -> Path:
    """Of one agent, with runs at every point of their way, on a bus that is set up for several."""
    config = configured(tmp_path, nats_server.url)
    assert (await called("setup", "--config", config, "--max-gib", "0.1", "--shared")).code == 0
    loaded = load(config, {})
    KeyRing.open(loaded.keys_path())
    async with SqliteStore.open(loaded.store) as store:
        for number in range(1, MANY):
            await stored(store, whole_run(number, steps=number % 4 + 1)[: -(number % 3) or None])
        await store.accept(wake_of(accepted(MANY)), accepted(MANY))
    return config


async def moved(config: Path, source: str, target: str, *more: str | Path) -> Called:
    return await called("migrate", "--from", source, "--to", target, "--config", config, "--json", *more)


async def test_runs_go_into_the_stream_and_back_as_they_were_and_no_store_is_begun_with_while_they_are_elsewhere(
    config: Path, link: NatsLink, tmp_path: Path
) -> None:
    loaded, log = load(config, {}), log_of_runs(link)
    there = await moved(config, "sqlite", "jetstream")
    assert (there.code, there.document["runs"]) == (0, MANY), there
    await refuse_unless_here(log)
    role = Role(bucket=subjects.LEASE_BUCKET, key="agent", command="")
    lease = Lease(link, role, Owner.here(loaded.store, ttl_s=10))
    await lease.acquire()
    ground = Ground(link=link, lease=lease, predecessor=None, folder=loaded.store)
    with pytest.raises(Misconfigured, match=r"set agent\.store: jetstream"):
        async with open_store(loaded, ground, lambda _: None):
            pass
    await lease.release()
    back = await moved(config, "jetstream", "sqlite", "--sqlite", tmp_path / "back")
    assert (back.code, back.document["runs"]) == (0, MANY), back
    async with open_database(loaded.store) as old, open_database(tmp_path / "back") as new:
        assert await differences(old, new) == []
    with pytest.raises(Misconfigured, match="were moved to the SQLite store"):
        await refuse_unless_here(log)


async def test_a_move_that_was_interrupted_bars_both_stores_and_is_finished_by_the_next(
    config: Path, link: NatsLink
) -> None:
    log = log_of_runs(link)
    await put_mark(log, Mark(state="coming", store=store_id(load(config, {}).store)), Mark())
    with pytest.raises(Misconfigured, match="not finished"):
        await refuse_unless_here(log)
    finished = await moved(config, "sqlite", "jetstream")
    assert (finished.code, finished.document["runs"]) == (0, MANY)
    await refuse_unless_here(log)
    again = await moved(config, "sqlite", "jetstream")
    assert (again.code, again.document["entries"]) == (0, 0)


async def test_a_stream_of_another_store_agents_at_work_and_a_bus_for_one_are_refused_and_nothing_is_moved(
    config: Path, link: NatsLink, tmp_path: Path
) -> None:
    log = log_of_runs(link)
    mark = await put_mark(log, Mark(state="here", store="store_of_others"), Mark())
    refused = await moved(config, "sqlite", "jetstream")
    assert (refused.code, "is that of the store store_of_others" in refused.error["message"]) == (78, True)
    assert "stream rm" not in refused.error["message"]
    mark = await put_mark(log, Mark(state="left", store="store_of_others"), mark)
    for way in (("sqlite", "jetstream"), ("jetstream", "sqlite")):
        refused = await moved(config, *way)
        assert (refused.code, "start the agent of that store" in refused.error["message"]) == (78, True)
    (tmp_path / "other").mkdir()
    role = Role(bucket=subjects.LEASE_BUCKET, key=subjects.member("agent", "store_1"), command="")
    async with hold(Lease(link, role, Owner.here(tmp_path / "other", ttl_s=10)), link):
        refused = await moved(config, "sqlite", "jetstream")
    assert (refused.code, "agents are at work" in refused.error["message"]) == (78, True)
    await link.jetstream.delete_stream(subjects.STREAM_RUNS)
    refused = await moved(config, "sqlite", "jetstream")
    assert (refused.code, "`agentic setup --shared`" in refused.error["message"]) == (78, True)


async def test_commands_look_at_the_stream_by_a_copy_of_it_and_name_what_no_agent_wrote_there(
    config: Path, link: NatsLink, tmp_path: Path
) -> None:
    assert (await moved(config, "sqlite", "jetstream")).code == 0
    several, one, place = tmp_path / "several.yaml", tmp_path / "one.yaml", tmp_path / "it.backup"
    settings = json.loads(config.read_text())  # noqa: ASYNC240
    keys_file = {"keys_file": f"{settings['agent']['store']}.keys"}
    for made, store in (
        (several, {"store": "jetstream", "cache": str(tmp_path / "copy")}),
        (one, {"store": str(tmp_path / "one")}),
    ):
        made.write_text(json.dumps(settings | {"agent": settings["agent"] | keys_file | store}))

    async def done(*arguments: str | Path, config: Path = several) -> Called:
        return await called(*arguments, "--config", config, "--json")

    told = await done("verify", "--all")
    assert (told.code, told.document["runs"], told.document["flaws"]) == (0, MANY, []), told
    assert ((await done("rebuild", run_id(5))).code, (await done("verify", run_id(5))).code) == (0, 0)
    checks = await found(several)
    assert (checks["streams"].mark, checks["cache"].mark, "database" in checks) == ("ok", "ok", False), checks
    backed_up = await done("backup", place)
    assert (backed_up.code, backed_up.document["about"]["agent"]["runs"]) == (0, MANY), backed_up
    refused = await done("restore", place)
    assert (refused.code, "nothing is overwritten" in refused.err) == (78, True)
    restored = await done("restore", place, config=one)
    assert (restored.code, restored.document["runs"]) == (0, MANY), restored
    assert (restored.document["calls"], restored.document["stopped"]) == (None, True), "what was written is not known"
    whole = (await done("verify", "--all", config=one)).document
    assert (whole["runs"], {flaw["place"] for flaw in whole["flaws"]}) == (MANY, set()), whole
    forged = b'{"v": 1, "by": "somebody"}'
    await link.publish(subjects.stored_run(run_id(5)), forged, msg_id="forged", headers={})
    told = await done("verify", "--all")
    assert told.code == 1
    assert [flaw["text"] for flaw in told.document["flaws"] if run_id(5) in flaw["text"]], told
