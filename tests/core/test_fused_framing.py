"""One call may frame and plan: both are taken up, or the first that has a flaw is asked for again."""

import pytest

from agent_service.core.phases import Plan, Unusable
from tests.core.cues import (
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    frames,
    framing,
    garbles,
    plan,
    plans,
    reflects,
    replies,
)
from tests.core.model_cues import a_compacting_run, opens, refuses
from tests.core.script import Script, asks, escalates, requests


def test_a_framing_with_its_plan_is_carried_out_in_one_entry() -> None:
    run = a_framing_run()
    before = run.state.version
    run >> opens(plan("save", text="x")) << requests("save", step=1)
    assert run.state.version == before + 1
    assert run.state.framing == framing()
    assert [item.id for item in run.state.done_items] == ["d1", "d2", "d3"]
    assert run.state.plan == plan("save", text="x")
    assert (run.state.calls, run.state.spent.calls) == (1, 1)


def test_a_framing_without_a_plan_is_followed_by_the_question_for_one() -> None:
    run = a_framing_run(fused=True)
    run >> frames() << asks("plan")


@pytest.mark.parametrize(
    ("first", "because"),
    [
        (Unusable(reason="two actions", raw='{"a"'), "two actions"),
        (plan("curl"), "tool 'curl' is not on offer; the tools are: fetch, post, save, helper, browse, ledger"),
        (plan("fetch", "poll"), "tool fetch has no command 'poll'; it has: handle"),
    ],
)
def test_a_plan_that_cannot_be_used_is_asked_for_again_and_the_framing_stays(
    first: Plan | Unusable, because: str
) -> None:
    run = a_framing_run()
    run >> opens(first) << asks("plan")
    assert run.state.framing is not None
    assert run.told() == (because,)
    assert run.state.asking is not None
    assert (run.state.asking.call, run.state.asking.repairs) == (2, 1)
    run >> plans() << requests("fetch", step=1)


def test_plans_that_cannot_be_used_are_asked_for_so_often_and_no_more() -> None:
    run = a_framing_run(max_repairs=1) >> opens(Unusable(reason="two actions"))
    run >> garbles() << escalates("invalid_decision")
    run = a_framing_run(max_repairs=0)
    run >> opens(Unusable(reason="two actions")) << escalates("invalid_decision")


def test_a_reframing_may_bring_its_plan_and_the_steps_go_on() -> None:
    run = a_reflecting_run() >> reflects("reframe")
    run >> opens(plan("save")) << requests("save", step=2)


# A phase that cannot plan, and a model that will not answer


def test_a_plan_phase_may_say_that_no_tool_can_help() -> None:
    run = a_planning_run()
    run >> reflects("escalate") << escalates("model")
    assert run.state.reason == "looked at the result"


@pytest.mark.parametrize("verdict", ["continue", "done", "reframe"])
def test_a_plan_phase_is_no_place_for_any_other_verdict(verdict: str) -> None:
    run = a_planning_run()
    run >> reflects(verdict) << asks("plan")
    assert run.told() == ("the reply is no decision of phase plan",)
    assert (run.state.reframes, run.state.refused_done) == (0, 0)


PHASES = {"frame": a_framing_run, "plan": a_planning_run, "reflect": a_reflecting_run, "compact": a_compacting_run}


def test_a_refusal_without_an_explanation_names_its_category() -> None:
    assert (a_framing_run() >> refuses("bio")).state.reason == "the model refused to answer (bio)"


# What a repair is told


def asking_after(run: Script, *unusable: Unusable) -> tuple[str, bool, int]:
    for reply in unusable:
        run = run >> replies(reply)
    assert run.state.asking is not None
    return run.state.asking.rejected, run.state.asking.longer, run.state.asking.repairs


def test_a_reply_that_was_cut_may_be_longer_the_next_times() -> None:
    cut, other = Unusable(reason="cut", raw="{", cut=True), Unusable(reason="not JSON")
    assert asking_after(a_framing_run(), other) == ("", False, 1)
    assert asking_after(a_framing_run(), cut) == ("{", True, 1)
    assert asking_after(a_framing_run(), cut, other) == ("", True, 2)


def test_a_plan_that_was_cut_may_be_longer_the_next_time() -> None:
    run = a_framing_run() >> opens(Unusable(reason="cut", raw="{", cut=True))
    assert asking_after(run) == ("{", True, 1)


def test_only_the_beginning_of_a_rejected_reply_is_kept() -> None:
    rejected, _, _ = asking_after(a_framing_run(), Unusable(reason="not JSON", raw="ab" * 50_000))
    assert rejected == "ab" * 2000


def test_what_was_rejected_is_forgotten_with_the_next_question() -> None:
    run = a_framing_run() >> garbles() >> frames()
    assert asking_after(run) == ("", False, 0)
