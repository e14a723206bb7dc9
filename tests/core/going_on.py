"""What a run waits for, with the content that lets it go on; a model that costs something is paid in advance."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from agent_service.core.events import Event
from agent_service.core.model import reads
from agent_service.core.phases import Phase, Plan, Verification
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import (
    ForApproval,
    ForEvidence,
    ForModel,
    ForPerson,
    ForReads,
    ForTool,
    Reserve,
    Status,
)
from tests.core.cues import (
    digests,
    due,
    framing,
    made,
    plan,
    reflection,
    replies,
    reserves,
    returns,
    several,
    signal,
    started,
    too_early,
)
from tests.core.script import Cue, Script

Move = Callable[[Script], Event]

SAME = plan("fetch", url="same")


def goes_on(script: Script) -> Event:
    """The event that the run waits for, with the content that lets it go on."""
    return sets_aside(script) if is_to_be_paid(script) else made(GOES_ON[situation(script)], script)


def is_to_be_paid(script: Script) -> bool:
    """Whether a model that costs something is asked, and what it may cost is not yet set aside."""
    waiting = script.state.waiting
    return script.reserve is not None and isinstance(waiting, ForModel) and waiting.reserve is None


def sets_aside(script: Script, *, by: int = 0) -> Event:
    """A reserve for the call that is asked, whether one stands already or not; or for another call."""
    reserve = script.reserve or Reserve(tokens=50, cost_usd=0.005)
    asked = script.state.asking.call if script.state.asking else script.state.calls
    return made(reserves(reserve.tokens, reserve.cost_usd, call=max(1, asked + by)), script)


def situation(script: Script) -> str:
    match script.state.waiting:
        case ForModel(asking=asking):
            return str(asking.phase)
        case ForTool(pending=pending):
            return "tool again" if pending.attempt > 1 else "tool"
        case ForPerson(held=ForTool() | ForReads() | ForEvidence()):
            return "tool, paused"
        case waiting:
            return waiting.kind


def answers(script: Script, **reply: Any) -> Event:
    """A good answer to the question that is asked."""
    asking, fused = script.state.asking, script.state.brief.fused
    planned = SAME if is_stubborn(script) else a_good_plan(script)
    match asking.phase if asking else None:
        case Phase.FRAME:
            return made(replies(framing(), plan=planned if fused else None, **reply), script)
        case Phase.REFLECT:
            told = reflection("continue", facts=(f"learned by call {script.state.calls}",))
            return made(replies(told, plan=planned if fused else None, **reply), script)
        case Phase.VERIFY:
            return made(replies(Verification(holds=script.state.calls % 3 > 0, reason="looked at"), **reply), script)
        case Phase.COMPACT:
            return made(digests("what the older steps brought", **reply), script)
        case _:
            return made(replies(planned, **reply), script)


def a_good_plan(script: Script) -> Plan:
    """Reading and writing by turns, with arguments that would like to be ours; several reads where that is granted."""
    number = script.state.calls
    if number % 2 and reads.most(script.state) > 1:
        return several(*["fetch"] * reads.most(script.state), number=number, run_id="forged")
    return plan(("fetch", "save", "browse", "post")[number % 4], number=number, run_id="forged", STEP=9)


def is_stubborn(script: Script) -> bool:
    """Whether the model planned `SAME`: it does so again then, and the result is the same."""
    return script.state.plan is not None and script.state.plan.action == SAME.action


def result(script: Script) -> Event:
    return made(returns(output={"summary": "same"} if is_stubborn(script) else None), script)


def approved(script: Script) -> Event:
    """A person allows what waits for approval, by its hash."""
    assert isinstance(script.state.waiting, ForApproval)
    return made(signal("approve", arguments_hash=script.state.waiting.subject_hash), script)


def some_request(script: Script) -> Event:
    """One of the requests that are out returns, the last that was sent first; or the next is sent."""
    sent = [flight.pending for flight in flights(script.state.waiting) if flight.retry_at is None]
    return made(returns(of=sent[-1]), script) if sent else due(script)


def timer(script: Script) -> Event:
    return due(script) if script.state.due_at else too_early(script)


def more_of_everything(script: Script) -> Event:
    return made(signal("raise_budget", **more_than_spent(script)), script)


def more_than_spent(script: Script) -> dict[str, Any]:
    """Constraints with which no budget is spent any more."""
    limits, spent = script.state.brief.limits, script.state.spent
    return {
        "max_steps": limits.max_steps + 1,
        "max_reframes": limits.max_reframes + 1,
        "max_tokens": 1000 + spent.tokens + spent.lost_tokens,
        "max_cost_usd": 1.0 + (spent.cost_usd or 0.0) + (spent.lost_cost_usd or 0.0),
        "deadline_at": max(script.now, limits.deadline_at) + timedelta(days=1),
    }


def reopens(script: Script) -> Event:
    """An answer with more of everything, where one can let the run go on; else a result that comes late."""
    if script.state.status is not Status.ESCALATED:
        return made(returns(), script)
    return made(signal("answer", message="go on", **more_than_spent(script)), script)


GOES_ON: dict[str, Cue] = {
    "queued": started(),
    "frame": answers,
    "plan": answers,
    "reflect": answers,
    "compact": answers,
    "verify": answers,
    "model_retry": timer,
    "tool": result,
    "tool again": result,
    "tool_retry": timer,
    "for_reads": some_request,
    "for_evidence": some_request,
    "for_time": timer,
    "for_approval": approved,
    "for_answer": signal("answer", message="the new one"),
    "tool, paused": result,
    "for_person": more_of_everything,
    "ended": reopens,
}
