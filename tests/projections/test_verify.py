"""Verification finds every change to a journal or folder, and names its first place."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.history.results import FILES, is_artifact_path, recorded_artifacts
from agent_service.run.journal import GENESIS, RULES, Entry, followed
from agent_service.views.pages import Flaw, verify
from agent_service.views.workspace.files import Workspace
from tests.core.cues import RUN_ID, returns
from tests.core.script import Script
from tests.core.words import run_at
from tests.projections.journals import CRITIQUE, PAGE, entries_of, pages_of, worked_example

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


def files_of(entries: Sequence[Entry]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in pages_of(entries).items()}


ENTRIES = entries_of(worked_example())
COMMITS = followed(ENTRIES, RUN_ID)


@pytest.fixture
def folder(root: Path, workspace: Workspace) -> Path:
    workspace.write(RUN_ID, files_of(ENTRIES) | ARTIFACTS)
    return root / RUN_ID


def the_flaw(flaws: list[Flaw]) -> Flaw:
    (flaw,) = flaws
    return flaw


def test_a_folder_deleted_and_written_again_is_the_same_to_the_byte(folder: Path, workspace: Workspace) -> None:
    before = workspace.files(RUN_ID)
    assert verify(COMMITS, workspace, RUN_ID) == []
    workspace.remove(RUN_ID)
    assert not folder.exists()
    workspace.write(RUN_ID, files_of(ENTRIES) | ARTIFACTS)
    assert workspace.files(RUN_ID) == before
    assert verify(COMMITS, workspace, RUN_ID) == []


@pytest.mark.parametrize("name", FILES)
def test_a_character_changed_anywhere_in_a_page_is_found_in_its_line(
    name: str, folder: Path, workspace: Workspace
) -> None:
    content = (folder / name).read_bytes()
    for place in range(3, len(content), len(content) // 8):
        (folder / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        flaw = the_flaw(verify(COMMITS, workspace, RUN_ID))
        line = len(content[:place].splitlines()) + (content[place - 1] == 0x0A)
        assert (flaw.kind, flaw.place, flaw.line) == ("changed", name, line)


def test_files_of_nobody_and_a_page_emptied_or_replaced_by_a_link_are_named(folder: Path, workspace: Workspace) -> None:
    for name in ("notes.md", "artifacts/more.txt", "artifacts/.hidden", "plan.md.bak"):
        (folder / name).write_text("by hand")
    (folder / "plan.md").rename(folder.parent / "copy")
    (folder / "plan.md").symlink_to(folder.parent / "copy")
    (folder / "memory.md").write_bytes(b"")
    assert sorted((flaw.kind, flaw.place, flaw.line or 0) for flaw in verify(COMMITS, workspace, RUN_ID)) == [
        ("changed", "memory.md", 1),
        ("changed", "plan.md", 0),
        ("extra", "artifacts/.hidden", 0),
        ("extra", "artifacts/more.txt", 0),
        ("extra", "notes.md", 0),
        ("extra", "plan.md.bak", 0),
    ]


def test_artifacts_beyond_those_that_are_copied_are_not_missed(workspace: Workspace) -> None:
    many = [{"path": f"artifacts/{number}.txt", "size": 1, "sha256": "0" * 64} for number in range(101)]
    entries = entries_of(run_at("run waiting") >> returns(output={"artifacts": many}))
    workspace.write(RUN_ID, files_of(entries))
    assert verify(followed(entries, RUN_ID), workspace, RUN_ID) == []


@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_changed_artifact_is_found_by_its_hash(name: str, folder: Path, workspace: Workspace) -> None:
    for place in range(0, len(ARTIFACTS[name]), 8):
        changed = bytearray(ARTIFACTS[name])
        changed[place] ^= 1
        (folder / name).write_bytes(changed)
        flaw = the_flaw(verify(COMMITS, workspace, RUN_ID))
        assert (flaw.kind, flaw.place) == ("changed", name)


def test_an_artifact_without_a_hash_is_compared_with_the_store_and_one_with_an_unlawful_name_has_no_file(
    workspace: Workspace,
) -> None:
    def brought(path: str) -> list[Entry]:
        script = Script()
        for change in worked_example().story[:4]:
            script = script >> change.event
        return entries_of(script >> returns(output={"artifact_path": path}))

    entries = brought("artifacts/page.html")
    workspace.write(RUN_ID, files_of(entries) | {"artifacts/page.html": b"forged"})
    assert verify(followed(entries, RUN_ID), workspace, RUN_ID) == []
    flaws = verify(
        followed(entries, RUN_ID), workspace, RUN_ID, stored={"artifacts/page.html": hashlib.sha256(PAGE).hexdigest()}
    )
    assert the_flaw(flaws).place == "artifacts/page.html"
    workspace.remove(RUN_ID)
    entries = brought("../../etc/passwd")
    (artifact,) = recorded_artifacts(entry.record() for entry in entries)
    assert not is_artifact_path(artifact.path)
    workspace.write(RUN_ID, files_of(entries))
    assert verify(followed(entries, RUN_ID), workspace, RUN_ID) == []
    assert "no name for a file" in pages_of(entries)["memory.md"]


def test_facts_of_entries_that_other_rules_decided_are_not_held_against_them(workspace: Workspace) -> None:
    rules, others = f'"rules":{RULES}', f'"rules":{RULES + 1}'
    later = rechained([replace(entry, facts=entry.facts.replace(rules, others)) for entry in ENTRIES])
    workspace.write(RUN_ID, files_of(later) | ARTIFACTS)
    assert verify(followed(later, RUN_ID), workspace, RUN_ID) == []
    forged = rechained([replace(entry, facts=entry.facts.replace("queued", "paused")) for entry in ENTRIES])
    with pytest.raises(ValueError, match="entry 1 leads to other facts"):
        followed(forged, RUN_ID)


@pytest.mark.usefixtures("folder")
def test_a_journal_that_lost_its_end_is_found_in_all_pages_that_tell_it(workspace: Workspace) -> None:
    lost_its_end = {flaw.place for flaw in verify(COMMITS[:-1], workspace, RUN_ID)}
    assert lost_its_end == {"memory.md", "plan.md", "decisions.md", "trace.jsonl"}


def test_each_line_of_a_trace_is_chained_to_the_one_before() -> None:
    text, previous = pages_of(ENTRIES)["trace.jsonl"], "0" * 64
    for line in map(json.loads, text.splitlines()):
        claimed = line.pop("hash")
        canonical = json.dumps(line, sort_keys=True, separators=(",", ":"))
        assert claimed == hashlib.sha256((previous + canonical).encode()).hexdigest()
        previous = claimed


def rechained(entries: Sequence[Entry]) -> list[Entry]:
    previous, fitting = GENESIS, []
    for entry in entries:
        moved = replace(entry, previous=previous)
        fitting.append(replace(moved, hash=moved.recomputed_hash()))
        previous = fitting[-1].hash
    return fitting


@pytest.mark.usefixtures("folder")
def test_a_journal_written_anew_shows_in_the_files(workspace: Workspace) -> None:
    goal = replace(ENTRIES[0], event=ENTRIES[0].event.replace("critique", "eulogy"))
    flaws = verify(followed(rechained([goal, *ENTRIES[1:]]), RUN_ID), workspace, RUN_ID)
    assert [flaw.place for flaw in flaws] == ["context.md", "decisions.md"]
    why = replace(ENTRIES[3], event=ENTRIES[3].event.replace("unseen", "unread"))
    flaws = verify(followed(rechained([*ENTRIES[:3], why, *ENTRIES[4:]]), RUN_ID), workspace, RUN_ID)
    assert [flaw.place for flaw in flaws] == ["decisions.md", "trace.jsonl"]
