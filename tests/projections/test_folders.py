"""Folders of runs: rendered when a run ends, waits for a person, stands still or is read, after any failure.

They match the journal, whichever agent of a store decided it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_service.history.results import FILES
from agent_service.run.journal import Commit, replay
from agent_service.store.shared import SharedStore
from agent_service.views.pages import verify
from agent_service.views.workspace import rendering
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import ArtifactChanged, Folders
from groundwork.service.errors import TryAgain
from tests.core.cues import RUN_ID
from tests.core.script import Script, commits_of
from tests.core.words import run_at
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import run_id
from tests.kit.waiting import until
from tests.projections.courses import PLAYED
from tests.projections.fakes import Journals, Shelf, names
from tests.projections.journals import (
    CRITIQUE,
    PAGE,
    asked_for,
    committed,
    entries_of,
    worked_example,
)

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}
RUNS = tuple(map(run_id, range(1, 6)))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"SOON_S": 0.001, "LATER_S": 0.05}.items():
        monkeypatch.setattr(rendering, name, seconds)


def keeping_in(workspace: Workspace, journals: Journals, shelf: Shelf | None = None, *, keep: int = 25) -> Folders:
    return Folders(journals, workspace, shelf or Shelf(), keep=keep)


def one_step(run_id: str = RUN_ID) -> Script:
    """A finished run without artifacts."""
    return run_at(f"run reflecting run_id={run_id} ; done", pace=1)


def last(script: Script) -> Commit:
    return list(replay(entries_of(script)))[-1]


@asynccontextmanager
async def running(folders: Folders, *ended: Script) -> AsyncIterator[Folders]:
    for script in ended:
        folders.committed(last(script))
    work = asyncio.create_task(folders.run())
    try:
        yield folders
        assert not work.done(), "it stopped by itself"
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


def pages(workspace: Workspace, run_ids: Iterable[str]) -> list[str]:
    return [name for name in run_ids if workspace.has_pages(name)]


async def test_an_ended_run_is_rendered_soon_and_its_artifacts_once_their_store_is_there(workspace: Workspace) -> None:
    entries, shelf = entries_of(worked_example()), Shelf(ARTIFACTS)
    shelf.failure = TryAgain("the bus is away")
    async with running(keeping_in(workspace, Journals(entries), shelf), worked_example()):
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        assert workspace.read(RUN_ID, "artifacts/critique.md") is None
        shelf.failure = None
        await until(lambda: workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE)
    assert verify(commits_of(worked_example()), workspace, RUN_ID) == []


async def test_a_run_that_rests_for_a_person_is_rendered_and_a_live_one_once_it_stands_still(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    courses = (list(replay(entries_of(course()))) for course in PLAYED.values())
    changes = next(changes for changes in courses if any(change.state.ask for change in changes))
    paused = next(number for number, change in enumerate(changes, start=1) if change.state.ask)
    live = entries_of(one_step(RUNS[0]))[:4]
    journals, now = Journals(live, [change.entry for change in changes[:paused]]), 0.0
    monkeypatch.setattr(rendering, "this", lambda: SimpleNamespace(monotonic=lambda: now))
    async with running(keeping_in(workspace, journals)) as folders:
        while now < 0.12:  # a new entry each time, within LATER_S of the one before
            folders.committed(list(replay(live))[-1])
            folders.committed(changes[paused - 1])
            await until(lambda: journals.reads)
            assert journals.reads == [RUN_ID]
            journals.reads.clear()
            now += 0.04
        now += 1
        await until(lambda: workspace.has_pages(RUNS[0]))
    assert workspace.has_pages(RUN_ID)


async def test_only_the_runs_that_ended_last_are_rendered_and_those_with_artifacts_to_be_copied(
    workspace: Workspace,
) -> None:
    ended = [one_step(name) for name in RUNS]
    journals = Journals(entries_of(worked_example()), *map(entries_of, ended))
    async with running(keeping_in(workspace, journals, Shelf(ARTIFACTS), keep=2), worked_example(), *ended):
        await until(lambda: pages(workspace, (RUN_ID, *RUNS)) == [*RUNS[-2:]])
    assert journals.reads == [RUN_ID, *RUNS[-2:]]
    assert workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE


async def test_what_rests_is_rendered_before_what_stood_still_longer_and_a_reopened_run_keeps_its_pages(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "LATER_S", 0.0)
    live = list(replay(entries_of(one_step(RUNS[0]))[:4]))[-1]
    journals = Journals(entries_of(one_step(RUNS[0]))[:4], entries_of(one_step(RUNS[1])))
    folders = keeping_in(workspace, journals, keep=1)
    for change in (last(one_step(RUNS[0])), live, last(one_step(RUNS[1]))):
        folders.committed(change)
    async with running(folders):
        await until(lambda: pages(workspace, RUNS) == [*RUNS[:2]])
    assert journals.reads == [*RUNS[1::-1]]
    for change in (last(one_step(RUNS[0])), last(one_step(RUNS[1])), live):
        folders.committed(change)
    workspace.remove_pages(RUNS)
    for name in RUNS[:2]:
        await folders.refreshed(name)
    assert pages(workspace, RUNS) == [*RUNS[:2]]


async def test_a_folder_is_read_as_its_journal_stands_also_one_that_was_put_away_or_that_a_crash_left_behind(
    workspace: Workspace, root: Path
) -> None:
    commits, entries = commits_of(one_step()), entries_of(one_step())
    journals = Journals(entries[:4])
    for left in (commits[:4], commits):  # each time by an agent that has rendered nothing yet
        journals.journals[RUN_ID] = [commit.entry for commit in left]
        files = keeping_in(workspace, journals)
        assert await files.read(RUN_ID, "decisions.md")
        assert verify(left, workspace, RUN_ID) == []
    reads = len(journals.reads)
    async with asyncio.timeout(5), files.at_rest(()):  # as while another run is rendered
        assert await files.files(RUN_ID)
    assert len(journals.reads) == reads, "it is up to date"
    (root / RUN_ID / "plan.md").unlink()
    assert await files.read(RUN_ID, "plan.md")
    workspace.remove_pages([RUN_ID])
    listing = await files.files(RUN_ID)
    assert listing
    assert {file.path for file in listing.files} == {*FILES}
    (root / RUNS[1]).mkdir(parents=True)
    (root / RUNS[1] / "plan.md").mkdir()
    assert await files.read(RUNS[2], "plan.md") is None, "there is no such run"


async def test_what_can_never_be_rendered_is_given_up_and_holds_up_no_other(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torn, newer, foreign, sound = (one_step(name) for name in RUNS[:4])
    unlawful = Script() >> asked_for("goal", run_id="R1")
    unknown = replace(entries_of(newer)[3], kind="FutureEvent")
    journals = Journals(*map(entries_of, (torn, newer, foreign, sound, unlawful)))
    journals.journals[RUNS[0]][3] = replace(entries_of(torn)[3], event="{")
    journals.journals[RUNS[1]][3:] = [replace(unknown, hash=unknown.recomputed_hash())]
    workspace.write(RUNS[4], {})
    (root / RUNS[2]).write_text("a file where a folder should be")
    folders = keeping_in(workspace, journals)
    for script in (torn, newer, foreign, unlawful, sound):
        folders.committed(last(script))
    await folders.flush()
    assert [found.run_id for found in journals.damaged] == [RUNS[0]]
    given_up = [record.__dict__["run_id"] for record in caplog.records if "given up" in record.getMessage()]
    assert sorted(given_up) == ["R1", *RUNS[1:3]]
    assert verify(commits_of(sound), workspace, RUNS[3]) == []


async def test_a_disk_that_fails_is_tried_again_and_told_of_once(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = [one_step(name) for name in RUNS[:2]]
    await asyncio.to_thread(root.write_text, "no folder")
    async with running(keeping_in(workspace, Journals(*map(entries_of, ended))), *ended) as folders:
        await until(lambda: caplog.records)
        with pytest.raises(TryAgain, match="the files of run"):
            await folders.refreshed(RUNS[0])
        await asyncio.to_thread(root.unlink)
        await until(lambda: pages(workspace, RUNS) == [*RUNS[:2]])
        await until(lambda: len(caplog.records) == 2)
    assert ["is away" in record.getMessage() for record in caplog.records] == [True, False]


async def test_artifacts_are_copied_once_and_only_if_they_are_what_the_journal_names(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf, critique = Shelf(ARTIFACTS | {"artifacts/critique.md": b"forged"}), "artifacts/critique.md"

    async def rendered() -> None:
        await keeping_in(workspace, Journals(entries_of(worked_example())), shelf).refreshed(RUN_ID)

    await rendered()
    assert workspace.read(RUN_ID, "artifacts/fetch-01.html") == PAGE
    assert workspace.read(RUN_ID, critique) is None
    assert "artifact not copied" in caplog.text
    shelf.contents = dict(ARTIFACTS)
    await rendered()
    assert workspace.read(RUN_ID, critique) == CRITIQUE
    (root / RUN_ID / critique).write_bytes(b"changed on disk")
    await rendered()
    assert workspace.read(RUN_ID, critique) == CRITIQUE
    assert shelf.reads.count("artifacts/fetch-01.html") == 1


async def test_a_run_that_is_deleted_is_not_rendered_meanwhile_nor_afterwards(workspace: Workspace) -> None:
    journals = Journals(entries_of(one_step(RUNS[0])), entries_of(one_step(RUNS[1])))
    folders = keeping_in(workspace, journals)
    async with folders.at_rest([RUNS[0]]), running(folders, one_step(RUNS[0]), one_step(RUNS[1])):
        await asyncio.sleep(0.05)
        assert pages(workspace, RUNS) == []
    async with folders.at_rest([RUNS[0]]):
        pass
    await folders.flush()
    assert pages(workspace, RUNS) == [RUNS[1]]


# What is read of a folder


async def test_an_artifact_is_read_from_its_copy_or_else_from_the_store_and_never_what_is_not_recorded(
    workspace: Workspace,
) -> None:
    shelf, critique = Shelf(dict(ARTIFACTS)), "artifacts/critique.md"
    files = keeping_in(workspace, Journals(entries_of(worked_example())), shelf)
    assert await files.read(RUN_ID, critique) == CRITIQUE
    workspace.write(RUN_ID, {critique: b"forged"})
    assert await files.read(RUN_ID, critique) == CRITIQUE
    shelf.contents = {"artifacts/other.md": b"named by no journal"}
    with pytest.raises(ArtifactChanged, match=critique):
        await files.read(RUN_ID, critique)
    assert await files.read(RUN_ID, "artifacts/other.md") is None
    shelf.failure = TryAgain("the bus is away")
    workspace.write(RUN_ID, {critique: CRITIQUE})
    assert await files.read(RUN_ID, critique) == CRITIQUE
    assert await files.read(RUN_ID, "plan.md")


# Pages that are put away


PAGES = dict.fromkeys(FILES, b"as the journal has it\n")


def test_artifacts_and_what_is_not_ours_stay(workspace: Workspace, root: Path) -> None:
    workspace.write(RUNS[0], PAGES | {"artifacts/page.md": b"# A page\n"})
    (root / RUNS[0] / "mine.txt").write_text("a note")
    workspace.remove_pages(RUNS[:1])
    assert names(root / RUNS[0]) == ["artifacts/page.md", "mine.txt"]
    assert not workspace.has_pages(RUNS[0])


@pytest.mark.attack
def test_nothing_is_removed_behind_a_link(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "plan.md").write_text("another's plan")
    workspace.write(RUNS[1], PAGES)
    (root / RUNS[0]).symlink_to(elsewhere)
    with pytest.raises(OSError, match="no plain file or folder of ours"):
        workspace.remove_pages(RUNS[:2])
    assert (elsewhere / "plan.md").exists()
    assert not workspace.has_pages(RUNS[1])


def test_a_run_is_whole_without_its_pages_and_not_without_some_of_them(workspace: Workspace) -> None:
    for commits in (commits_of(one_step(RUNS[0])), commits_of(one_step(RUNS[0]))[:4]):
        assert verify(commits, workspace, RUNS[0]) == []
    workspace.write(RUNS[0], {"plan.md": b"something\n"})
    assert {flaw.kind for flaw in verify(commits, workspace, RUNS[0])} == {"missing", "changed"}


# Several agents of one store


def agent(member: Member, folder: Path, shelf: Shelf) -> tuple[SharedStore, Workspace, Folders]:
    workspace = Workspace(folder)
    return member.store, workspace, Folders(member.store, workspace, shelf, keep=25)


async def read_here(store: SharedStore, files: Folders) -> bytes | None:
    """Reads as the API does, which waits for entries of other agents."""
    await store.caught_up()
    return await files.read(RUN_ID, "trace.jsonl")


async def test_a_folder_is_as_new_as_the_newest_entry_and_not_shown_where_it_is_not(tmp_path: Path) -> None:
    log, shelf, commits = MemoryLog(), Shelf(dict(ARTIFACTS)), commits_of(worked_example())
    async with joined(log, tmp_path) as a, joined(log, tmp_path) as b:
        agents = [agent(member, tmp_path / name, shelf) for member, name in ((a, "of-a"), (b, "of-b"))]
        for number, commit in enumerate(commits[:-1]):
            await committed(agents[number % 2][0], commit)
        shelf.failure = TryAgain("the bus is away")
        with pytest.raises(TryAgain):
            await agents[1][2].files(RUN_ID)
        shelf.failure = None
        before = [await read_here(store, files) for store, _, files in agents]
        await committed(a.store, commits[-1])
        after = [await read_here(store, files) for store, _, files in agents]
        assert before[0] == before[1] != after[0] == after[1]
        for _, workspace, files in agents:
            listing = await files.files(RUN_ID)
            assert listing
            assert ARTIFACTS.keys() <= {file.path for file in listing.files}
            assert verify(commits_of(worked_example()), workspace, RUN_ID) == []
