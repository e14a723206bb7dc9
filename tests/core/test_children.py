"""Runs that are steps of runs: what a child is given and may spend, how its end comes home, who goes with whom."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core import limits
from agent_service.core.brief import Grant, Parent
from agent_service.core.events import ToolReturned
from agent_service.core.graph import supervising
from agent_service.core.graph.children import run_id_of
from agent_service.core.state import Doubt
from agent_service.core.waiting import ForModel, ForTool, Status
from schemas import subjects
from tests.core.child_cues import (
    AGENT,
    a_parent,
    a_waiting_parent,
    asks_agents,
    cancelled_by,
    child_of,
    comes_home,
    told_by,
    wakes_of,
)
from tests.core.cues import (
    DEADLINE,
    PROOF,
    RUN_ID,
    breaks,
    cancel,
    due,
    errs,
    frames,
    plans,
    queued,
    reflection,
    reflects,
    replies,
    returns,
    started,
    too_early,
    unavailable,
)
from tests.core.people_cues import answer, asks_a_person
from tests.core.script import NOTHING, Script, asks, cancels, cancels_child, ignores, requests, starts_child
from tests.core.task_cues import SKILLS, a_task, budget, continues, multi_step, retrieve


def test_a_child_is_asked_for_like_any_tool_and_started_once_that_is_said() -> None:
    run = a_parent() >> asks_agents("find a name", context={"topic": "cats"})
    run << (requests("agent", step=1), starts_child("find a name"))
    (wake,) = wakes_of(run)
    assert (wake.goal, wake.context, wake.depth) == ("find a name", {"topic": "cats"}, 1)
    assert wake.parent == Parent(run_id=RUN_ID, step=1, attempt=1)
    assert wake.run_id == run_id_of(RUN_ID, run.pending)
    assert [child.run_id for child in run.state.children] == [wake.run_id]
    assert run.sent(subjects.TOOL_REQUEST)["tool_payload"] == {"goal": "find a name", "context": {"topic": "cats"}}


def test_its_parent_rests_until_it_ends_and_reflects_on_what_it_brought() -> None:
    run = a_waiting_parent()
    child = child_of(run) >> plans() >> returns() >> reflects("done", PROOF)
    assert isinstance(run.state.waiting, ForTool)
    run >> comes_home(child) << asks("reflect")
    (record,) = run.state.completed
    assert (record.tool, record.status, record.summary) == ("agent", "ok", "looked at the result")
    assert run.state.last_result is not None
    assert run.state.last_result.output["run_id"] == child.state.run_id


def test_a_run_has_no_agent_on_offer_at_the_deepest_level_nor_by_default() -> None:
    assert "agent" not in [skill.name for skill in a_parent(max_depth=0).state.brief.skills]
    assert "agent" not in [skill.name for skill in child_of(a_waiting_parent()).state.brief.skills]
    assert "agent" in [skill.name for skill in child_of(a_waiting_parent(max_depth=2)).state.brief.skills]


@pytest.mark.parametrize("named", [["fetch"], ["fetch", "agent"]])
def test_a_child_has_the_tools_that_it_is_given_and_no_others(named: list[str]) -> None:
    run = a_waiting_parent(call={"tools": named}, max_depth=2)
    assert [skill.name for skill in child_of(run).state.brief.skills] == named
    grandchild = child_of(run) >> asks_agents("deeper")
    if "agent" in named:
        assert [skill.name for skill in child_of(grandchild).state.brief.skills] == ["fetch"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"tools": ["mail"]}, "tools mail are not on offer here"),
        ({"goal": "  "}, "must not be blank"),
        ({"constraints": {"max_steps": 0}}, "max_steps"),
        ({"constraints": {"deadline_at": "tomorrow"}}, "RFC 3339"),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_told_to_the_model(call: dict[str, object], why: str) -> None:
    run = a_parent() >> asks_agents("find a name", **call)
    run << asks("plan")
    assert why in " ".join(run.told())


def test_no_more_children_work_at_once_than_the_run_may_have() -> None:
    run = a_parent(max_children=2) >> asks_agents("one", "two", "three")
    assert "at most 2 may work at the same time" in " ".join(run.told())
    run >> asks_agents("one", "two")
    run << (requests("agent", step=1), requests("agent", step=2), starts_child("one"), starts_child("two"))


# What it may spend


def test_a_child_gets_three_quarters_of_what_is_left_and_gives_back_what_it_does_not_spend() -> None:
    run = a_waiting_parent(max_steps=9, max_tokens=1000, max_cost_usd=1.02)
    (wake,) = wakes_of(run)
    assert run.pending.grant == Grant(steps=6, tokens=600, cost_usd=0.75)
    assert (wake.limits.max_steps, wake.limits.max_tokens, wake.limits.max_cost_usd) == (6, 600, 0.75)
    child = child_of(run) >> plans() >> returns() >> reflects("done", PROOF)
    run >> comes_home(child)
    assert (run.state.spent.tokens, run.state.spent.calls, run.state.spent.child_steps) == (500, 5, 1)
    assert run.state.spent.cost_usd == pytest.approx(0.05)
    run >> reflects("continue") >> asks_agents("again")
    grant = run.pending.grant
    assert grant is not None
    assert (grant.steps, grant.tokens) == (5, 225)
    assert grant.cost_usd == pytest.approx(0.7125)


def test_as_many_agents_as_could_not_all_take_a_step_are_not_asked_for() -> None:
    run = a_parent(max_steps=8, max_children=4) >> asks_agents("one", "two", "three", "four")
    assert "too few steps are left" in " ".join(run.told())


def test_the_deadline_stands_still_for_the_whole_family_while_a_child_waits_for_a_person() -> None:
    run = a_waiting_parent(max_depth=2)
    child = child_of(run) >> asks_agents("deeper")
    grandchild = child_of(child) >> asks_a_person()
    for waiting in (run, child):
        waiting.wait(hours=5) >> too_early << ignores("nothing is due")
    grandchild.wait(hours=5) >> answer("the second") >> reflects("continue") >> plans() >> returns()
    grandchild >> reflects("done", PROOF)
    child >> comes_home(grandchild) >> reflects("done", PROOF)
    run >> comes_home(child) << asks("reflect")
    assert run.state.brief.limits.deadline_at == DEADLINE + timedelta(hours=5)


@pytest.mark.parametrize("ends", [cancel(), returns(step=7, tool="fetch")])
def test_what_a_grandchild_may_have_spent_is_not_free_again_while_nobody_knows_it(ends: object) -> None:
    run = a_waiting_parent(max_depth=2, max_steps=20, max_tokens=10_000, max_cost_usd=10.0)
    child = child_of(run) >> asks_agents("deeper")
    grant = child.pending.grant
    assert grant is not None
    run >> comes_home(child >> ends)  # type: ignore[operator] # either of these cues
    assert (run.state.spent.tokens, run.state.spent.lost_tokens) == (200 + child.state.spent.tokens, grant.tokens)
    assert run.state.spent.lost_cost_usd == grant.cost_usd
    assert run.state.spent.child_steps == 1 + grant.steps


# How it ends otherwise


@pytest.mark.parametrize(
    ("ends", "error_class"),
    [(cancel("enough"), "child_cancelled"), (unavailable("fail"), "child_failed"), (breaks(), "child_failed")],
)
def test_every_end_of_a_child_is_its_parents_result(ends: object, error_class: str) -> None:
    run = a_waiting_parent()
    child = child_of(run) >> ends  # type: ignore[operator] # any of these cues
    run >> comes_home(child) << asks("reflect")
    assert run.state.completed[-1].status == "error"
    told = told_by(child)
    assert told.error is not None
    assert (told.error.error_class, told.error.retryable) == (error_class, False)


def test_a_child_that_escalated_is_not_reopened_for_its_parent_has_heard_its_end() -> None:
    child = child_of(a_waiting_parent()) >> replies(reflection("escalate"))
    child.wait(minutes=1) >> answer("go on")
    assert child.state.status is Status.ESCALATED


def test_a_child_that_cannot_be_read_any_more_is_an_error_of_its_step_and_has_spent_its_grant() -> None:
    run = a_waiting_parent(max_steps=9, max_tokens=1000)
    child, grant = child_of(run).state, run.pending.grant
    told = supervising.unreadable(run.state, child.run_id, "its state", run.now)
    assert told is not None
    assert grant is not None
    run >> (lambda script: ToolReturned(at=script.now, result=told)) << asks("reflect")
    assert run.state.completed[-1].status == "error"
    assert (run.state.spent.lost_tokens, run.state.spent.child_steps) == (grant.tokens, grant.steps)
    assert supervising.unreadable(run.state, child.run_id, "its state", run.now) is None


def test_a_result_with_a_round_and_no_task_is_of_the_child_that_is_the_step_and_believed_no_more_for_it() -> None:
    run = a_waiting_parent()
    forged = told_by(child_of(run) >> cancel()).model_copy(update={"round": 7})
    assert supervising.awaited(run.state, forged) is run.pending


# Who goes with whom


def test_cancelling_a_run_cancels_its_children_and_theirs() -> None:
    run = a_waiting_parent(max_depth=2)
    child = child_of(run) >> asks_agents("deeper")
    grandchild = child_of(child)
    run >> cancel() << (cancels(), cancels_child())
    assert cancelled_by(run) == [child.state.run_id]
    child >> cancel()
    assert cancelled_by(child) == [grandchild.state.run_id]


def test_a_run_that_ended_still_counts_what_its_child_had_spent_once() -> None:
    run = a_waiting_parent()
    child = child_of(run) >> plans() >> cancel()
    run >> cancel() >> comes_home(child)
    assert (run.state.spent.tokens, run.state.spent.child_steps) == (400, 1)
    assert run.state.given_up == ()
    run >> comes_home(child) << ignores("came after the run ended")
    assert run.state.spent.tokens == 400


def test_a_run_that_is_set_going_again_goes_on_with_how_its_child_ended_and_counts_it_once() -> None:
    run = a_waiting_parent()
    child = child_of(run) >> plans() >> cancel()
    run >> returns(step=7, tool="fetch") >> comes_home(child)
    assert run.state.status is Status.ESCALATED
    run >> answer("go on")
    assert isinstance(run.state.waiting, ForModel)
    assert run.state.completed[-1].status == "error"
    assert (run.state.spent.tokens, run.state.given_up) == (400, ())


def test_a_paused_run_keeps_its_child_and_takes_up_its_end_when_it_goes_on() -> None:
    run = a_waiting_parent(on_budget="pause", deadline_named=True)
    child = child_of(run) >> plans() >> returns() >> reflects("done", PROOF)
    run.now = DEADLINE
    run >> due
    assert run.state.status is Status.PAUSED
    assert cancelled_by(run) == []
    run >> comes_home(child) << NOTHING
    assert run.state.completed[-1].status == "ok"


# As tasks of a step


def a_run_that_gathers_agents(*tasks: dict[str, Any], **limits: Any) -> Script:
    """Its first step's tool has asked for these tasks."""
    given: dict[str, Any] = {"max_depth": 1, "max_steps": 17, "max_tokens": 1000, **limits}
    run = queued(**given) >> started((*SKILLS, AGENT)) >> frames() >> plans("fetch")
    return run >> continues(multi_step(*tasks))


ONE, TWO = a_task("one", "agent", goal="find one"), a_task("two", "agent", goal="find two")
THEN = a_task("then", "agent", after=("one",), goal="compare")


def ended(child: Script) -> Script:
    return child >> plans() >> returns() >> reflects("done", PROOF)


def test_children_are_tasks_of_a_step_that_share_what_is_left() -> None:
    run = a_run_that_gathers_agents(ONE, TWO, THEN)
    assert [wake.goal for wake in wakes_of(run)] == ["find one", "find two"]
    assert [pending.grant for pending in run.state.pendings] == [Grant(steps=4, tokens=200)] * 2
    assert [(child.task, child.round) for child in run.state.children] == [("one", 1), ("two", 1)]


@pytest.mark.parametrize(("most", "started"), [({"max_steps": 3}, 2), ({"max_steps": 1}, 0), ({"max_tokens": 201}, 0)])
def test_one_that_could_do_nothing_with_what_is_left_is_not_started_and_fails(
    most: dict[str, int], started: int
) -> None:
    run = a_run_that_gathers_agents(
        ONE, TWO, a_task("three", "agent", goal="x"), a_task("y", "agent", goal="y"), **most
    )
    assert len(wakes_of(run)) == started
    failed = [(one.task, one.status, one.output["class"]) for one in run.state.evidence]
    assert failed == [(name, "error", "budget") for name in ("one", "two", "three", "y")[started:]]


def test_one_that_depends_on_another_is_told_what_that_brought_and_all_of_it_goes_to_the_tool() -> None:
    run = a_run_that_gathers_agents(ONE, THEN)
    first = ended(child_of(run))
    run >> comes_home(first)
    (wake,) = wakes_of(run)
    (evidence,) = wake.context["evidence"]  # type: ignore[misc, str-unpack] # one task came
    assert evidence["result"]["run_id"] == first.state.run_id  # type: ignore[index, call-overload]
    run >> comes_home(ended(child_of(run)))
    asked = run.sent(subjects.TOOL_REQUEST)
    assert (asked["task"], [one["task"] for one in asked["tool_payload"]["evidence"]]) == ("again", ["one", "then"])
    assert (run.state.spent.child_steps, run.state.spent.tokens) == (2, 800)


def a_run_that_may_gather_no_more() -> tuple[Script, Script]:
    """And the child of it that is under way."""
    run = a_run_that_gathers_agents(ONE, a_task("more", "look"), **budget(max_plugin_continuations=1))
    child = child_of(run) >> plans("post")
    return run >> continues(retrieve(), "more"), child


def test_children_of_a_step_that_may_gather_no_more_are_cancelled_and_waited_for() -> None:
    run, child = a_run_that_may_gather_no_more()
    assert cancelled_by(run) == [child.state.run_id]
    assert run.pending.name == (1, "one", 1)
    start, stop = supervising.owed(run.state)
    assert (start.wake.run_id, stop.run_id) == (child.state.run_id,) * 2  # type: ignore[union-attr]
    run >> comes_home(child >> cancel()) << asks("reflect")
    assert run.state.completed[-1].status == "budget"
    assert run.state.spent.tokens == 200 + child.state.spent.tokens
    assert limits.set_aside(run.state) == Grant(steps=0, tokens=0, cost_usd=0.0)


# Strangers, doubts and rulings


def test_content_of_strangers_marks_a_child_and_comes_home_with_it() -> None:
    run = a_parent() >> plans("browse") >> returns() >> reflects("continue") >> asks_agents("use it")
    assert wakes_of(run)[0].untrusted
    assert child_of(run).state.strangers == "the request itself"
    clean = a_waiting_parent()
    child = child_of(clean) >> plans("browse") >> returns() >> reflects("done", PROOF)
    clean >> comes_home(child)
    assert clean.state.strangers == "step 1 (agent)"


def test_a_write_that_a_child_left_in_doubt_bars_its_tool_in_the_parent() -> None:
    for ends in (errs("in_doubt"), cancel()):
        run = a_waiting_parent()
        child = child_of(run) >> plans("post") >> ends
        run >> comes_home(child) >> reflects("continue") >> plans("post", page=2)
        assert [(doubt.step, doubt.tool) for doubt in run.state.doubts] == [(1, "post")]
        assert "whether step 1 (post) was carried out is not known" in " ".join(run.told())


def test_a_write_in_doubt_bars_the_children_too_and_comes_home_no_second_time() -> None:
    run = a_waiting_parent()
    child = child_of(run) >> plans("post") >> errs("in_doubt")
    run >> comes_home(child) >> reflects("continue") >> asks_agents("post it again")
    again = child_of(run) >> plans("post", page=3)
    assert "was carried out is not known" in " ".join(again.told())
    again >> plans() >> returns() >> reflects("done", {"d1": "step:1", "d2": "step:1", "d3": "step:1"})
    run >> comes_home(again)
    assert len(run.state.doubts) == 1
    assert isinstance(run.state.doubts[0], Doubt)
