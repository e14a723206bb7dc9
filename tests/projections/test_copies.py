"""Copies of artifacts in the run's folder: the ones that the journal names, and no others."""

from pathlib import Path

import pytest

from agent_service.errors import TryAgain
from agent_service.telling.folder.copies import MAX_ARTIFACTS
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.workspace import MAX_BYTES, Workspace
from agent_service.telling.verify import verify
from tests.core.cues import RUN_ID, a_waiting_run
from tests.kit.waiting import until
from tests.projections.fakes import Journals, Shelf
from tests.projections.journals import (
    CRITIQUE,
    PAGE,
    artifact,
    brings,
    entries_of,
    worked_example,
)
from tests.projections.loops import running

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


async def test_artifacts_are_copied_once_and_only_if_they_are_what_the_journal_names(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    entries = entries_of(worked_example())
    shelf = Shelf(ARTIFACTS | {"artifacts/critique.md": b"forged"})
    projector = Projector(Journals(entries), workspace, shelf)
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert workspace.read(RUN_ID, "artifacts/fetch-01.html") == PAGE
    assert workspace.read(RUN_ID, "artifacts/critique.md") is None
    assert "artifact not copied" in caplog.text
    shelf.contents = dict(ARTIFACTS)
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE
    assert shelf.reads.count("artifacts/fetch-01.html") == 1


async def test_an_artifact_that_was_changed_on_disk_is_copied_again(workspace: Workspace, root: Path) -> None:
    projector = Projector(Journals(entries_of(worked_example())), workspace, Shelf(ARTIFACTS))
    for content in (None, b"forged"):
        if content:
            (root / RUN_ID / "artifacts" / "critique.md").write_bytes(content)
        projector.catch_up([RUN_ID])
        await projector.flush()
    assert workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE


async def test_pages_are_written_while_the_store_of_artifacts_is_away(workspace: Workspace) -> None:
    shelf = Shelf(ARTIFACTS)
    shelf.failure = TryAgain("the bus is away")
    async with running(Projector(Journals(entries_of(worked_example())), workspace, shelf, soon_s=0.01)) as projector:
        projector.touched(RUN_ID, ended=True)
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        assert workspace.read(RUN_ID, "artifacts/critique.md") is None
        shelf.failure = None
        await until(lambda: workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE)


async def test_an_artifact_without_a_lawful_name_is_never_asked_for(workspace: Workspace, root: Path) -> None:
    shelf = Shelf({"../../evil": b"x"})
    named = [{"path": "../../evil"}, {"path": "artifacts/../evil"}, {"path": "artifacts/ok"}, {"path": 7}, "x"]
    script = a_waiting_run() >> brings(artifacts=named, artifact_path="/etc/passwd")
    projector = Projector(Journals(entries_of(script)), workspace, shelf)
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert shelf.reads == ["artifacts/ok"]
    assert not (root.parent / "evil").exists()


async def test_artifacts_beyond_the_quota_stay_in_the_store(workspace: Workspace) -> None:
    many = {f"artifacts/{number}.txt": b"x" for number in range(MAX_ARTIFACTS + 10)}
    huge = artifact("artifacts/0.txt", b"x") | {"size": MAX_BYTES + 1}
    named = [huge, *(artifact(path, content) for path, content in list(many.items())[1:])]
    shelf = Shelf(many)
    projector = Projector(Journals(entries_of(a_waiting_run() >> brings(artifacts=named))), workspace, shelf)
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert shelf.reads == [f"artifacts/{number}.txt" for number in range(1, MAX_ARTIFACTS)]


async def test_a_large_artifact_is_written_as_well_as_a_small_one(workspace: Workspace) -> None:
    large = b"x" * 3_000_000
    script = a_waiting_run() >> brings(artifacts=[artifact("artifacts/large.bin", large)])
    projector = Projector(Journals(entries_of(script)), workspace, Shelf({"artifacts/large.bin": large}))
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert verify(entries_of(script), workspace, RUN_ID) == []
