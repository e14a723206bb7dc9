"""Several reads of one plan: side by side, each judged and tried again by itself, and one reflection on all."""

import pytest

from agent_service.core.phases import Plan
from tests.core.cues import (
    errs,
    reflects,
    replies,
    returns,
)
from tests.core.people_cues import answer
from tests.core.read_cues import a_run_that_may_read, a_run_that_reads, several
from tests.core.script import (
    NOTHING,
    Outcome,
    asks,
    completes,
)

REOPENS = Outcome("publish agent.reopened")


def test_the_model_reflects_once_when_the_last_is_in_whatever_the_order() -> None:
    run = a_run_that_reads(3)
    run >> returns(step=2) << NOTHING
    run >> returns(step=3) << NOTHING
    run >> returns(step=1) << asks("reflect")
    assert [record.step for record in run.state.completed] == [2, 3, 1]
    assert run.state.spent.calls == 2


def test_each_of_them_proves_what_it_brought() -> None:
    run = a_run_that_reads(2) >> returns(step=2) >> returns(step=1)
    run >> reflects("done", {"d1": "step:1", "d2": "step:2", "d3": "step:2"}) << completes()


# RFC-103 for each of them


# Retries


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


# Pauses, the end, and what is said again


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
