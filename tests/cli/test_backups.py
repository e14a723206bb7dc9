"""`backup` and `restore` without an agent: what they keep, refuse and tell, also of damaged files and after kills."""

import shutil
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from agent_service.archive.restoring import restore, restore_artifacts
from agent_service.archive.verifying import verify, verify_file
from agent_service.archive.writing import backup, export
from agent_service.bus.topology import topology
from agent_service.settings import load
from agent_service.store.database import FILE
from agent_service.store.moving import require_runs_here
from agent_service.store.runs import RunStore
from agent_service.trust.proofs import sealed_head
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from groundwork.service.errors import Exit, Misconfigured, NotDone, TryAgain
from groundwork.service.keys import KeyRing
from schemas import envelope, subjects
from tests.cli.stores import (
    SHELF,
    Members,
    changed,
    contents,
    name_bus,
    named_anew,
    recorded,
    set_section,
    tampered,
)
from tests.core.cues import RUN_ID
from tests.kit.disks import fill, small_disk
from tests.kit.kill_points import kill_at_each_point
from tests.kit.runs import run_id
from tests.projections.journals import worked_example

KEYS = [f"{RUN_ID}/{path.removeprefix('artifacts/')}" for path in SHELF]


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    return await recorded(tmp_path / "here", worked_example(), SHELF)


@pytest.fixture
async def bucket(config: Path, nats_server: EmbeddedNats, link: NatsLink) -> ArtifactBucket:
    """Uploads the run's artifacts; the configuration names its bus."""
    await set_up(link, topology(max_gib=1))
    made = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    name_bus(config, nats_server.url)
    for key, content in zip(KEYS, SHELF.values(), strict=True):
        await made.put(key, content, "text/plain")
    return made


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"{tmp_path}/backups"


def lost(config: Path, *, but_keys: bool = True) -> None:
    """Deletes everything that an agent stores; the keys are also kept elsewhere."""
    for name in ("agent", "workspaces"):
        shutil.rmtree(config.parent / name, ignore_errors=True)
    if not but_keys:
        (config.parent / "agent.keys").unlink()


async def flawed_places(config: Path) -> set[str]:
    return {flaw["place"] for flaw in (await verify(RUN_ID, config)).facts["flaws"]}


async def test_what_was_backed_up_without_the_bus_has_the_artifacts_of_the_last_one_with_it(
    config: Path, bucket: ArtifactBucket, nats_server: EmbeddedNats, place: str
) -> None:
    with_them = await backup(config, place, keep=1)
    name_bus(config, "nats://127.0.0.1:9")
    without = await backup(config, place, keep=1)
    assert (without.ok, list(without.facts["left_out"])) == (False, ["gateway", "artifacts"])
    assert f"Those of agentic-{with_them.facts['backup']}.zip are in it" in without.facts["left_out"]["artifacts"]
    name_bus(config, nats_server.url)
    page, critique = KEYS
    await bucket.remove(page)
    await bucket.put(critique, b"made after that backup", "text/plain")
    lost(config)
    told = await restore(config, place)
    assert (told.facts["backup"], told.facts["artifacts"]) == (without.facts["backup"], len(KEYS))
    assert [await bucket.get(key) for key in KEYS] == [SHELF["artifacts/fetch-01.html"], b"made after that backup"]


@pytest.mark.usefixtures("bucket")
async def test_runs_that_began_or_went_on_after_the_backup_are_told_apart(
    config: Path, link: NatsLink, place: str
) -> None:
    ring = KeyRing.open(load(config, {}).keys_path())
    await backup(config, place)
    for one, seq in ((RUN_ID, 8), (RUN_ID, 9), (run_id(2), 3)):
        said = {
            envelope.RUN_ID: one,
            envelope.HEAD: sealed_head(ring, one, seq, "ab" * 32),
        }
        await link.client.jetstream().publish(subjects.COMPLETED, b"{}", headers=said)
    before = contents(config.parent / "agent")
    with pytest.raises(Misconfigured, match="a store with 1 runs, and nothing is overwritten: move it away"):
        await restore(config, place, dry_run=True)
    assert contents(config.parent / "agent") == before, "an agent may have it open"
    (config.parent / "agent" / FILE).write_bytes(b"no database" * 100)
    for command in (restore(config, place), verify(RUN_ID, config)):
        with pytest.raises(Misconfigured, match=r"cannot be read \(.*move it away and restore a backup"):
            await command
    lost(config)
    looked = await restore(config, place, dry_run=True)
    assert (looked.facts["runs"], (load(config, {}).store / FILE).exists()) == (1, False)
    told = await restore(config, place)
    assert told.facts["ended_since"] == {RUN_ID: "agent.completed was told with entry 9"}
    assert told.facts["begun_since"] == {run_id(2): "agent.completed was told with entry 3"}
    assert f"`agentic cancel {RUN_ID}`" in told.text


@pytest.mark.usefixtures("bucket")
async def test_a_full_disk_costs_no_earlier_backup_and_takes_no_export_and_with_room_the_next_is_made(
    config: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        place = str(disk)
        first = await backup(config, place)
        filler = fill(disk)
        for command in (backup(config, place), export(config, RUN_ID, disk / "it.zip")):
            with pytest.raises(TryAgain, match="no room for"):
                await command
        assert contents(disk).keys() == {f"agentic-{first.facts['backup']}.zip", "filler"}
        filler.unlink()
        await backup(config, place)
        lost(config)
        assert (await restore(config, place, backup=first.facts["backup"])).facts["runs"] == 1


async def test_what_the_bucket_lost_comes_back_from_folders_where_it_is_what_its_tool_made(
    config: Path, bucket: ArtifactBucket, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, (page, critique) = config.parent / "workspaces" / RUN_ID, KEYS
    tampered(config, "INSERT INTO gone VALUES ('deleted meanwhile', 'w', 'd', 'done', 0, 0, 0, 'a rule', NULL)")
    monkeypatch.setattr(RunStore, "with_artifacts", AsyncMock(return_value=[RUN_ID, "deleted meanwhile"]))
    await bucket.remove(page)
    whole = verify_file(Path((await backup(config, place)).facts["file"]))
    assert (whole.ok, f"! without {RUN_ID}/artifacts/fetch-01.html: neither" in whole.text) == (True, True), whole
    await bucket.put(critique, b"a better one", "text/plain")
    found = await restore_artifacts(config)
    assert (sorted(found.facts["back"]), found.facts["lost"], found.facts["runs"]) == (sorted(KEYS), {}, 2)
    assert [await bucket.get(key) for key in KEYS] == list(SHELF.values())
    for key in KEYS:
        await bucket.remove(key)
    changed, gone = (folder / path for path in SHELF)
    changed.write_text("another")
    gone.unlink()
    found = await restore_artifacts(config)
    assert (found.ok, found.facts["back"]) == (False, [])
    assert set(found.facts["lost"]) == {page, critique}
    assert await bucket.get(page) is None
    shutil.rmtree(folder)
    assert await flawed_places(config) == {*SHELF}, "they were written, and are nowhere"
    await bucket.put(page, b"another", "text/plain")
    await backup(config, place)
    lost(config)
    await restore(config, place)
    assert await flawed_places(config) == set(SHELF)


AT_A_BACKUP = ("groundwork.archive.format:ArchiveWriter.add", "groundwork.archive.format:ArchiveWriter.finish")
AT_A_RESTORE = ("agent_service.store.moving:write_marker", "agent_service.archive.restoring:_load")


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("bucket")
async def test_a_killed_backup_costs_none_before_it_and_no_agent_begins_on_the_store_of_a_killed_restore(
    config: Path, tmp_path: Path
) -> None:
    place, store = tmp_path / "backups", config.parent / "agent"
    place.mkdir()
    first = await backup(config, str(place))
    for _ in kill_at_each_point(tmp_path, AT_A_BACKUP, "backup", place, "--config", config):
        assert verify_file(Path(first.facts["file"])).ok
    lost(config)
    assert (await restore(config, str(place), backup=first.facts["backup"])).facts["runs"] == 1
    lost(config)
    barred = 0
    for _ in kill_at_each_point(tmp_path, AT_A_RESTORE, "restore", place, "--config", config):
        if (store / "moved.json").exists():
            barred += 1
            with pytest.raises(Misconfigured, match=r"not finished: run `agentic restore` of \w+ again"):
                await require_runs_here(store)
        elif "runs.db" in contents(store):
            assert await flawed_places(config) == set()
            shutil.rmtree(store)
    assert (await flawed_places(config), barred > 2) == (set(), True)
    assert len(list(place.iterdir())) == 2


@pytest.mark.usefixtures("bucket")
async def test_a_damaged_or_foreign_backup_is_refused_and_with_lost_keys_one_is_taken_as_it_is_only_when_asked_for(
    config: Path, bucket: ArtifactBucket, place: str
) -> None:
    whole = Path((await backup(config, place)).facts["file"])
    lost(config)
    for key in KEYS:
        await bucket.remove(key)
    foreign = changed(whole, lambda members: members.pop("signature.json")).rename(whole.with_name("foreign.zip"))
    damaged = changed(whole, lambda members: members.update({f"{RUN_ID}/journal.jsonl": b"{}"}))
    for file, why in ((damaged, "Nothing was restored: use another copy"), (foreign, "was not said with these keys")):
        with pytest.raises(Misconfigured, match=why):
            await restore(config, str(file))
    lost(config, but_keys=False)
    with pytest.raises(Misconfigured, match="use the version that made it"):
        await restore(config, str(changed(whole, with_a_stop_of_a_newer_version)), new_keys=True)
    with pytest.raises(Misconfigured, match=r"made --with-keys; .*--new-keys"):
        await restore(config, place)
    assert (await bucket.list(), (config.parent / "agent" / FILE).exists()) == ([], False), "nothing of it is stored"
    assert (await restore(config, place, new_keys=True)).facts["runs"] == 1
    assert await flawed_places(config) == set()


def with_a_stop_of_a_newer_version(members: Members) -> None:
    named_anew(members, "beside.jsonl", b'["agentic-store.halt",{"v":999999}]\n')


async def test_a_ledger_that_cannot_be_read_ends_a_backup_with_the_words_of_the_gateway(
    config: Path, tmp_path: Path
) -> None:
    (ledger := tmp_path / "gateway" / "ledger.db").parent.mkdir()
    ledger.write_bytes(b"no database" * 100)
    set_section(config, "gateway", {"store": str(ledger.parent)})
    with pytest.raises(NotDone, match=f"^{ledger} cannot be read") as told:
        await backup(config, f"{tmp_path}/backups")
    assert told.value.exit_code is Exit.MISCONFIGURED
