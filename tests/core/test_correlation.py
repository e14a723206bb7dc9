"""Which tool result counts: the rows of RFC-103's resume validation, and attempts on top of them."""

from tests.core.cues import (
    a_planning_run,
    a_retrying_run,
    a_waiting_run,
    due,
    errs,
    garbled,
    plans,
    returns,
)
from tests.core.script import NOTHING, asks, escalates, ignores


def test_a_result_that_names_no_attempt_answers_the_pending_one() -> None:
    a_waiting_run() >> returns(attempt=None) << asks("reflect")
    a_retrying_run() >> due >> returns(attempt=None) << asks("reflect")


def test_a_message_that_names_no_attempt_and_comes_again_does_not_answer_the_next_one() -> None:
    run = a_waiting_run() >> errs(retryable=True, attempt=None, place="7") >> due
    run >> errs(retryable=True, attempt=None, place="7") << ignores("answered an earlier attempt of step 1")
    run >> returns(attempt=None, place="8") << asks("reflect")


def test_a_result_that_cannot_be_read_leaves_a_write_in_doubt() -> None:
    run = a_planning_run() >> plans("post")
    run >> garbled() << escalates("in_doubt")


def test_a_late_result_is_recorded_once_and_changes_nothing_else() -> None:
    run = a_waiting_run() >> returns(tool="post")
    ended = run.state
    run >> returns(attempt=1) << NOTHING
    assert run.state.late == ((1, 1),)
    assert (run.state.status, run.state.reason, run.state.completed) == (ended.status, ended.reason, ())
    run >> returns(attempt=1) << ignores("came after the run ended (escalated)")
    run >> errs(attempt=1) << ignores("came after the run ended (escalated)")


def test_the_step_is_judged_before_the_tool() -> None:
    run = a_waiting_run() >> returns(step=2, tool="post")
    assert "from the future" in run.state.reason
