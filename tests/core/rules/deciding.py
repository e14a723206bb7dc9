"""Rules of deciding: a reply counts only for its call, and a refused claim counts for nothing."""

from agent_service.core.events import ModelReplied, SignalReceived
from agent_service.core.phases import Framing, ModelRefusal, Phase, Plan, Reflection, Verdict, Verification
from agent_service.core.waiting import Approval
from schemas.events import Signal
from tests.core.rules.reading import Story, after, entries, finals, requests_of
from tests.core.script import ChangeRecord


def asked_for(change: ChangeRecord) -> Phase | None:
    asking = change.before.open_call if change.before else None
    return asking.phase if asking and isinstance(change.event, ModelReplied) else None


def only_a_plan_that_goes_with_a_good_decision_is_carried_out(story: Story) -> None:
    framed: Plan | None = None
    for change in entries(story):
        if not isinstance(change.event, ModelReplied):
            continue
        planned = framed if _agrees(change) else _plan_of(change, change.event)
        framed = planned if asked_for(change) is Phase.FRAME else framed
        if requests_of(change):
            assert planned is not None
            sent = [(request.tool, request.command) for request in requests_of(change)]
            assert sent == [(action.tool, action.command) for action in planned.actions]


def _agrees(change: ChangeRecord) -> bool:
    return asked_for(change) is Phase.VERIFY and _agreed_to(change) is not None


def _plan_of(change: ChangeRecord, reply: ModelReplied) -> Plan | None:
    along = reply.plan if isinstance(reply.plan, Plan) else None
    match asked_for(change), reply.decision:
        case Phase.PLAN, Plan() as planned:
            return planned
        case Phase.FRAME, Framing() as framing if _is_sound(framing):
            return along
        case Phase.REFLECT, Reflection(verdict=Verdict.CONTINUE):
            return along
    return None


def _is_sound(framing: Framing) -> bool:
    """RFC-95: one sentence, and three to seven items that can be checked."""
    items = [item for item in framing.definition_of_done if item.strip()]
    return bool(framing.goal_statement.strip()) and len(items) == len(framing.definition_of_done) in range(3, 8)


def a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound(story: Story) -> None:
    for change in entries(story):
        if change.before is None or after(change).framing == change.before.framing:
            continue
        framing = _agreed_to(change)
        assert framing is not None
        assert _is_sound(framing)


def _agreed_to(change: ChangeRecord) -> Framing | None:
    """The framing that a moment puts in force: as asked for, verified, or approved."""
    before, event = change.before, change.event
    match asked_for(change), event:
        case Phase.FRAME, ModelReplied(decision=Framing() as framing):
            return framing
        case Phase.VERIFY, ModelReplied(decision=Verification(holds=True)) if before:
            return before.proposed
        case None, SignalReceived(signal=Signal(kind="approve")) if before:
            proposal = before.ask.proposal if isinstance(before.ask, Approval) else None
            return proposal if isinstance(proposal, Framing) else None
    return None


def a_refusal_hands_the_run_to_a_person(story: Story) -> None:
    for change in entries(story):
        if isinstance(change.event, ModelReplied) and isinstance(change.event.decision, ModelRefusal):
            claimed = change.before is not None and change.before.claim is not None
            if asked_for(change) is Phase.VERIFY and not claimed:  # of a framing, or void by what a person said
                assert finals(change) == []
                continue
            assert finals(change) == ["agent.completed" if claimed else "agent.escalated"]
            assert after(change).ending_class == ("completed" if claimed else "model_refused")


def _found(change: ChangeRecord) -> Verification | None:
    match asked_for(change), change.event:
        case Phase.VERIFY, ModelReplied(decision=Verification() as found):
            return found
    return None


def a_claim_that_is_not_shown_is_refused_and_only_once(story: Story) -> None:
    refused = 0
    for change in entries(story):
        found, before = _found(change), change.before
        if found and before and before.claim and not found.holds:
            refused += 1
            assert "agent.completed" not in finals(change)
            assert not any(item.done for item in after(change).done_items if item.id in found.doubted)
    assert refused <= 1


def done_is_looked_at_where_that_is_wanted(story: Story) -> None:
    """A claim ends a run without a verifier only after one was refused, or if the budget is spent."""
    for change in entries(story):
        state = after(change)
        if "agent.completed" in finals(change) and state.brief.verify and asked_for(change) is not Phase.VERIFY:
            spent = state.spent.tokens + state.spent.lost_tokens >= (state.brief.limits.max_tokens or 10**9)
            limited = state.brief.limits.max_cost_usd is not None
            assert state.unverified or spent or limited or isinstance(change.event, ModelReplied) is False


def what_a_person_says_voids_what_is_claimed(story: Story) -> None:
    for change in entries(story):
        if isinstance(change.event, SignalReceived) and change.event.signal.message:
            assert (after(change).claim, after(change).proposed) == (None, None)


def a_claim_stands_only_while_it_is_looked_at(story: Story) -> None:
    for change in entries(story):
        state = after(change)
        if (state.claim or state.proposed) and not state.final:
            assert state.open_call is not None
            assert state.open_call.phase is Phase.VERIFY
