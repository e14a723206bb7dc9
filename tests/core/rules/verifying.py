"""Rules of verification: a claim that was refused counts for nothing, and outruns nothing that a person said."""

from agent_service.core.events import ModelReplied, SignalReceived
from agent_service.core.phases import Phase, Verification
from tests.core.rules.deciding import asked_for
from tests.core.rules.reading import Story, after, entries, finals
from tests.core.script import Moment


def _found(moment: Moment) -> Verification | None:
    match asked_for(moment), moment.event:
        case Phase.VERIFY, ModelReplied(decision=Verification() as found):
            return found
    return None


def a_claim_that_is_not_shown_is_refused_and_only_once(story: Story) -> None:
    refused = 0
    for moment in entries(story):
        found, before = _found(moment), moment.before
        if found and before and before.claim and not found.holds:
            refused += 1
            assert "agent.completed" not in finals(moment)
            assert not any(item.done for item in after(moment).done_items if item.id in found.doubted)
    assert refused <= 1


def done_is_looked_at_where_that_is_wanted(story: Story) -> None:
    """A claim ends the run by itself only after one was refused, or when the budget is spent."""
    for moment in entries(story):
        state = after(moment)
        if "agent.completed" in finals(moment) and state.brief.verify and asked_for(moment) is not Phase.VERIFY:
            spent = state.spent.tokens + state.spent.lost_tokens >= (state.brief.limits.max_tokens or 10**9)
            limited = state.brief.limits.max_cost_usd is not None
            assert state.unverified or spent or limited or isinstance(moment.event, ModelReplied) is False


def what_a_person_says_voids_what_is_claimed(story: Story) -> None:
    for moment in entries(story):
        if isinstance(moment.event, SignalReceived) and moment.event.signal.message:
            assert (after(moment).claim, after(moment).proposed) == (None, None)


def a_claim_stands_only_while_it_is_looked_at(story: Story) -> None:
    for moment in entries(story):
        state = after(moment)
        if (state.claim or state.proposed) and not state.final:
            assert state.asking is not None
            assert state.asking.phase is Phase.VERIFY
