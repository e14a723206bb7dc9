"""What waits for a person, as the store keeps it."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.core.events import ModelUnavailable, ToolReturned
from agent_service.errors import Remedy
from agent_service.run.journal import Commit
from agent_service.run.ports import Dismissal
from agent_service.store.sqlite import SqliteStore
from schemas.events import ToolOutput, ToolResult
from tests.kit.runs import NOON, SECOND, after, run_id, started, whole_run
from tests.kit.runs import accepted as accepted_run
from tests.ports.stores import stored


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path) as store:
        yield store


def stopped(number: int, remedy: Remedy) -> Sequence[Commit]:
    """A run that escalates (`escalate`) or pauses (`pause`) when it asks its first question, `number` seconds later."""
    begun = started(accepted_run(number))
    away = ModelUnavailable(at=NOON + number * SECOND, call=1, remedy=remedy, error_class="model_refused", message="no")
    return [accepted_run(number), begun, after(begun, away)]


def dismissal(number: int, version: int = 3, *, by: str = "token ops") -> Dismissal:
    return Dismissal(run_id=run_id(number), version=version, by=by, at=NOON + timedelta(hours=1))


async def waiting(store: SqliteStore, limit: int = 10) -> list[str]:
    return [run for run, _ in await store.inbox.runs(limit)]


async def test_paused_and_escalated_runs_wait_newest_first(store: SqliteStore) -> None:
    for commits in (
        stopped(3, "escalate"),
        stopped(1, "pause"),
        stopped(2, "escalate"),
        whole_run(4),
        stopped(5, "fail"),
    ):
        await stored(store, commits)
    assert await waiting(store) == [run_id(3), run_id(2), run_id(1)]
    assert await waiting(store, limit=2) == [run_id(3), run_id(2)]
    assert await store.inbox.count() == 3


async def test_a_dismissed_run_waits_for_nobody_and_who_was_first_stays_on_record(store: SqliteStore) -> None:
    await stored(store, stopped(1, "escalate"))
    assert await store.inbox.dismissal(run_id(1)) is None
    assert await store.inbox.dismiss(dismissal(1)) == dismissal(1)
    assert await store.inbox.dismiss(dismissal(1, by="token other")) == dismissal(1)
    assert await store.inbox.dismissal(run_id(1)) == dismissal(1)
    assert (await waiting(store), await store.inbox.count()) == ([], 0)


async def test_what_comes_for_a_dismissed_run_brings_it_back(store: SqliteStore) -> None:
    commits = list(whole_run(1)[:4])
    pending = commits[-1].state.pending
    assert pending is not None
    result = ToolResult(
        run_id=run_id(1), step=7, tool="search", status="ok", result=ToolOutput(), completed_at=NOON, attempt=1
    )
    commits.append(after(commits[-1], ToolReturned(at=NOON + 9 * SECOND, result=result)))
    await stored(store, commits)
    await store.inbox.dismiss(dismissal(1, version=5))
    assert await waiting(store) == []
    late = ToolReturned(at=NOON + 10 * SECOND, result=result.model_copy(update={"step": 1}))
    await store.commit(after(commits[-1], late))
    assert await waiting(store) == [run_id(1)]
    again = dismissal(1, version=6, by="token other")
    assert await store.inbox.dismiss(again) == again
