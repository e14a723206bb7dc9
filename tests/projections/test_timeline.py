"""The timeline: what a run did, from when until when."""

import pytest

from agent_service.core.waiting import Status
from agent_service.run.moments import retell
from agent_service.telling.history.items import TimelineItem, TimelineView
from agent_service.telling.history.timeline import Timeline
from tests.core.cues import (
    a_paused_run,
    a_planning_run,
    a_reflecting_run,
    a_retrying_run,
    a_run_paused_while_waiting,
    a_waiting_run,
    breaks,
    cancel,
    due,
    queued,
    reserves,
    unavailable,
)
from tests.core.script import Cue, Script
from tests.projections.journals import entries_of, priced_example, worked_example


def timeline_of(script: Script) -> TimelineView:
    timeline = Timeline()
    timeline.hear(retell(entries_of(script)))
    return timeline.view(script.state.run_id)


def items(script: Script, *kinds: str) -> list[TimelineItem]:
    return [item for item in timeline_of(script).items if not kinds or item.kind in kinds]


def statuses(script: Script, *kinds: str) -> list[tuple[str, str]]:
    return [(item.title, item.status) for item in items(script, *kinds)]


def seconds(item: TimelineItem) -> float | None:
    return (item.ended_at - item.started_at).total_seconds() if item.ended_at else None


def test_a_run_is_told_as_phases_steps_and_attempts_in_the_order_in_which_they_began() -> None:
    told = items(worked_example())
    assert [(item.entry, item.kind, item.title, item.status) for item in told] == [
        (1, "accepted", "Accepted", "ok"),
        (2, "phase", "Frame", "ok"),
        (3, "phase", "Plan", "ok"),
        (4, "step", "Step 1: fetch handle", "ok"),
        (4, "attempt", "Attempt 1", "ok"),
        (5, "phase", "Reflect", "ok"),
        (6, "phase", "Plan", "ok"),
        (6, "step", "Step 2: text-report handle", "ok"),
        (6, "attempt", "Attempt 1", "ok"),
        (7, "phase", "Reflect", "ok"),
        (8, "ending", "Done", "ok"),
    ]
    assert [seconds(item) for item in told] == [2, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0]
    assert [item.parent for item in told if item.kind == "attempt"] == ["step:1", "step:2"]


def test_a_retry_is_a_failed_attempt_a_wait_and_another_attempt_of_the_same_step() -> None:
    script = a_retrying_run() >> due
    assert statuses(script, "step", "attempt", "wait") == [
        ("Step 1: fetch handle", "open"),
        ("Attempt 1", "error"),
        ("Tries again later", "ok"),
        ("Attempt 2", "open"),
    ]
    _, failed, wait, again = items(script, "step", "attempt", "wait")
    assert failed.error is not None
    assert (failed.error.error_class, failed.error.retryable) == ("upstream", True)
    assert (wait.until, wait.ended_at) == (again.started_at, again.started_at)
    assert again.until == script.pending.deadline_at


@pytest.mark.parametrize(
    ("script", "held"),
    [
        (a_paused_run(), []),
        (a_run_paused_while_waiting(), ["step:1", "step:1:attempt:1"]),
        (a_reflecting_run(on_budget="pause", max_tokens=300) >> reserves(9000, 0.1), []),
    ],
)
def test_a_pause_waits_for_a_person_while_a_tool_that_is_out_goes_on(script: Script, held: list[str]) -> None:
    assert script.state.status is Status.PAUSED
    told = items(script)
    assert (told[-1].title, told[-1].kind, told[-1].status) == ("Paused", "wait", "waiting")
    assert [item.id for item in told if item.ended_at is None and item is not told[-1]] == held


@pytest.mark.parametrize(
    "script",
    [
        queued(),
        a_planning_run(),
        a_waiting_run(),
        a_retrying_run(),
        a_paused_run(),
        a_reflecting_run() >> unavailable("try_again"),
    ],
)
@pytest.mark.parametrize(("ending", "status"), [(cancel(), "cancelled"), (breaks(), "error")])
def test_nothing_stays_open_when_a_run_ends(script: Script, ending: Cue, status: str) -> None:
    ended = Script()
    for moment in script.story:
        ended = ended >> moment.event
    told = items(ended >> ending)
    assert all(item.ended_at for item in told)
    assert (told[-1].kind, told[-1].status) == ("ending", status)
    assert "open" not in {item.status for item in told}


def test_ids_are_unique_and_stay_while_the_journal_grows() -> None:
    entries = entries_of(priced_example())
    timeline, seen = Timeline(), dict[str, int]()
    for moment in retell(entries):
        timeline.hear([moment, moment])
        now = {item.id: item.entry for item in timeline.view("run").items}
        assert seen.items() <= now.items()
        seen = now
    assert list(seen) == [item.id for item in items(priced_example())]
