"""Pages of runs that ended long ago are put away, and are there again for whoever asks for them."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_service.audit.process import Telling, TrailProcess
from agent_service.run.ports import Wake
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.on_demand import PutAway
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import Shelf
from agent_service.telling.outputs import FILES
from tests.core.script import Script
from tests.kit.runs import run_id
from tests.projections.fakes import Shelf as Bucket
from tests.projections.journals import commits_of, entries_of, five_steps

RUNS = [run_id(number) for number in range(1, 6)]
PAGES = dict.fromkeys(FILES, b"as the journal has it\n")


def lying(workspace: Workspace) -> list[str]:
    return [name for name in RUNS if workspace.has_pages(name)]


def test_the_pages_that_were_written_last_stay_and_those_of_runs_that_go_on(workspace: Workspace) -> None:
    shelf = Shelf(workspace, keep=2)
    for number, name in enumerate(RUNS):
        workspace.write([(name, PAGES)])
        shelf.written(name, ended=number != 0)
    shelf.written(RUNS[1], ended=True)  # somebody has asked for it again
    shelf.clear()
    assert lying(workspace) == [RUNS[0], RUNS[1], RUNS[4]]
    assert workspace.files(RUNS[2]) is None


def test_artifacts_and_what_is_not_ours_stay(workspace: Workspace, root: Path) -> None:
    workspace.write([(RUNS[0], PAGES | {"artifacts/page.md": b"# A page\n"}), (RUNS[1], PAGES)])
    (root / RUNS[1] / "mine.txt").write_text("a note")
    workspace.put_away(RUNS)
    assert workspace.read(RUNS[0], "artifacts/page.md") == b"# A page\n"
    assert (root / RUNS[1] / "mine.txt").read_text() == "a note"
    assert lying(workspace) == []


@pytest.mark.attack
def test_nothing_is_removed_behind_a_link(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "plan.md").write_text("another's plan")
    workspace.write([(RUNS[1], PAGES)])
    (root / RUNS[0]).symlink_to(elsewhere)
    with pytest.raises(OSError, match="no plain file or folder of ours"):
        workspace.put_away(RUNS[:1])
    assert (elsewhere / "plan.md").exists()


def test_a_run_that_has_ended_is_whole_without_its_pages_and_not_without_some_of_them(workspace: Workspace) -> None:
    script = five_steps(RUNS[0])
    assert verify(entries_of(script), workspace, RUNS[0]) == []
    workspace.write([(RUNS[0], {"plan.md": b"something\n"})])
    assert {flaw.kind for flaw in verify(entries_of(script), workspace, RUNS[0])} == {"missing", "changed"}


async def stored(store: SqliteStore, script: Script, name: str) -> None:
    first, *others = commits_of(script)
    await store.accept(Wake(wake_id=name, digest=""), first)
    for commit in others:
        await store.commit(commit)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path / "store") as opened:
        yield opened


async def test_who_asks_for_pages_that_were_put_away_gets_them_as_they_were(
    store: SqliteStore, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(RUNS[:3]):
        await stored(store, five_steps(name), str(number))
    bucket = Bucket({})
    with closing(TrailProcess(tmp_path / "store", root, Telling(keep_pages=1))) as trails:
        projector = Projector(trails, workspace, bucket)
        files = RunFiles(workspace, store, bucket, PutAway(store, projector, workspace).bring_back)
        await projector.write(RUNS[0])
        before = workspace.read(RUNS[0], "decisions.md")
        await projector.write(RUNS[1])
        assert lying(workspace) == [RUNS[1]]
        assert before is not None
        assert await files.read(RUNS[0], "decisions.md") == before
        assert lying(workspace) == [RUNS[0]]
        listing = await files.files(RUNS[2])
        assert listing is not None
        assert {file.path for file in listing.files} == set(FILES)
        assert await files.files(RUNS[4]) is None
