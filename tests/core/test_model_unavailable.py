"""When the model is not to be had: wait durably, pause, fail or escalate, as the remedy says."""

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_paused_run,
    a_planning_run,
    a_reflecting_run,
    due,
    plans,
    reflects,
    resume,
    too_early,
    unavailable,
)
from tests.core.model_cues import reserves
from tests.core.script import NOTHING, Script, abandons, asks, escalates, fails, ignores, pauses, requests


def test_a_model_that_may_answer_later_is_asked_again_after_a_growing_delay() -> None:
    run = a_planning_run()
    delays = []
    for _ in range(6):
        failed_at = run.now
        run >> unavailable("try_again") << NOTHING
        run >> due << asks("plan")
        delays.append((run.now - failed_at).total_seconds())
    assert delays == [2, 5, 15, 30, 60, 60]


def test_the_same_call_is_made_again() -> None:
    run = a_planning_run() >> unavailable("try_again") >> due
    assert run.state.asking is not None
    assert run.state.asking.call == 2
    run >> plans() << requests("fetch", step=1)


def test_the_model_s_own_delay_is_kept() -> None:
    run = a_planning_run() >> unavailable("try_again", retry_after_s=17.5)
    run.wait(seconds=17) >> too_early << ignores("nothing is due")
    run.wait(seconds=0.5) >> too_early << asks("plan")


def test_waiting_for_the_model_costs_no_repair() -> None:
    run = a_planning_run(max_repairs=0) >> unavailable("try_again") >> due >> unavailable("try_again") >> due
    run >> plans() << requests("fetch", step=1)


def test_a_reply_that_comes_while_the_call_is_put_off_counts() -> None:
    run = a_planning_run() >> unavailable("try_again")
    run >> plans() << requests("fetch", step=1)


def test_a_model_that_needs_a_person_pauses_the_run() -> None:
    run = a_reflecting_run()
    run >> unavailable("pause", error_class="credit") << (abandons(), pauses("credit"))
    assert run.state.status is Status.PAUSED
    run >> resume() << asks("reflect")
    run >> reflects("continue") << asks("plan")


def test_a_paused_run_waits_for_no_instant() -> None:
    run = a_paused_run()
    assert run.state.due_at is None
    run.wait(minutes=30) >> too_early << ignores("nothing is due")


def test_a_wrong_model_configuration_fails_the_run() -> None:
    run = a_planning_run()
    (
        run
        >> unavailable("fail", error_class="authentication", message="set the key")
        << (
            abandons(),
            fails("authentication"),
        )
    )
    assert run.sent("agent.failed")["reason"] == "set the key"


def test_a_refusal_of_the_model_escalates() -> None:
    run = a_planning_run()
    run >> unavailable("escalate", error_class="refusal") << (abandons(), escalates("refusal"))


def test_a_senseless_delay_does_not_break_the_run() -> None:
    for delay in (1e300, 1e13, float("inf"), float("nan")):
        a_planning_run() >> unavailable("try_again", retry_after_s=delay) << NOTHING


def silent(run: Script, *, tokens: int = 300) -> Script:
    """A call was made, said something, and then nothing."""
    return run >> unavailable("try_again", error_class="model_timeout", message="silence", lost=(tokens, 0.03))


def test_what_a_call_has_cost_that_fell_silent_is_charged() -> None:
    run = a_planning_run() >> reserves(tokens=4000, cost=0.4)
    silent(run)
    assert (run.state.spent.lost_calls, run.state.spent.lost_tokens, run.state.spent.lost_cost_usd) == (1, 300, 0.03)
    assert run.state.reserve is None


def test_a_call_that_fell_silent_three_times_in_a_row_pauses_the_run() -> None:
    run = a_planning_run()
    silent(silent(run) >> due) >> due
    silent(run) << (abandons(), pauses("model_timeout"))
    assert "fell silent 3 times in a row" in run.state.reason
    assert "agent.model.timeout_s" in run.state.reason
    run >> resume() << asks("plan")
    silent(run) << NOTHING
    assert run.state.spent.lost_tokens == 1200


def test_silences_with_another_trouble_between_them_pause_nothing() -> None:
    run = a_planning_run()
    for _ in range(3):
        silent(silent(run) >> due) >> due
        run >> unavailable("try_again") << NOTHING
        run >> due
    assert run.state.status is Status.RUNNING


def test_a_model_that_cannot_be_reached_in_time_is_waited_for_without_end() -> None:
    run = a_planning_run()
    for _ in range(5):
        run >> unavailable("try_again", error_class="model_timeout") << NOTHING
        run >> due
    assert run.state.spent.lost_calls == 0
