"""One call may frame and plan: both are taken up, or the first that has a flaw is asked for again."""

from agent_service.core.phases import Unusable
from tests.core.cues import (
    a_framing_run,
    framing,
    garbles,
    plan,
)
from tests.core.model_cues import opens
from tests.core.script import escalates, requests


def test_a_framing_with_its_plan_is_carried_out_in_one_entry() -> None:
    run = a_framing_run()
    before = run.state.version
    run >> opens(plan("save", text="x")) << requests("save", step=1)
    assert run.state.version == before + 1
    assert run.state.framing == framing()
    assert [item.id for item in run.state.done_items] == ["d1", "d2", "d3"]
    assert run.state.plan == plan("save", text="x")
    assert (run.state.calls, run.state.spent.calls) == (1, 1)


def test_plans_that_cannot_be_used_are_asked_for_so_often_and_no_more() -> None:
    run = a_framing_run(max_repairs=1) >> opens(Unusable(reason="two actions"))
    run >> garbles() << escalates("invalid_decision")
    run = a_framing_run(max_repairs=0)
    run >> opens(Unusable(reason="two actions")) << escalates("invalid_decision")


# A phase that cannot plan, and a model that will not answer


# What a repair is told
