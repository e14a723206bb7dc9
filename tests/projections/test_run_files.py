"""A run's files as they are read: an artifact is there as soon as the journal names it, and is what it recorded."""

import pytest

from agent_service.telling.folder.run_files import ArtifactChanged, RunFiles
from agent_service.telling.folder.workspace import Workspace
from groundwork.service.errors import TryAgain
from tests.core.cues import RUN_ID
from tests.projections.fakes import Journals, Shelf
from tests.projections.journals import CRITIQUE, PAGE, entries_of, worked_example

PATH = "artifacts/critique.md"
ARTIFACTS = {"artifacts/fetch-01.html": PAGE, PATH: CRITIQUE}


def files_of(workspace: Workspace, shelf: Shelf) -> RunFiles:
    return RunFiles(workspace, Journals(entries_of(worked_example())), shelf)


async def test_an_artifact_that_has_no_copy_yet_is_read_from_the_store(workspace: Workspace) -> None:
    assert await files_of(workspace, Shelf(ARTIFACTS)).read(RUN_ID, PATH) == CRITIQUE


async def test_a_copy_that_is_what_the_journal_recorded_is_read_without_the_store(workspace: Workspace) -> None:
    workspace.write([(RUN_ID, {PATH: CRITIQUE, "plan.md": b"# Plan"})])
    shelf = Shelf()
    shelf.failure = TryAgain("the bus is away")
    files = files_of(workspace, shelf)
    assert await files.read(RUN_ID, PATH) == CRITIQUE
    assert await files.read(RUN_ID, "plan.md") == b"# Plan"


async def test_a_copy_that_was_replaced_is_not_handed_out(workspace: Workspace) -> None:
    workspace.write([(RUN_ID, {PATH: b"forged"})])
    assert await files_of(workspace, Shelf(ARTIFACTS)).read(RUN_ID, PATH) == CRITIQUE
    with pytest.raises(ArtifactChanged, match=PATH):
        await files_of(workspace, Shelf()).read(RUN_ID, PATH)


async def test_what_the_journal_does_not_name_is_not_asked_of_the_store(workspace: Workspace) -> None:
    shelf = Shelf({"artifacts/other.md": b"of nobody"})
    assert await files_of(workspace, shelf).read(RUN_ID, "artifacts/other.md") is None
    assert shelf.reads == []
