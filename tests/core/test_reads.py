"""Several reads of one plan: side by side, each judged and tried again by itself, and one reflection on all."""

import pytest

from agent_service.core.announcing import outstanding
from agent_service.core.flights import flights
from agent_service.core.phases import Plan
from agent_service.core.waiting import ForReads, ForTool, Status
from tests.core.cues import (
    cancel,
    due,
    errs,
    goes_on,
    plans,
    reflection,
    reflects,
    replies,
    returns,
    signal,
    unavailable,
)
from tests.core.people_cues import answer
from tests.core.read_cues import a_run_that_may_read, a_run_that_reads, plans_several, several
from tests.core.script import (
    NOTHING,
    Outcome,
    asks,
    cancels,
    completes,
    escalates,
    ignores,
    pauses,
    requests,
)

REOPENS = Outcome("publish agent.reopened")


def test_each_read_is_a_step_of_its_own_and_all_are_asked_for_at_once() -> None:
    run = a_run_that_may_read()
    run >> plans_several("fetch", "fetch", "fetch")
    run << (requests("fetch", step=1), requests("fetch", step=2), requests("fetch", step=3))
    assert run.said == ["plan: next: fetch handle, fetch handle, fetch handle", "act: " + run.state.summary]
    assert run.state.summary == "step 1: fetch handle; step 2: fetch handle; step 3: fetch handle"
    assert (run.state.step, run.state.attempts) == (3, 3)
    keys = [key for key in run.dedupe_keys if key.endswith(":request")]
    assert [key.split(":")[4] for key in keys] == ["1", "2", "3"]


def test_the_model_reflects_once_when_the_last_is_in_whatever_the_order() -> None:
    run = a_run_that_reads(3)
    run >> returns(step=2) << NOTHING
    run >> returns(step=3) << NOTHING
    run >> returns(step=1) << asks("reflect")
    assert [record.step for record in run.state.completed] == [2, 3, 1]
    assert run.state.spent.calls == 2


def test_the_next_step_comes_after_all_of_them() -> None:
    run = a_run_that_reads(2) >> returns(step=2) >> returns(step=1)
    run >> goes_on("post") << requests("post", step=3)
    assert isinstance(run.state.waiting, ForTool)


def test_each_of_them_proves_what_it_brought() -> None:
    run = a_run_that_reads(2) >> returns(step=2) >> returns(step=1)
    run >> reflects("done", {"d1": "step:1", "d2": "step:2", "d3": "step:2"}) << completes()


# RFC-103 for each of them


def test_a_duplicate_of_one_that_is_finished_is_ignored_while_others_are_out() -> None:
    run = a_run_that_reads(2) >> returns(step=2)
    run >> returns(step=2) << ignores("step 2 is finished already")
    assert [pending.step for pending in run.state.pendings] == [1]


def test_a_result_of_a_step_before_them_is_ignored() -> None:
    run = a_run_that_reads(2) >> returns(step=1) >> returns(step=2)
    run >> replies(reflection("continue"), plan=several("fetch", "fetch"))
    run >> returns(step=1, attempt=1) << ignores("step 1 is finished already")
    assert [pending.step for pending in run.state.pendings] == [3, 4]


@pytest.mark.parametrize("step", [1, 2])
def test_a_wrong_tool_for_any_of_them_escalates(step: int) -> None:
    run = a_run_that_reads(2)
    run >> returns(step=step, tool="post") << escalates("protocol_violation")
    assert "from tool post, but fetch is pending" in run.state.reason


def test_a_step_beyond_them_escalates() -> None:
    run = a_run_that_reads(2)
    run >> returns(step=3) << escalates("protocol_violation")
    assert "from the future: step 2 is pending" in run.state.reason


def test_an_attempt_that_was_given_up_is_ignored_and_the_others_go_on() -> None:
    run = a_run_that_reads(2) >> errs("upstream", retryable=True, step=2)
    run >> returns(step=2, attempt=1) << ignores("attempt 1 was given up")
    run >> returns(step=1) << NOTHING
    run >> due << requests("fetch", step=2, attempt=2)
    run >> returns(step=2, attempt=2) << asks("reflect")


def test_an_attempt_that_was_never_sent_escalates() -> None:
    run = a_run_that_reads(2) >> errs("upstream", retryable=True, step=2)
    run >> returns(step=2, attempt=2) << escalates("protocol_violation")


def test_a_result_that_names_no_attempt_answers_that_of_its_step_and_only_once() -> None:
    run = a_run_that_reads(2) >> errs("upstream", retryable=True, step=2, attempt=None, place="7") >> due
    run >> errs("upstream", retryable=True, step=2, attempt=None, place="7") << ignores("answered an earlier attempt")
    run >> returns(step=2, attempt=None, place="8") << NOTHING
    run >> returns(step=1, attempt=None, place="7") << asks("reflect")


def test_a_result_after_the_end_is_recorded_once_for_each() -> None:
    run = a_run_that_reads(2) >> cancel()
    run << cancels()
    run >> returns(step=2, attempt=1) << NOTHING
    run >> returns(step=1, attempt=1) << NOTHING
    run >> returns(step=2, attempt=1) << ignores("came after the run ended")
    assert run.state.late == ((2, 1), (1, 1))


# Retries


def test_each_is_tried_again_by_itself_at_its_own_instant() -> None:
    run = a_run_that_reads(3) >> errs("upstream", retryable=True, step=1) >> errs("upstream", retryable=True, step=3)
    run << NOTHING
    instants = {flight.pending.step: flight.retry_at for flight in flights(run.state.waiting)}
    assert instants[2] is None
    first, second = sorted((step for step in (1, 3)), key=lambda step: instants[step] or run.now)
    assert run.state.due_at == instants[first]
    run >> due << requests("fetch", step=first, attempt=2)
    run >> due << requests("fetch", step=second, attempt=2)


def test_one_whose_attempts_are_all_used_is_told_with_what_the_others_brought() -> None:
    run = a_run_that_reads(2, max_attempts=1) >> errs("upstream", retryable=True, step=1)
    run << NOTHING
    run >> returns(step=2) << asks("reflect")
    assert [(record.step, record.status) for record in run.state.completed] == [(1, "error"), (2, "ok")]


def test_the_slowest_is_given_up_in_its_time_and_then_the_model_reflects() -> None:
    run = a_run_that_reads(2, max_attempts=1) >> returns(step=1)
    run >> due << asks("reflect")
    assert "no result by" in run.state.completed[-1].summary


def test_retries_that_wait_count_against_the_attempts_of_the_run() -> None:
    run = a_run_that_reads(2, max_attempts_of_run=3)
    run >> errs("upstream", retryable=True, step=1) >> errs("upstream", retryable=True, step=2)
    run >> due << requests("fetch", step=1, attempt=2)
    run >> returns(step=1) << asks("reflect")
    assert run.state.attempts == 3


@pytest.mark.parametrize("error_class", ["configuration", "not_allowed", "storage_full"])
def test_what_neither_attempt_nor_plan_can_mend_ends_the_run_at_once(error_class: str) -> None:
    run = a_run_that_reads(2)
    run >> errs(error_class, step=2) << escalates(error_class)


# What may be planned together


@pytest.mark.parametrize(
    ("most", "planned", "why"),
    [
        (1, several("fetch", "fetch"), "the plan has 2 actions, and one may be planned now"),
        (2, several("fetch", "fetch", "fetch"), "the plan has 3 actions, and at most 2 may be planned now"),
        (3, several("fetch", "post"), "post handle has to be planned alone: it is no read"),
        (3, several("fetch", "save"), "save handle has to be planned alone: it is no read"),
        (3, Plan(action=several("fetch").action, also=(several("fetch").action,)), "the same action twice"),
        (3, several("fetch", "curl"), "tool 'curl' is not on offer"),
    ],
)
def test_the_model_is_told_why_actions_may_not_be_planned_together(most: int, planned: Plan, why: str) -> None:
    run = a_run_that_may_read(most)
    run >> replies(planned) << asks("plan")
    assert any(why in told for told in run.told())


def test_no_more_reads_are_planned_than_steps_are_left() -> None:
    run = a_run_that_may_read(3, max_steps=2)
    run >> plans_several("fetch", "fetch", "fetch") << asks("plan")
    assert run.told() == ("the plan has 3 actions, and at most 2 may be planned now",)


def test_no_more_reads_are_planned_than_attempts_are_left() -> None:
    run = a_run_that_may_read(3, max_attempts_of_run=2)
    run >> plans_several("fetch", "fetch", "fetch") << asks("plan")


def test_a_read_that_brought_the_same_three_times_may_not_be_planned_among_others() -> None:
    run = a_run_that_may_read(2)
    for first in (1, 3, 5):
        plan = several("fetch", "fetch")
        run >> (replies(plan) if first == 1 else replies(reflection("continue"), plan=plan))
        run >> returns(step=first, output={"summary": "same"}) >> returns(step=first + 1, output={"summary": "same"})
    assert run.told() == ("this action has brought this same result three times: choose another, or end the run",)
    run >> replies(reflection("continue"), plan=several("fetch", "fetch")) << escalates("stuck_loop")


# Pauses, the end, and what is said again


def test_results_that_come_while_paused_are_taken_up_and_the_reflection_waits() -> None:
    run = a_run_that_reads(2, on_budget="pause").wait(hours=1) >> due
    assert run.state.status is Status.PAUSED
    run >> returns(step=2) << NOTHING
    run >> returns(step=1) << NOTHING
    run >> signal("raise_budget", deadline_at=run.now.replace(hour=23)) << asks("reflect")


def test_what_is_still_out_is_waited_for_after_a_pause() -> None:
    run = a_run_that_reads(2, on_budget="pause").wait(hours=1) >> due >> returns(step=1)
    run >> signal("raise_budget", deadline_at=run.now.replace(hour=23)) << NOTHING
    assert isinstance(run.state.waiting, ForReads)
    run >> returns(step=2) << asks("reflect")


def test_what_is_said_again_is_every_request_that_is_out_and_no_other() -> None:
    run = a_run_that_reads(3) >> returns(step=1) >> errs("upstream", retryable=True, step=2)
    assert [effect.key.split(":")[4] for effect in outstanding(run.state)] == ["3"]


def test_an_answer_reopens_a_run_with_what_its_reads_have_brought_meanwhile() -> None:
    run = a_run_that_reads(3) >> returns(step=1) >> errs("configuration", step=2)
    run >> returns(step=3, attempt=1)
    run >> answer("the token is mended") << (REOPENS, asks("reflect"))
    finished = [(record.step, record.status) for record in run.state.completed]
    assert finished == [(1, "ok"), (2, "error"), (3, "ok")]


def test_an_answer_reopens_a_run_that_waits_still_for_the_read_that_is_out() -> None:
    run = a_run_that_reads(2) >> errs("configuration", step=2)
    run >> answer("the token is mended") << REOPENS
    assert [pending.step for pending in run.state.pendings] == [1]
    run >> returns(step=1) << asks("reflect")


def test_several_that_find_no_step_left_are_kept_and_made_without_another_call() -> None:
    run = a_run_that_may_read(2, max_steps=1, on_budget="pause") >> plans() >> returns()
    run >> replies(reflection("continue"), plan=several("fetch", "browse")) << pauses("budget_steps")
    run >> signal("raise_budget", max_steps=3) << (requests("fetch", step=2), requests("browse", step=3))


def test_of_several_that_were_kept_no_more_are_made_than_there_is_room_for_now() -> None:
    run = a_run_that_may_read(2, max_steps=1, on_budget="pause") >> plans() >> returns()
    run = run >> replies(reflection("continue"), plan=several("fetch", "browse"))
    run >> signal("raise_budget", max_steps=2) << asks("plan")


def test_what_one_plan_brought_is_given_up_last_when_the_prompt_is_too_long() -> None:
    run = (
        a_run_that_may_read(2)
        >> plans()
        >> returns()
        >> replies(reflection("continue"), plan=several("fetch", "fetch"))
    )
    run = run >> returns(step=2) >> returns(step=3)
    run >> unavailable("shrink") << asks("reflect")
    assert [note.kind for note in run.state.notes] == ["memory", "step", "step"]
    run >> unavailable("shrink") << asks("reflect")
    assert [note.kind for note in run.state.notes] == ["memory", "step"]
