"""When the model is not to be had: wait durably, pause, fail or escalate, as the remedy says."""

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_planning_run,
    a_reflecting_run,
    due,
    reflects,
    resume,
    too_early,
    unavailable,
)
from tests.core.script import NOTHING, Script, abandons, asks, ignores, pauses


def test_a_model_that_may_answer_later_is_asked_again_after_a_growing_delay() -> None:
    run = a_planning_run()
    delays = []
    for _ in range(6):
        failed_at = run.now
        run >> unavailable("try_again") << NOTHING
        run >> due << asks("plan")
        delays.append((run.now - failed_at).total_seconds())
    assert delays == [2, 5, 15, 30, 60, 60]


def test_the_model_s_own_delay_is_kept() -> None:
    run = a_planning_run() >> unavailable("try_again", retry_after_s=17.5)
    run.wait(seconds=17) >> too_early << ignores("nothing is due")
    run.wait(seconds=0.5) >> too_early << asks("plan")


def test_a_model_that_needs_a_person_pauses_the_run() -> None:
    run = a_reflecting_run()
    run >> unavailable("pause", error_class="credit") << (abandons(), pauses("credit"))
    assert run.state.status is Status.PAUSED
    run >> resume() << asks("reflect")
    run >> reflects("continue") << asks("plan")


def test_a_senseless_delay_does_not_break_the_run() -> None:
    for delay in (1e300, 1e13, float("inf"), float("nan")):
        a_planning_run() >> unavailable("try_again", retry_after_s=delay) << NOTHING


def silent(run: Script, *, tokens: int = 300) -> Script:
    """A call was made, said something, and then nothing."""
    return run >> unavailable("try_again", error_class="model_timeout", message="silence", lost=(tokens, 0.03))


def test_a_call_that_fell_silent_three_times_in_a_row_pauses_the_run() -> None:
    run = a_planning_run()
    silent(silent(run) >> due) >> due
    silent(run) << (abandons(), pauses("model_timeout"))
    assert "fell silent 3 times in a row" in run.state.reason
    assert "agent.model.timeout_s" in run.state.reason
    run >> resume() << asks("plan")
    silent(run) << NOTHING
    assert run.state.spent.lost_tokens == 1200
