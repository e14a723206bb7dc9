"""The timeline: what a run did, from when until when."""

import pytest

from agent_service.core.waiting import Status
from agent_service.moments import retell
from agent_service.telling.timeline import Timeline
from agent_service.telling.timeline_items import TimelineItem, TimelineView
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
    errs,
    garbles,
    goes_on,
    queued,
    reflects,
    resume,
    returns,
    signal,
    unavailable,
)
from tests.core.model_cues import reserves
from tests.core.script import Cue, Script
from tests.projections.journals import MODEL, entries_of, priced_example, worked_example


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


def test_what_a_call_cost_is_told_once_though_it_served_two_phases() -> None:
    told = items(priced_example(), "phase")
    costs = [(item.phase, item.call, item.model, item.tokens and item.tokens.input, item.cost_usd) for item in told]
    assert costs == [
        ("frame", 1, MODEL, 800, 0.0042),
        ("plan", 1, MODEL, None, None),
        ("reflect", 2, MODEL, 5000, 0.01),
        ("plan", 2, MODEL, None, None),
        ("reflect", 3, MODEL, 5000, 0.01),
    ]


def test_the_words_are_those_of_the_journal() -> None:
    told = {item.title: item.text for item in items(a_retrying_run())}
    assert told["Attempt 1"] == "step 1: fetch failed: it broke"
    assert told["Tries again later"].startswith("step 1 (fetch handle), attempt 2 follows at 2026-11-21")
    assert told["Plan"] == "planned: fetch handle: the page is needed"


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


def test_an_attempt_without_an_answer_fails_its_step() -> None:
    script = a_waiting_run("post") >> due
    assert statuses(script, "step", "attempt", "ending") == [
        ("Step 1: post handle", "error"),
        ("Attempt 1", "error"),
        ("Escalated", "error"),
    ]


def test_a_model_that_is_away_is_a_failed_call_a_wait_and_the_same_call_again() -> None:
    script = a_reflecting_run() >> unavailable("try_again", retry_after_s=5.0) >> due
    *_, failed, wait, again = items(script)
    assert (failed.status, failed.error and failed.error.error_class) == ("error", "overloaded")
    assert (wait.kind, wait.status, seconds(wait)) == ("wait", "ok", 5.0)
    assert (again.status, again.call, again.phase) == ("open", failed.call, "reflect")


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


def test_a_pause_ends_when_a_person_lets_the_run_go_on() -> None:
    told = items(a_paused_run().wait(seconds=30) >> resume())
    pause = next(item for item in told if item.title == "Paused")
    assert (pause.status, seconds(pause)) == ("ok", 30)
    assert [(item.title, item.status) for item in told[-2:]] == [("Resumed", "ok"), ("Reflect", "open")]


def test_what_people_said_is_told() -> None:
    script = a_waiting_run() >> signal("message", message="be brief") >> cancel("enough")
    assert [(item.title, item.text) for item in items(script, "person")] == [
        ("Message", "os user ann: be brief"),
        ("Cancel", "cancel: enough"),
    ]


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


def test_a_result_that_came_too_late_changes_no_item_and_is_one_of_its_own() -> None:
    script = a_waiting_run() >> cancel()
    before = items(script)
    *same, late = items(script >> returns())
    assert same == before
    assert (late.kind, late.status, late.parent) == ("attempt", "refused", "step:1")
    assert late.text == "step 1: fetch came after the run's end, which it does not change: result of step 1"


@pytest.mark.parametrize(
    ("script", "phase", "status"),
    [
        (a_planning_run() >> garbles(), "plan", "error"),
        (a_reflecting_run() >> reflects("done"), "reflect", "refused"),
        (a_reflecting_run() >> goes_on("nothing-such"), "plan", "refused"),
    ],
)
def test_a_decision_that_was_not_taken_up_says_why(script: Script, phase: str, status: str) -> None:
    *_, refused, again = items(script, "phase")
    assert (refused.phase, refused.status, again.status) == (phase, status, "open")
    assert refused.error is not None
    assert refused.error.retryable


def test_a_call_that_was_lost_with_its_process_says_so() -> None:
    script = a_planning_run() >> reserves(900, 0.1) >> reserves(900, 0.1)
    call = items(script)[-1]
    assert (call.status, call.model) == ("open", "priced")
    assert "lost with the process" in call.text


def test_ids_are_unique_and_stay_while_the_journal_grows() -> None:
    entries = entries_of(priced_example())
    timeline, seen = Timeline(), dict[str, int]()
    for moment in retell(entries):
        timeline.hear([moment, moment])
        now = {item.id: item.entry for item in timeline.view("run").items}
        assert seen.items() <= now.items()
        seen = now
    assert list(seen) == [item.id for item in items(priced_example())]


def test_a_failed_step_that_the_model_is_told_of_is_an_error() -> None:
    assert statuses(a_waiting_run() >> errs("not_found"), "step") == [("Step 1: fetch handle", "error")]


def test_a_wait_that_another_answer_overtakes_is_over() -> None:
    later = unavailable("try_again", retry_after_s=60.0)
    *_, first, second = items(a_reflecting_run() >> unavailable("try_again") >> later, "wait")
    assert (first.status, second.status) == ("cancelled", "waiting")
    assert first.ended_at == second.started_at
