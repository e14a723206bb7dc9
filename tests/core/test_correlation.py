"""Which tool result counts: the rows of RFC-103's resume validation, and attempts on top of them."""

from collections.abc import Callable
from typing import Any

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_finished_run,
    a_framing_run,
    a_paused_run,
    a_planning_run,
    a_reflecting_run,
    a_retrying_run,
    a_run_paused_while_waiting,
    a_waiting_run,
    due,
    errs,
    garbled,
    goes_on,
    plans,
    queued,
    returns,
)
from tests.core.script import NOTHING, Script, asks, escalates, ignores, requests


@pytest.mark.parametrize("so_far", [queued, a_framing_run, a_planning_run])
def test_a_result_escalates_while_nothing_was_ever_asked_for(so_far: Callable[[], Script]) -> None:
    run = so_far()
    run >> returns(step=1)
    assert run.outcomes[-1] == escalates("protocol_violation")
    assert run.state.status is Status.ESCALATED
    assert "nothing is pending" in run.state.reason


def test_a_result_of_a_later_step_escalates_while_the_run_reflects() -> None:
    run = a_reflecting_run() >> returns(step=2)
    assert run.outcomes[-1] == escalates("protocol_violation")


def test_a_result_of_a_finished_step_is_ignored_whatever_else_is_wrong_with_it() -> None:
    run = a_reflecting_run() >> goes_on()
    run >> returns(step=1, tool="post", attempt=7) << ignores("step 1 is finished already")


def test_the_step_is_judged_before_the_tool() -> None:
    run = a_waiting_run() >> returns(step=2, tool="post")
    assert "from the future" in run.state.reason


def test_the_tool_is_judged_before_the_attempt() -> None:
    run = a_retrying_run() >> due >> returns(tool="post", attempt=1)
    assert "from tool post" in run.state.reason


def test_a_result_of_an_older_attempt_is_ignored() -> None:
    run = a_retrying_run()
    run >> due << requests("fetch", step=1, attempt=2)
    run >> returns(attempt=1) << ignores("attempt 1 was given up")
    run >> returns(attempt=2) << asks("reflect")


def test_an_older_attempt_is_ignored_while_the_next_one_waits_to_be_sent() -> None:
    a_retrying_run() >> returns(attempt=1) << ignores("attempt 1 was given up")


def test_a_result_that_names_no_attempt_answers_the_pending_one() -> None:
    a_waiting_run() >> returns(attempt=None) << asks("reflect")
    a_retrying_run() >> due >> returns(attempt=None) << asks("reflect")


def test_a_result_that_names_no_attempt_answers_nothing_while_no_attempt_is_out() -> None:
    a_retrying_run() >> returns(attempt=None) << ignores("attempt 2 of step 1 is not sent yet")


def test_a_message_that_names_no_attempt_and_comes_again_does_not_answer_the_next_one() -> None:
    run = a_waiting_run() >> errs(retryable=True, attempt=None, place="7") >> due
    run >> errs(retryable=True, attempt=None, place="7") << ignores("answered an earlier attempt of step 1")
    run >> returns(attempt=None, place="8") << asks("reflect")


def test_a_result_that_cannot_be_read_ends_the_wait_and_a_read_is_tried_again() -> None:
    run = a_waiting_run()
    run >> garbled() << NOTHING
    assert "step 1: fetch failed (invalid_result), attempt 2 follows" in run.state.summary
    run >> due << requests("fetch", step=1, attempt=2)


def test_a_result_that_cannot_be_read_leaves_a_write_in_doubt() -> None:
    run = a_planning_run() >> plans("post")
    run >> garbled() << escalates("in_doubt")


@pytest.mark.parametrize("wrong", [{"step": 2}, {"tool": "post"}, {"attempt": 2}])
def test_a_result_that_cannot_be_read_never_harms_what_it_does_not_relate_to(wrong: dict[str, Any]) -> None:
    a_waiting_run() >> garbled(**wrong) << ignores("")
    a_framing_run() >> garbled(step=1) << ignores("nothing is pending")


def test_a_result_of_an_attempt_that_was_never_asked_for_escalates() -> None:
    run = a_waiting_run()
    run >> returns(attempt=2) << escalates("protocol_violation")
    assert "attempt 2 of step 1 was never sent" in run.state.reason


def test_a_result_of_the_next_attempt_escalates_while_that_attempt_is_not_sent() -> None:
    a_retrying_run() >> returns(attempt=2) << escalates("protocol_violation")


def test_a_result_for_the_pending_attempt_counts_while_the_run_is_paused() -> None:
    run = a_run_paused_while_waiting()
    run >> returns() << NOTHING
    assert [record.status for record in run.state.completed] == ["ok"]


def test_a_wrong_tool_escalates_while_the_run_is_paused() -> None:
    run = a_run_paused_while_waiting()
    run >> returns(tool="post") << escalates("protocol_violation")


def test_a_duplicate_is_ignored_while_the_run_is_paused() -> None:
    a_paused_run() >> returns(step=1) << ignores("step 1 is finished already")


def test_a_late_result_is_recorded_once_and_changes_nothing_else() -> None:
    run = a_waiting_run() >> returns(tool="post")
    ended = run.state
    run >> returns(attempt=1) << NOTHING
    assert run.state.late == ((1, 1),)
    assert (run.state.status, run.state.reason, run.state.completed) == (ended.status, ended.reason, ())
    run >> returns(attempt=1) << ignores("came after the run ended (escalated)")
    run >> errs(attempt=1) << ignores("came after the run ended (escalated)")


def test_a_result_of_a_finished_step_is_no_news_after_the_end() -> None:
    a_finished_run() >> returns(step=1) << ignores("came after the run ended (done)")
