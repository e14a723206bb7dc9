"""What goes by which rule, and what of it is removed beside the store, also where the bus is away meanwhile."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.archive.dependents import RunBelongings
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import Behind, Ended, Forgetting, Rules
from agent_service.core.waiting import Status
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.workspace import Workspace
from groundwork.service.errors import TryAgain
from tests.kit.crashes import Crash, Mortal, Points
from tests.kit.fakes import FakeClock, MemoryArtifacts
from tests.kit.runs import FRAMING, NOON, _reflection, accepted, plan, replied, returned, run_id, started, whole_run
from tests.ports.stores import stored

DAY = timedelta(days=1)
REPORT = "artifacts/report.md"
CONTENT = b"# Report\n"


class Bucket(MemoryArtifacts):
    """Artifacts on a bus that may be away."""

    away = False

    async def remove(self, run_id: str, path: str) -> None:
        if self.away:
            raise TryAgain("the bus is away")
        await super().remove(run_id, path)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspaces")


def pruning(store: SqliteStore, bucket: Bucket, folder: Path, **rules: Any) -> Pruning:
    """Two days after noon."""
    belongings = RunBelongings(folder / "workspaces", bucket)
    return Pruning(store.forgetting, belongings, Rules(**rules), FakeClock(NOON + 2 * DAY))


async def done(store: SqliteStore, bucket: Bucket, workspace: Workspace, number: int) -> str:
    """A run that has ended and brought a report, with a folder."""
    commits = [accepted(number)]
    commits.append(started(commits[-1]))
    commits += [replied(commits[-1], FRAMING)]
    commits += [replied(commits[-1], plan(1))]
    commits += [returned(commits[-1], artifacts=[{"path": REPORT, "size": len(CONTENT)}])]
    commits += [replied(commits[-1], *_reflection(1, last=True))]
    last = await stored(store, commits)
    store.told(last.entry.run_id, last.entry.seq)
    store._write_told()
    await store._database.write(lambda _: None)
    await bucket.put(last.entry.run_id, REPORT, CONTENT)
    assert not workspace.write([(last.entry.run_id, {"plan.md": b"# Plan\n", REPORT: CONTENT})])
    return last.entry.run_id


async def left(store: SqliteStore) -> list[str]:
    return sorted(line.run_id for line in await store.runs(limit=100))


async def test_a_run_goes_with_its_folder_and_its_artifacts(
    store: SqliteStore, bucket: Bucket, workspace: Workspace, tmp_path: Path
) -> None:
    run = await done(store, bucket, workspace, 1)
    pruned = await pruning(store, bucket, tmp_path, days={Status.DONE: DAY}).prune(rest=0)
    assert pruned.runs == {"agent.keep_runs.done_days: 1": 1}
    assert (await left(store), bucket.contents, workspace.files(run)) == ([], {}, None)


async def test_a_bus_that_is_away_holds_up_no_run_and_its_artifacts_go_with_the_next_pass(
    store: SqliteStore, bucket: Bucket, workspace: Workspace, tmp_path: Path
) -> None:
    for number in (1, 2):
        await done(store, bucket, workspace, number)
    bucket.away = True
    prunes = pruning(store, bucket, tmp_path, days={Status.DONE: DAY})
    assert "the bus is away" in (await prunes.prune(rest=0)).trouble
    assert (await left(store), len(bucket.contents)) == ([], 2)
    bucket.away = False
    assert (await prunes.prune(rest=0)).trouble == ""
    assert bucket.contents == {}


async def test_a_pass_that_is_killed_anywhere_leaves_whole_runs_and_the_next_one_ends_what_it_began(
    store: SqliteStore, bucket: Bucket, workspace: Workspace, tmp_path: Path
) -> None:
    await stored(store, whole_run(9)[:4])
    runs = [await done(store, bucket, workspace, number) for number in range(1, 4)]
    points, died = Points(), 0
    belongings = Mortal(RunBelongings(tmp_path / "workspaces", Mortal(bucket, points)), points)
    rules = Rules(days={Status.DONE: DAY}, most={"artifacts": 1})
    while True:
        points.strike_at(died + 1)
        forgetting = Mortal(OneAtATime(store.forgetting), points)
        try:
            await Pruning(forgetting, belongings, rules, FakeClock(NOON + 2 * DAY)).prune(rest=0)
        except Crash:
            died += 1
        else:
            break
        for run in runs:
            is_there, tombstone = await store.load(run), await store.tombstone(run)
            assert (is_there is None) == (tombstone is not None)
            whole = is_there and (workspace.files(run), await store.entries(run), bucket.contents.get((run, REPORT)))
            assert is_there is None or (whole and all(whole))
    assert died > 10
    assert (await left(store), bucket.contents) == ([run_id(9)], {})
    assert not any(workspace.files(run) for run in runs)
    assert not await store.forgetting.behind(10)


class OneAtATime:
    """Forgets one run of each step, so that a pass has more of them."""

    def __init__(self, forgetting: Forgetting) -> None:
        self._forgetting = forgetting

    def __getattr__(self, method: str) -> Any:
        return getattr(self._forgetting, method)

    async def forget(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        return [gone for run in runs for gone in await self._forgetting.forget([run], rule, now)]


async def test_artifacts_may_go_before_their_run_does(
    store: SqliteStore, bucket: Bucket, workspace: Workspace, tmp_path: Path
) -> None:
    run = await done(store, bucket, workspace, 1)
    prunes = pruning(store, bucket, tmp_path, artifacts=DAY)
    assert (await prunes.prune(rest=0)).artifacts == {"agent.keep_runs.artifacts_days: 1": 1}
    assert (await prunes.prune(rest=0)).artifacts == {}
    listing = workspace.files(run)
    assert listing is not None
    assert ([file.path for file in listing.files], bucket.contents, await left(store)) == (["plan.md"], {}, [run])


async def kept(store: SqliteStore, bucket: Bucket, folder: Path, most: Mapping[str, int]) -> list[str]:
    """What is left where there may be so many bytes of a kind; a dry run has told the same before."""
    prunes = pruning(store, bucket, folder, most=most)
    before = await left(store)
    would = {run.run_id for run, _ in (await prunes.preview()).listed}
    assert await left(store) == before
    await prunes.prune(rest=0)
    assert await left(store) == [run for run in before if run not in would]
    return await left(store)


async def test_the_oldest_runs_go_until_there_is_not_too_much_of_a_kind(
    store: SqliteStore, bucket: Bucket, workspace: Workspace, tmp_path: Path
) -> None:
    runs = [await done(store, bucket, workspace, number) for number in range(1, 5)]
    assert await kept(store, bucket, tmp_path, {"artifacts": 3 * len(CONTENT)}) == runs[1:]
    of_each = workspace.sizes()[runs[1]]
    assert await kept(store, bucket, tmp_path, {"workspaces": 2 * of_each}) == runs[2:]
