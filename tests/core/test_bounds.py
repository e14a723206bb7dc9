"""However much is said to a run, its journal grows only so far."""

import pytest

from agent_service.core.decide import decide
from agent_service.core.people.hearing import MAX_SIGNALS
from agent_service.core.state import RunState, replace
from agent_service.core.tools.results import MOST_LATE
from tests.core.cues import a_finished_run, a_waiting_run, returns, signal
from tests.core.people_cues import a_run_for_answer, answer
from tests.core.script import NOTHING, Script, ignores


def talked_to(run: Script) -> RunState:
    return replace(run.state, signals=tuple(f"said-{number}" for number in range(MAX_SIGNALS)))


@pytest.mark.attack
def test_a_run_hears_so_many_signals_and_says_so_to_who_sends_more() -> None:
    run = a_waiting_run()
    for number in range(MAX_SIGNALS):
        run >> signal("message", message="go on", signal_id=f"said-{number}")
    run >> signal("message", message="and this") << ignores("what is to be added is for a new run")


def test_what_a_run_asked_for_it_hears_beyond_that() -> None:
    run = a_run_for_answer()
    said = answer()
    assert callable(said)
    assert decide(talked_to(run), said(run)).ignored is None


@pytest.mark.attack(98)
def test_so_many_late_results_are_recorded_and_no_more() -> None:
    run = a_finished_run()
    for attempt in range(1, MOST_LATE + 1):
        run >> returns(step=7, attempt=attempt) << NOTHING
    run >> returns(step=7, attempt=MOST_LATE + 1) << ignores("no more are kept")
