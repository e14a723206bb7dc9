"""A shared store: runs move into its stream and back by an archive, and commands read a copy of it."""

import json
from pathlib import Path

import pytest

from agent_service.app import open_store
from agent_service.bus.topology import ROLE
from agent_service.settings import load
from agent_service.store.messages import ROW
from agent_service.store.moving import MoveMarker, require_runs_here, write_marker
from agent_service.store.runs import RunStore
from agent_service.store.shared import log_of_runs
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.archive.series import Series
from groundwork.nats.lease import Lease, Owner
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import KeyRing
from groundwork.service.serving import ServiceContext, role_lease
from schemas import subjects
from tests.cli.invoke import Called, called
from tests.cli.stores import configured, found, set_section
from tests.kit.runs import run_id
from tests.ports.test_transfer import STATES, fill, rows

MANY = 3 * len(STATES)


class Store:
    """A single agent's store with runs in every state, and a shared store, on one bus."""

    def __init__(self, folder: Path, url: str) -> None:
        self.archive = folder / "all.zip"
        self.one = configured(folder, url)
        set_section(self.one, "gateway", {"store": str(folder / "gateway")})
        self.several, self.other = folder / "several.yaml", folder / "other.yaml"
        settings = json.loads(self.one.read_text())
        keys_file = {"keys_file": f"{settings['agent']['store']}.keys"}
        for made, store in (
            (self.several, {"store": "jetstream", "cache": str(folder / "copy")}),
            (self.other, {"store": str(folder / "other")}),
        ):
            made.write_text(json.dumps(settings | {"agent": settings["agent"] | keys_file | store}))
        self.folder = load(self.one, {}).store

    async def left(self, config: Path) -> Called:
        self.archive.unlink(missing_ok=True)
        return await called("export", "--all", self.archive, "--config", config, "--json")

    async def restored(self, config: Path) -> Called:
        return await called("restore", self.archive, "--config", config, "--json")


@pytest.fixture
async def store(tmp_path: Path, nats_server: EmbeddedNats) -> Store:
    made = Store(tmp_path, nats_server.url)
    assert (await called("setup", "--config", made.one, "--max-gib", "0.1", "--shared")).code == 0
    KeyRing.open(load(made.one, {}).keys_path())
    async with RunStore.open(made.folder) as filled:
        await fill(filled)
    return made


async def test_runs_of_every_state_go_into_the_stream_and_back_as_they_were_and_no_store_is_begun_with_that_they_left(
    store: Store, link: NatsLink
) -> None:
    loaded, log = load(store.one, {}), log_of_runs(link)
    before = rows(store.folder, without="position")
    assert (await store.left(store.one)).document["about"]["agent"]["runs"] == MANY
    there = await store.restored(store.several)
    assert (there.code, there.document["runs"], there.document["moved"]) == (0, MANY, True), there
    await require_runs_here(log)
    lease = Lease(link, ROLE, Owner.here(loaded.store, ttl_s=10))
    await lease.acquire()
    with pytest.raises(Misconfigured, match=r"were exported to be moved: set agent\.store .* delete .*/moved\.json"):
        async with open_store(loaded, ServiceContext(link=link, lease=lease, predecessor=None, folder=loaded.store)):
            pass
    await lease.release()
    assert (await store.left(store.several)).code == 0
    with pytest.raises(Misconfigured, match="restored nowhere, run `nats stream purge AGENTIC_RUNS"):
        await require_runs_here(log)
    back = await store.restored(store.one)
    assert (back.code, back.document["runs"]) == (0, MANY), back
    assert rows(store.folder, without="position") == before
    assert (await called("verify", "--all", "--config", store.one, "--json")).code == 0


async def test_a_restore_that_was_interrupted_bars_the_stream_and_is_finished_by_the_same_command(
    store: Store, link: NatsLink
) -> None:
    log = log_of_runs(link)
    await store.left(store.one)
    mark = await write_marker(log, MoveMarker(state="coming", archive="another"), MoveMarker())
    refused = await store.restored(store.several)
    assert (refused.code, "it has runs of another: make it anew" in refused.error["message"]) == (78, True)
    with Series(str(store.archive), "agentic").open(None) as (name, _):
        await write_marker(log, MoveMarker(state="coming", archive=name), mark)
    with pytest.raises(Misconfigured, match=f"run `agentic restore` of {name} again"):
        await require_runs_here(log)
    for command in (("export", "--all"), ("backup",)):
        refused = await called(*command, store.folder / "no.zip", "--config", store.several)
        assert (refused.code, "not finished" in refused.err) == (78, True)
    assert (await store.restored(store.several)).code == 0
    await require_runs_here(log)
    refused = await store.restored(store.several)
    assert (refused.code, "nothing is overwritten" in refused.err) == (78, True)


async def test_agents_at_work_and_a_bus_for_one_are_refused_and_the_store_is_not_left(
    store: Store, link: NatsLink, tmp_path: Path
) -> None:
    (tmp_path / "another").mkdir()
    async with role_lease(link, ROLE, Owner.here(tmp_path / "another", ttl_s=10), shared=True):
        refused = await store.left(store.one)
    assert (refused.code, "agents are at work" in refused.error["message"]) == (78, True)
    store.archive.mkdir()
    assert (await called("export", "--all", store.archive / "no" / "it.zip", "--config", store.one)).code == 78
    assert not (store.folder / "moved.json").exists()
    (store.folder / "moved.json").write_text('{"state":"elsewhere"}')
    with pytest.raises(Misconfigured, match="use the newest version"):
        await require_runs_here(store.folder)
    (store.folder / "moved.json").unlink()
    store.archive.rmdir()
    await store.left(store.one)
    await link.client.jetstream().delete_stream(subjects.STREAM_RUNS)
    refused = await store.restored(store.several)
    assert (refused.code, "`agentic setup --shared`" in refused.error["message"]) == (78, True)


async def test_commands_look_at_the_stream_by_a_copy_of_it_and_name_what_no_agent_wrote_there(
    store: Store, link: NatsLink, tmp_path: Path
) -> None:
    async def done(*arguments: str | Path, config: Path = store.several) -> Called:
        return await called(*arguments, "--config", config, "--json")

    await store.left(store.one)
    await store.restored(store.several)
    told = await done("verify", "--all")
    assert (told.code, told.document["runs"], told.document["flaws"]) == (0, MANY, []), told
    assert (await done("verify", run_id(5))).code == 0
    checks = await found(store.several)
    assert (checks["streams"].mark, checks["cache"].mark, "database" in checks) == ("ok", "ok", False), checks
    place = tmp_path / "it.zip"
    backed_up = await done("backup", place)
    assert (backed_up.code, backed_up.document["about"]["agent"]["runs"]) == (0, MANY), backed_up
    refused = await done("restore", place)
    assert (refused.code, "nothing is overwritten" in refused.err) == (78, True)
    restored = await done("restore", place, config=store.other)
    assert (restored.code, restored.document["runs"]) == (0, MANY), restored
    assert (restored.document["calls"], restored.document["stopped"]) == (None, True), "what was written is not known"
    whole = (await done("verify", "--all", config=store.other)).document
    assert (whole["runs"], {flaw["place"] for flaw in whole["flaws"]}) == (MANY, set()), whole
    forged = b'{"v": 1, "by": "somebody"}'
    for wake, number, headers in (("wake-1-2", 5, {}), ("wake-1-1", 4, {ROW: '{"v":9999}'})):
        await link.publish(subjects.stored_run(wake, run_id(number)), forged, msg_id=f"to {wake}", headers=headers)
    told = await done("verify", "--all")
    assert told.code == 1
    assert [run["run_id"] for run in told.document["flawed"]] == [run_id(5)], told
    assert (told.document["left_out"], told.document["runs"]) == ([run_id(4)], MANY - 1)
