"""Supervision of children beside what events do: what is owed to them, and an end that cannot be read."""

from agent_service.core import limits
from agent_service.core.brief import Grant, Parent
from agent_service.core.events import ToolReturned
from agent_service.core.graph import supervising
from agent_service.core.graph.children import run_id_of
from tests.core.cues import RUN_ID, a_waiting_parent, cancel, child_of, told_by, wakes_of


def test_a_child_has_the_name_that_its_request_gives_it() -> None:
    run = a_waiting_parent()
    (wake,) = wakes_of(run)
    assert wake.parent == Parent(run_id=RUN_ID, step=1, attempt=1)
    assert [wake.run_id] == [run_id_of(RUN_ID, run.pending)] == [child.run_id for child in run.state.children]


def test_a_child_that_cannot_be_read_any_more_is_an_error_of_its_step_and_has_spent_its_grant() -> None:
    run = a_waiting_parent(max_steps=9, max_tokens=1000)
    child, grant = child_of(run).state, run.pending.grant
    told = supervising.unreadable(run.state, child.run_id, "its state", run.now)
    assert told is not None
    assert grant is not None
    run = run >> ToolReturned(at=run.now, result=told)
    assert (run.outcomes, run.state.completed[-1].status) == (("ask reflect",), "error")
    assert (run.state.spent.lost_tokens, run.state.spent.child_steps) == (grant.tokens, grant.steps)
    assert supervising.unreadable(run.state, child.run_id, "its state", run.now) is None
    assert limits.set_aside(run.state) == Grant(steps=0, tokens=0, cost_usd=0.0)


def test_a_result_with_a_round_and_no_task_is_of_the_child_that_is_the_step_and_believed_no_more_for_it() -> None:
    run = a_waiting_parent()
    forged = told_by(child_of(run) >> cancel()).model_copy(update={"round": 7})
    assert supervising.awaited(run.state, forged) is run.pending
