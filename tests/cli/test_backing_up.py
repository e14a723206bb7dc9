"""`agentic backup` and `restore` of a store with artifacts in a real bucket, and what the bucket alone has lost."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from agent_service.bus.endings import head_told
from agent_service.bus.topology import topology
from agent_service.cli.archive.backing_up import Order as BackUp
from agent_service.cli.archive.backing_up import backup
from agent_service.cli.archive.restoring import Order as BringBack
from agent_service.cli.archive.restoring import bring_back, restore
from agent_service.cli.archive.run_folder import verify
from agent_service.settings import load
from groundwork.backup.archive import Archive
from groundwork.nats.artifact_bucket import ArtifactBucket, NoSuchArtifact
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.keys import KeyRing
from schemas import envelope, subjects
from tests.cli.test_records import SHELF, name_bus, recorded
from tests.core.cues import RUN_ID
from tests.kit.runs import run_id
from tests.kit.struck import struck
from tests.projections.conftest import small_disk
from tests.projections.journals import worked_example

__all__ = ["small_disk"]

KEYS = [f"{RUN_ID}/{path.removeprefix('artifacts/')}" for path in SHELF]


@pytest.fixture
async def bucket(link: NatsLink) -> ArtifactBucket:
    await create_missing(link, topology(max_gib=1))
    return ArtifactBucket(link, subjects.ARTIFACT_BUCKET)


@pytest.fixture
async def config(tmp_path: Path, nats_server: EmbeddedNats, bucket: ArtifactBucket) -> Path:
    """Of a store with a run whose artifacts are in the bucket, and in its folder."""
    made = await recorded(tmp_path / "here", worked_example(), SHELF)
    name_bus(made, nats_server.url)
    for key, content in zip(KEYS, SHELF.values(), strict=True):
        await bucket.put(key, content, "text/plain")
    return made


def lost(config: Path, *, but_keys: bool = True) -> None:
    """All that an agent keeps is gone; the keys are in another place too."""
    for name in ("agent", "workspaces"):
        shutil.rmtree(config.parent / name)
    if not but_keys:
        (config.parent / "agent.keys").unlink()


async def test_artifacts_are_backed_up_once_and_come_back_into_an_empty_bucket(
    config: Path, bucket: ArtifactBucket, tmp_path: Path
) -> None:
    place = str(tmp_path / "it.backup")
    assert (await backup(config, BackUp(place=place))).about["artifacts"] == {"artifacts": len(KEYS)}
    assert (await backup(config, BackUp(place=place))).written == 0
    for key in KEYS:
        await bucket.remove(key)
    lost(config)
    told = await restore(config, BringBack(place=place))
    assert (told.runs, told.artifacts) == (1, len(KEYS))
    assert await flawed_places(config) == set(), "its folder is written when somebody asks for it"
    assert [await bucket.get(key) for key in KEYS] == list(SHELF.values())


async def test_what_was_backed_up_without_the_bus_has_the_artifacts_of_the_last_one_with_it(
    config: Path, bucket: ArtifactBucket, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    place = str(tmp_path / "it.backup")
    with_them = await backup(config, BackUp(place=place, most=1))
    name_bus(config, "nats://127.0.0.1:9")
    without = await backup(config, BackUp(place=place, most=1))
    assert (without.ok, list(without.left_out)) == (False, ["gateway", "artifacts"])
    name_bus(config, nats_server.url)
    page, critique = KEYS
    await bucket.remove(page)
    await bucket.put(critique, b"made after that backup", "text/plain")
    lost(config)
    told = await restore(config, BringBack(place=place))
    assert (told.backup, told.artifacts) == (without.backup, len(KEYS))
    assert f"Those of {with_them.backup} were taken" in told.left_out["artifacts"]
    assert [await bucket.get(key) for key in KEYS] == [SHELF["artifacts/fetch-01.html"], b"made after that backup"]


async def test_runs_that_began_or_went_on_after_the_backup_are_told_apart(
    config: Path, link: NatsLink, tmp_path: Path
) -> None:
    place, ring = str(tmp_path / "it.backup"), KeyRing.open(load(config, {}).keys_path())
    await backup(config, BackUp(place=place))
    for one, seq in ((RUN_ID, 8), (RUN_ID, 9), (run_id(2), 3)):
        said = {envelope.RUN_ID: one, envelope.HEAD: head_told(ring, partial(_at, seq), one)}
        await link.jetstream.publish(subjects.COMPLETED, b"{}", headers=said)
    lost(config)
    told = await restore(config, BringBack(place=place))
    assert told.ended_since == {RUN_ID: "agent.completed was told with entry 9"}
    assert told.begun_since == {run_id(2): "agent.completed was told with entry 3"}
    assert f"`agentic cancel {RUN_ID}`" in str(told)


def _at(seq: int, _: str) -> tuple[int, str]:
    return seq, "ab" * 32


async def test_with_lost_keys_a_backup_is_taken_as_it_is_only_when_asked_for(config: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "it.backup")
    with_them = await backup(config, BackUp(place=place, with_keys=True))
    await backup(config, BackUp(place=place))
    lost(config, but_keys=False)
    with pytest.raises(Misconfigured, match=f"restore {with_them.backup}, which holds keys, .*--new-keys"):
        await restore(config, BringBack(place=place))
    assert (await restore(config, BringBack(place=place, new_keys=True))).runs == 1
    assert await flawed_places(config) == set()


def is_there(place: Path) -> bool:
    return place.exists()


async def test_a_full_disk_costs_no_earlier_backup_and_with_room_the_next_is_made(
    config: Path, small_disk: Path
) -> None:
    place = str(small_disk / "it.backup")
    first = await backup(config, BackUp(place=place))
    filler = filled(small_disk)
    with pytest.raises(TryAgain, match="no room"):
        await backup(config, BackUp(place=place))
    assert names(small_disk) == ["filler", "it.backup"]
    filler.unlink()
    await backup(config, BackUp(place=place))
    lost(config)
    assert (await restore(config, BringBack(place=place, backup=first.backup))).runs == 1


def filled(disk: Path) -> Path:
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as opened:
        while opened.write(bytes(4096)) == 4096:
            pass
    return filler


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_what_the_bucket_lost_comes_back_from_folders_where_it_is_what_its_tool_made(
    config: Path, bucket: ArtifactBucket
) -> None:
    page, critique = KEYS
    await bucket.remove(page)
    await bucket.put(critique, b"a better one", "text/plain")
    found = await bring_back(config)
    assert (sorted(found.back), found.lost, found.runs) == (sorted(KEYS), {}, 1)
    assert [await bucket.get(key) for key in KEYS] == list(SHELF.values())
    again = await bring_back(config)
    assert (again.back, again.kept) == ([], len(KEYS))


async def test_a_copy_that_was_changed_is_not_brought_back_and_what_is_nowhere_is_named(
    config: Path, bucket: ArtifactBucket, tmp_path: Path
) -> None:
    for key in KEYS:
        await bucket.remove(key)
    changed, gone = (config.parent / "workspaces" / RUN_ID / path for path in SHELF)
    changed.write_text("another")
    gone.unlink()
    found = await bring_back(config)
    assert (found.ok, found.back) == (False, [])
    assert "is not what its tool made" in found.lost[KEYS[0]]
    assert "neither the bucket" in found.lost[KEYS[1]]
    with pytest.raises(NoSuchArtifact):
        await bucket.get(KEYS[0])
    shutil.rmtree(changed.parents[1])
    assert await flawed_places(config) == {"."}, "it was written, and is nowhere"
    await bucket.put(KEYS[0], b"another", "text/plain")
    place = str(tmp_path / "it.backup")
    await backup(config, BackUp(place=place))
    lost(config)
    await restore(config, BringBack(place=place))
    assert await flawed_places(config) == set(SHELF)


AT_A_BACKUP = (
    "groundwork.backup.files:snapshot",
    "groundwork.backup.archive:Archive.keep",
    "groundwork.backup.archive:Archive.tell",
    "groundwork.backup.archive:Archive.complete",
)


@pytest.mark.timeout(400)
async def test_a_backup_that_is_killed_costs_none_of_those_before(config: Path, tmp_path: Path) -> None:
    place = tmp_path / "it.backup"
    first = (await backup(config, BackUp(place=str(place)))).backup
    with struck(tmp_path, *AT_A_BACKUP) as command:
        for _ in command.strikes("backup", place, "--config", config):
            assert first in backups(place)
    lost(config)
    assert (await restore(config, BringBack(place=str(place), backup=first))).runs == 1
    shutil.rmtree(config.parent / "agent")
    assert (await restore(config, BringBack(place=str(place)))).runs == 1
    assert [name for name in names(tmp_path) if name.startswith("it.")] == ["it.backup"]


def backups(place: Path) -> list[str]:
    with Archive.to_read(place) as archive:
        return list(archive.backups())


AT_A_RESTORE = (
    "agent_service.cli.archive.restoring:_restore_artifacts",
    "groundwork.backup.files:write_out",
    "groundwork.backup.files:set_aside",
    "agent_service.cli.archive.restoring:_restore_runs",
)


@pytest.mark.timeout(400)
async def test_a_restore_that_is_killed_has_restored_all_or_nothing(config: Path, tmp_path: Path) -> None:
    place, store = tmp_path / "it.backup", config.parent / "agent"
    await backup(config, BackUp(place=str(place)))
    lost(config)
    with struck(tmp_path, *AT_A_RESTORE) as command:
        for _ in command.strikes("restore", place, "--config", config):
            if is_there(store / "runs.db"):
                assert await flawed_places(config) == set()
                shutil.rmtree(store)
    assert await flawed_places(config) == set()
    assert "restoring" not in names(store)


async def flawed_places(config: Path) -> set[str]:
    return {flaw.place for flaw in (await verify(RUN_ID, config)).flaws}
