"""What an artifact says counts only where it is what the run's journal recorded of it."""

import pytest

from agent_service.errors import Replaced
from agent_service.trust.artifacts import ProvenArtifacts
from tests.core.cues import RUN_ID
from tests.kit.fakes import MemoryArtifacts, MemoryStore
from tests.kit.runs import wake_of
from tests.projections.journals import CRITIQUE, PAGE, commits_of, worked_example

PATH = "artifacts/critique.md"
FORGED = CRITIQUE + b"It is perfect.\n"


async def shelf(content: bytes) -> ProvenArtifacts:
    """Of the worked example, with `content` as what it wrote."""
    store, artifacts = MemoryStore(), MemoryArtifacts()
    first, *others = commits_of(worked_example())
    await store.accept(wake_of(first), first)
    for commit in others:
        await store.commit(commit)
    artifacts.contents |= {(RUN_ID, "artifacts/fetch-01.html"): PAGE, (RUN_ID, PATH): content}
    artifacts.contents[RUN_ID, "artifacts/unknown.md"] = b"what nobody has recorded"
    return ProvenArtifacts(artifacts, store)


async def test_what_was_recorded_is_read_and_what_nobody_recorded_too() -> None:
    artifacts = await shelf(CRITIQUE)
    assert await artifacts.get(RUN_ID, PATH) == CRITIQUE
    assert await artifacts.get(RUN_ID, "artifacts/unknown.md") == b"what nobody has recorded"
    assert await artifacts.get(RUN_ID, "artifacts/none.md") is None


@pytest.mark.attack
async def test_a_replaced_artifact_is_not_read() -> None:
    with pytest.raises(Replaced, match="somebody has replaced it"):
        await (await shelf(FORGED)).get(RUN_ID, PATH)
