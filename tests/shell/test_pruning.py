"""Retention: which runs are deleted by which rule, with their dependents, also while the bus is away."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from agent_service.archive.pruning import Pruner
from agent_service.archive.retention import KeepRunsSettings
from agent_service.run.journal import Commit
from agent_service.store.database import FILE
from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import TryAgain
from tests.kit.disks import reserved, small_disk
from tests.kit.fakes import FakeClock, MemoryArtifacts
from tests.kit.runs import NOON, stopped, whole_run
from tests.ports.stores import stored

DAY = timedelta(days=1)
LATER = FakeClock(NOON + 2 * DAY)
REPORT, CONTENT = "artifacts/report.md", b"# Report\n"


@dataclass
class Kept:
    """A store and its dependents."""

    store: RunStore
    bucket: MemoryArtifacts
    workspace: Workspace

    def pruning(self, **rules: Any) -> Pruner:
        """Two days after noon."""
        return Pruner(self.store, self.workspace, self.bucket, KeepRunsSettings(**rules), 0.0, LATER)

    async def done(self, number: int) -> str:
        run = await self.ended(whole_run(number, artifacts=[{"path": REPORT, "size": len(CONTENT)}]))
        await self.bucket.put(run, REPORT, CONTENT)
        self.workspace.write(run, {"plan.md": b"# Plan\n", REPORT: CONTENT})
        return run

    async def ended(self, commits: Sequence[Commit]) -> str:
        last = await stored(self.store, commits)
        self.store.mark_dispatched(last.entry.run_id, last.entry.seq)
        self.store._write_dispatched()
        await self.store.database.write(lambda _: None)
        return last.entry.run_id

    async def left(self) -> list[str]:
        return sorted(line.run_id for line in await self.store.runs(limit=100))


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with RunStore.open(tmp_path / "store") as store:
        yield Kept(store, MemoryArtifacts(), Workspace(tmp_path / "workspaces"))


async def test_runs_go_with_folders_and_artifacts_and_what_a_bus_that_is_away_keeps_goes_with_the_next_pass(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await kept.done(number) for number in (1, 2)]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(kept.bucket, "remove", AsyncMock(side_effect=TryAgain("the bus is away")))
        pruned = await kept.pruning(done_days=1).prune(rest=0)
    assert (pruned.runs, "the bus is away" in pruned.trouble) == ({"agent.keep_runs.done_days: 1": 2}, True)
    assert (await kept.left(), len(kept.bucket.contents)) == ([], 2)
    assert (await kept.pruning(done_days=1).prune(rest=0)).trouble == ""
    assert (kept.bucket.contents, [kept.workspace.files(run) for run in runs]) == ({}, [None, None])


async def test_artifacts_may_go_before_their_run_does(kept: Kept) -> None:
    run = await kept.done(1)
    prunes = kept.pruning(artifacts_days=1)
    assert (await prunes.prune(rest=0)).artifacts == {"agent.keep_runs.artifacts_days: 1": 1}
    assert (await prunes.prune(rest=0)).artifacts == {}
    listing = kept.workspace.files(run)
    assert listing is not None
    assert ([file.path for file in listing.files], kept.bucket.contents, await kept.left()) == (["plan.md"], {}, [run])


async def test_the_oldest_runs_go_until_there_is_not_too_much_of_a_kind_and_a_dry_run_says_which(kept: Kept) -> None:
    async def left_of(most: Mapping[str, float], **days: float) -> list[str]:
        prunes = kept.pruning(max_gib={kind: size / 2**30 for kind, size in most.items()}, **days)
        before = await kept.left()
        would = {run.run_id for run, _ in (await prunes.preview()).listed}
        assert await kept.left() == before
        await prunes.prune(rest=0)
        assert await kept.left() == [run for run in before if run not in would]
        return await kept.left()

    runs = [await kept.done(number) for number in range(1, 5)]
    assert await left_of({"artifacts": 3 * len(CONTENT)}) == runs[1:]
    assert await left_of({"workspaces": 2 * kept.workspace.sizes()[runs[1]]}) == runs[2:]
    fits = sum(kept.workspace.sizes().values())
    kept.workspace.write(await kept.ended(stopped(50)), {"plan.md": CONTENT})
    assert await left_of({"workspaces": fits}, escalated_days=1) == runs[2:], "a rule of days made room already"


async def test_on_a_disk_whose_last_byte_is_used_runs_go_and_what_is_kept_for_that_is_there_again(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "12m") as disk:
        async with RunStore.open(disk / "agent", reserve=True) as store:
            kept = Kept(store, MemoryArtifacts(), Workspace(disk / "workspaces"))
            runs = [await kept.done(number) for number in range(1, 41)]
        before = reserved(disk / "agent" / FILE)
        with pytest.raises(OSError, match="No space"):
            (disk / "of-somebody-else").write_bytes(bytes(12 << 20))
        async with RunStore.open(disk / "agent", reserve=True) as store:
            pruned = await replace(kept, store=store).pruning(done_days=1).prune(rest=0)
        assert pruned.runs == {"agent.keep_runs.done_days: 1": len(runs)}
        assert reserved(disk / "agent" / FILE) >= before
