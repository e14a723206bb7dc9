"""`agentic export`, `verify FILE` and `import`: a run leaves its store as a file that proves itself elsewhere."""

import asyncio
import json
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from agent_service.cli.complaints import NotDone
from agent_service.cli.exported_file import verify as verify_file
from agent_service.cli.exporting import export
from agent_service.cli.importing import import_file
from agent_service.cli.key_file import listed
from agent_service.cli.run_folder import verify
from agent_service.core.waiting import Status
from agent_service.errors import ReadOnly
from agent_service.retention import Over
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.export.file import MOST_FILES
from groundwork.nats.embedded import EmbeddedNats
from groundwork.service.errors import Misconfigured, TryAgain
from tests.cli.calling import agentic
from tests.cli.test_backing_up import filled, names
from tests.cli.test_records import config, contents, recorded, sealed, stored, tampered
from tests.core.child_cues import a_waiting_parent, child_of, comes_home
from tests.core.cues import RUN_ID, a_reflecting_run, a_waiting_run, cancel, reflects, signal
from tests.kit.struck import struck
from tests.projections.conftest import small_disk
from tests.projections.journals import commits_of

__all__ = ["config", "small_disk"]


@pytest.fixture
async def file(config: Path, tmp_path: Path) -> Path:
    return Path((await export(RUN_ID, tmp_path / "it.zip", config)).file)


def changed(file: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The file with other members, of which the manifest may know nothing."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    other = file.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return other


async def test_a_run_proves_itself_where_its_store_is_not(file: Path, config: Path) -> None:
    public = listed(config).keys[0].public
    shutil.rmtree(config.parent / "agent")
    verdict = verify_file(file)
    assert (verdict.ok, verdict.public) == (True, public)
    assert f"{RUN_ID}  done, 8 entries, 2 artifacts" in str(verdict)
    assert verify_file(file, key=public).ok
    assert not verify_file(file, key="A" * 43).ok


async def test_nobody_but_its_user_may_read_the_file_and_none_is_overwritten(file: Path, config: Path) -> None:
    assert mode_of(file) & 0o077 == 0
    with pytest.raises(Misconfigured, match="nothing is overwritten"):
        await export(RUN_ID, file, config)


def mode_of(file: Path) -> int:
    return file.stat().st_mode


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update({f"{RUN_ID}/artifacts/critique.md": b"better"}), "critique.md: is not what was exported"),
        (lambda m: m.update({f"{RUN_ID}/notes.txt": b"mine"}), "notes.txt: is no file of this export"),
        (lambda m: m.update({"../../escape": b"out"}), "escape: is no file of this export"),
        (lambda m: m.pop(f"{RUN_ID}/plan.md"), "plan.md: is not there"),
        (lambda m: m.update({"manifest.json": m["manifest.json"].replace(b'"done"', b'"failed"')}), "what was signed"),
    ],
)
async def test_what_was_changed_in_a_file_is_named_and_nothing_of_it_imported(
    file: Path, config: Path, change: Callable[[dict[str, bytes]], object], says: str
) -> None:
    other = changed(file, change)
    assert says in str(verify_file(other))
    with pytest.raises(NotDone, match="nothing was imported"):
        await import_file(other, None, config)


async def test_a_manifest_that_was_made_anew_without_a_signature_does_not_hide_another_journal(file: Path) -> None:
    def rewritten(members: dict[str, bytes]) -> None:
        journal = f"{RUN_ID}/journal.jsonl"
        members[journal] = members[journal].replace(b"2 paragraphs", b"3 paragraphs")
        manifest = json.loads(members["manifest.json"])
        manifest["files"][journal] = sha256(members[journal]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()
        members.pop("signature.json")

    verdict = verify_file(changed(file, rewritten))
    assert "was changed after it was written" in str(verdict)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_export_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it.zip").write_bytes(content)
    called = agentic("verify", tmp_path / "it.zip")
    assert (called.code, "no file of exported runs" in called.err) == (78, True)


def test_a_file_of_very_many_names_is_judged_in_a_moment_or_refused(file: Path) -> None:
    """A bomb: each name is looked up among all others."""

    def with_names(count: int) -> Path:
        return changed(file, lambda members: members.update({f"{RUN_ID}/{number}": b"" for number in range(count)}))

    many = with_names(20_000)
    began = time.process_time()
    assert len(verify_file(many).flaws) == 20_000
    assert time.process_time() - began < 3.0
    with pytest.raises(Misconfigured, match="an export has at most"):
        verify_file(with_names(MOST_FILES + 1))


def test_a_run_that_a_manifest_names_twice_is_a_flaw(file: Path) -> None:
    """Otherwise its journal is read as often as it is named."""

    def twice(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        members["manifest.json"] = json.dumps(manifest | {"runs": 2 * manifest["runs"]}).encode()
        members.pop("signature.json")

    assert "more than once" in str(verify_file(changed(file, twice)))


def test_a_file_that_lost_its_end_or_a_byte_is_damaged_and_not_believed(file: Path) -> None:
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], bytes([*whole[:900], whole[900] ^ 255, *whole[901:]])):
        file.write_bytes(damaged)
        called = agentic("verify", file)
        assert called.code in (1, 78)
        assert called.err or "✗" in called.out


async def test_what_was_changed_in_the_store_is_not_exported(config: Path, tmp_path: Path) -> None:
    tampered(config, "UPDATE runs SET summary = 'all is well'")
    with pytest.raises(NotDone, match="not as its agent left it"):
        await export(RUN_ID, tmp_path / "it.zip", config)
    assert not (tmp_path / "it.zip").exists()


async def test_an_artifact_that_is_nowhere_is_left_out_by_name(config: Path, tmp_path: Path) -> None:
    (config.parent / "workspaces" / RUN_ID / "artifacts" / "critique.md").write_text("another")
    called = await asyncio.to_thread(agentic, "export", RUN_ID, tmp_path / "it.zip", "--config", config)
    assert (called.code, "without" in called.out, "which is away" in called.out) == (1, True, True)
    verdict = verify_file(tmp_path / "it.zip")
    assert verdict.ok
    assert f"without {RUN_ID}/artifacts/critique.md" in str(verdict)


async def family(folder: Path) -> Path:
    """A parent and the run that it started, both cancelled."""
    parent = a_waiting_parent()
    child = child_of(parent) >> cancel()
    parent = parent >> cancel() >> comes_home(child)
    config = await recorded(folder, parent, {})
    async with sealed(folder / "agent") as store:
        await stored(store, commits_of(child))
    return config


async def test_the_runs_that_a_run_started_go_along(tmp_path: Path) -> None:
    made = await export(RUN_ID, tmp_path, await family(tmp_path))
    assert list(made.runs.values()) == ["cancelled", "cancelled"]
    assert verify_file(tmp_path / f"{RUN_ID}.zip").ok


class Elsewhere:
    """Another store, on a bus of its own, which an agent has begun and left."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.config = folder / "agentic.yaml"
        places = {"store": str(folder / "agent"), "workspaces": str(folder / "workspaces")}
        self.config.write_text(json.dumps({"nats": {"urls": [url]}, "agent": places}))


@pytest.fixture
async def elsewhere(tmp_path: Path, nats_server: EmbeddedNats) -> Elsewhere:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    made = Elsewhere(folder, nats_server.url)
    async with sealed(folder / "agent"):
        pass
    called = await asyncio.to_thread(agentic, "setup", "--config", made.config, "--max-gib", "0.1")
    assert called.code == 0, called
    return made


async def test_an_exported_run_is_read_in_another_store_as_it_was(
    file: Path, config: Path, elsewhere: Elsewhere
) -> None:
    called = await asyncio.to_thread(agentic, "import", file, "--config", elsewhere.config, "--json")
    assert called.code == 0, called
    assert (called.document["runs"], called.document["artifacts"]) == ({RUN_ID: "done"}, 2)
    verdict = await verify(RUN_ID, elsewhere.config)
    assert (verdict.ok, verdict.entries, verdict.artifacts) == (True, 8, 2)
    before, after = (contents(folder / "workspaces" / RUN_ID) for folder in (config.parent, elsewhere.folder))
    assert after == before
    again = await export(RUN_ID, elsewhere.folder, elsewhere.config)
    assert verify_file(Path(again.file)).manifest.files == verify_file(file).manifest.files
    refused = await asyncio.to_thread(agentic, "import", file, "--config", elsewhere.config)
    assert (refused.code, "is in this store already" in refused.err) == (6, True)


async def test_a_family_is_imported_whole(tmp_path: Path, elsewhere: Elsewhere) -> None:
    made = await export(RUN_ID, tmp_path / "it.zip", await family(tmp_path))
    imported = await import_file(Path(made.file), None, elsewhere.config)
    assert imported.runs.keys() == made.runs.keys()
    for run_id in imported.runs:
        assert (await verify(run_id, elsewhere.config)).ok


async def test_a_run_that_had_not_ended_is_exported_to_be_read_and_not_imported(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    config = await recorded(tmp_path, a_waiting_run(), {})
    made = await export(RUN_ID, tmp_path / "it.zip", config)
    assert "no store imports it" in str(made)
    assert verify_file(Path(made.file)).ok
    with pytest.raises(NotDone, match="had not ended"):
        await import_file(Path(made.file), None, elsewhere.config)


async def test_nothing_is_done_for_an_imported_run_and_it_is_kept_as_long_as_if_it_had_ended_on_that_day(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    stuck = a_reflecting_run() >> reflects("escalate")
    made = await export(RUN_ID, tmp_path / "it.zip", await recorded(tmp_path, stuck, {}))
    await import_file(Path(made.file), None, elsewhere.config)
    answered = commits_of(stuck >> signal("answer", message="Go on."))[-1]
    assert answered.state.status is Status.RUNNING
    async with sealed(elsewhere.folder / "agent") as store:
        with pytest.raises(ReadOnly, match="it can only be read"):
            await store.commit(answered)
        assert await store.inbox.count() == 0
        today, day = datetime.now(UTC), timedelta(days=1)
        for before, runs in ((today - day, 0), (today + day, 1)):
            over = Over(statuses=frozenset({Status.ESCALATED}), before=before, escalated_before=before)
            assert len(await store.forgetting.ended(over, None, 10)) == runs


AT_AN_IMPORT = (
    "agent_service.bus.artifacts:NatsArtifacts.put",
    "agent_service.store.imports:SqliteImports.take",
    "agent_service.store.imports:SqliteImports._take",
    "agent_service.telling.folder.writer:rewrite",
)


@pytest.mark.timeout(400)
async def test_an_import_that_is_killed_has_imported_all_or_nothing(
    file: Path, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    store = elsewhere.folder / "agent"
    with struck(tmp_path, *AT_AN_IMPORT) as command:
        for _ in command.strikes("import", file, "--config", elsewhere.config):
            async with sealed(store) as opened:
                there = opened.version(RUN_ID)
            assert there in (0, 8)
            if there:
                assert {flaw.place for flaw in (await verify(RUN_ID, elsewhere.config)).flaws} <= {"."}
                shutil.rmtree(store)
    assert (await verify(RUN_ID, elsewhere.config)).ok


async def test_a_full_disk_takes_no_export_and_nothing_of_it_is_left(config: Path, small_disk: Path) -> None:
    filled(small_disk)
    with pytest.raises(TryAgain, match="no room for"):
        await export(RUN_ID, small_disk / "it.zip", config)
    assert names(small_disk) == ["filler"]


async def test_a_disk_that_fills_up_lets_nothing_be_imported_until_there_is_room(
    file: Path, elsewhere: Elsewhere, small_disk: Path
) -> None:
    settings = json.loads(elsewhere.config.read_text())
    settings["agent"] |= {"store": str(small_disk / "agent"), "keys_file": str(elsewhere.folder / "agent.keys")}
    elsewhere.config.write_text(json.dumps(settings))
    async with SqliteStore.open(small_disk / "agent"):
        pass
    filled(small_disk)
    with pytest.raises(TryAgain, match="no room"):
        await import_file(file, None, elsewhere.config)
    enlarge(small_disk)
    await import_file(file, None, elsewhere.config)
    assert (await verify(RUN_ID, elsewhere.config)).ok


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
