"""`agentic export` and `verify FILE`: a run leaves its store as a file that proves itself elsewhere."""

import json
import shutil
import time
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from agent_service.archive.export_file import MOST_FILES
from agent_service.cli.archive.exporting import export
from agent_service.cli.archive.keys import listed
from agent_service.cli.archive.verifying import verify as verify_file
from agent_service.cli.errors import NotDone
from groundwork.service.errors import Misconfigured, TryAgain
from tests.cli.test_backing_up import filled, names
from tests.cli.test_records import config, opened, recorded, stored, tampered
from tests.core.cues import RUN_ID, a_waiting_parent, a_waiting_run, cancel, child_of, comes_home
from tests.projections.conftest import small_disk
from tests.projections.journals import commits_of

__all__ = ["config", "small_disk"]

Members = dict[str, bytes]


@pytest.fixture
async def file(config: Path, tmp_path: Path) -> Path:
    return Path((await export(RUN_ID, tmp_path / "it.zip", config)).file)


def changed(file: Path, change: Callable[[Members], object]) -> Path:
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
    with pytest.raises(Misconfigured, match="nothing is overwritten"):
        await export(RUN_ID, file, config)
    public = listed(config).keys[0].public
    shutil.rmtree(config.parent / "agent")
    verdict = verify_file(file)
    assert (verdict.ok, verdict.public, mode_of(file) & 0o077) == (True, public, 0)
    assert f"{RUN_ID}  done, 8 entries, 2 artifacts" in str(verdict)
    assert verify_file(file, key=public).ok
    assert not verify_file(file, key="A" * 43).ok


def mode_of(file: Path) -> int:
    return file.stat().st_mode


def another_journal(members: Members) -> None:
    """With a manifest that fits it, signed by nobody."""
    journal = f"{RUN_ID}/journal.jsonl"
    members[journal] = members[journal].replace(b"2 paragraphs", b"3 paragraphs")
    manifest = json.loads(members["manifest.json"])
    manifest["files"][journal] = sha256(members[journal]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    members.pop("signature.json")


def twice(members: Members) -> None:
    manifest = json.loads(members["manifest.json"])
    members["manifest.json"] = json.dumps(manifest | {"runs": 2 * manifest["runs"]}).encode()
    members.pop("signature.json")


CHANGES: dict[str, Callable[[Members], object]] = {
    "critique.md: is not what was exported": lambda m: m.update({f"{RUN_ID}/artifacts/critique.md": b"better"}),
    "notes.txt: is no file of this export": lambda m: m.update({f"{RUN_ID}/notes.txt": b"mine"}),
    "escape: is no file of this export": lambda m: m.update({"../../escape": b"out"}),
    "plan.md: is not there": lambda m: m.pop(f"{RUN_ID}/plan.md"),
    "what was signed": lambda m: m.update({"manifest.json": m["manifest.json"].replace(b'"done"', b'"failed"')}),
    "was changed after it was written": another_journal,
    "more than once": twice,
}


def test_every_change_to_a_file_is_named(file: Path) -> None:
    unseen = [says for says, change in CHANGES.items() if says not in str(verify_file(changed(file, change)))]
    assert unseen == []


def test_what_is_no_export_or_only_the_half_of_one_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for content in (b"", b"no archive", b"PK\x05\x06" + bytes(18), whole[: len(whole) // 2]):
        (tmp_path / "no.zip").write_bytes(content)
        with pytest.raises(Misconfigured, match="no file of exported runs"):
            verify_file(tmp_path / "no.zip")
    file.write_bytes(bytes([*whole[:900], whole[900] ^ 255, *whole[901:]]))
    with pytest.raises(Misconfigured, match="is damaged"):
        verify_file(file)


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


async def test_what_was_changed_in_the_store_is_not_exported(config: Path, tmp_path: Path) -> None:
    tampered(config, "UPDATE runs SET summary = 'all is well'")
    with pytest.raises(NotDone, match="not as its agent left it"):
        await export(RUN_ID, tmp_path / "it.zip", config)
    assert "it.zip" not in names(tmp_path)


async def test_an_artifact_that_is_nowhere_is_left_out_by_name(config: Path, tmp_path: Path) -> None:
    (config.parent / "workspaces" / RUN_ID / "artifacts" / "critique.md").write_text("another")
    made = await export(RUN_ID, tmp_path / "it.zip", config)
    assert (made.ok, "which is away" in str(made)) == (False, True)
    verdict = verify_file(tmp_path / "it.zip")
    assert verdict.ok
    assert f"without {RUN_ID}/artifacts/critique.md" in str(verdict)


async def test_the_runs_that_a_run_started_go_along(tmp_path: Path) -> None:
    parent = a_waiting_parent()
    child = child_of(parent) >> cancel()
    config = await recorded(tmp_path, parent >> cancel() >> comes_home(child), {})
    async with opened(tmp_path / "agent") as store:
        await stored(store, commits_of(child))
    made = await export(RUN_ID, tmp_path, config)
    assert list(made.runs.values()) == ["cancelled", "cancelled"]
    assert verify_file(tmp_path / f"{RUN_ID}.zip").ok


async def test_a_run_that_has_not_ended_is_exported_as_it_stands(tmp_path: Path) -> None:
    made = await export(RUN_ID, tmp_path / "it.zip", await recorded(tmp_path, a_waiting_run(), {}))
    assert "had not ended" in str(made)
    assert verify_file(Path(made.file)).ok


async def test_a_full_disk_takes_no_export_and_nothing_of_it_is_left(config: Path, small_disk: Path) -> None:
    filled(small_disk)
    with pytest.raises(TryAgain, match="no room for"):
        await export(RUN_ID, small_disk / "it.zip", config)
    assert names(small_disk) == ["filler"]
