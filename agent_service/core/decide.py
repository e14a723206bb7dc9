"""The one decision function: leads a run and an event to the next state and its facts.

Every event that can change a run goes through `decide`. One that changes it is one journal entry (`version`); any other
is ignored, with the reason. A reply counts only for the open call, a result only for a pending attempt.
docs/ARCHITECTURE.md draws TABLE.

A reply is charged first; TAKERS says who carries out its decision. `done` is refused while an item is open or a claim
lacks proof.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent_service.core import asking, events, framing, limits, notes, people, planning, results
from agent_service.core.facts import CallReserved, ClaimsJudged, Decided, RunStanding
from agent_service.core.phases import (
    AskPerson,
    Decision,
    Digest,
    Framing,
    ModelRefusal,
    Phase,
    Plan,
    Reflection,
    Unusable,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.state import RunState, with_decision_status, with_facts
from agent_service.core.waiting import (
    BUDGET_PREFIX,
    Acting,
    Deciding,
    Ended,
    NeedsPerson,
    OpenCall,
    Queued,
    Sleeping,
    Status,
    Thinking,
    Waiting,
    acting_of,
)
from agent_service.sentences import Text, say
from schemas.values import replace

Decider = Callable[[Any, Any], RunState | Text | results.Unmatched]
"""Gets the state with the new `version`. A text, or an unmatched result, says why the event is ignored."""


def decide(state: RunState | None, event: events.Event) -> events.Transition:
    decider, targets = TABLE[type(event)]
    if (type(state.waiting) if state else None) in targets:
        led_to = decider(state and replace(state, version=state.version + 1, updated_at=event.at), event)
    else:
        led_to = _why_ignored(state, event)
    if isinstance(led_to, results.Unmatched):
        return events.Transition(state=state, event=event, ignored=led_to.why, refused=led_to.denied)
    if not isinstance(led_to, RunState):
        return events.Transition(state=state, event=event, ignored=led_to)
    pendings = acting_of(led_to.waiting).pendings
    stands = RunStanding(status=led_to.waiting.status, step=pendings[0].step if pendings else 0)
    return events.Transition(state=replace(led_to, happened=()), event=event, facts=(*led_to.happened, stands))


def _why_ignored(state: RunState | None, event: events.Event) -> Text:
    if state is None:
        return say("no_such_run")
    if state.final:
        return say("has_ended", status=state.status)
    if isinstance(event, CallReserved | events.ModelReplied | events.ModelUnavailable):
        return say("call_not_awaited", call=event.call)
    return say("begun_already")


def with_reserve(transition: events.Transition, reserved: CallReserved) -> events.Transition | None:
    """Adds the reserve of the model call that it asks for; None if the reserve could break a budget."""
    state, (*facts, stands) = transition.state, transition.facts
    if state is None or not isinstance(state.waiting, Thinking):
        return None
    if limits.reached_before_a_call(state, reserved.reserve):
        return None
    asked = replace(state, waiting=replace(state.waiting, reserve=reserved.reserve))
    return events.Transition(state=asked, event=transition.event, facts=(*facts, reserved, stands))


def _accept(_: None, event: events.WakeAccepted) -> RunState:
    return RunState(
        run_id=event.run_id,
        wake_id=event.wake_id,
        brief=event.brief,
        waiting=Queued(),
        version=1,
        accepted_at=event.at,
        updated_at=event.at,
        tainted_by=say("the_request") if event.brief.untrusted else "",
        doubts=event.doubts,
        rulings=event.refused,
        summary=say("accepted"),
    )


def _start(state: RunState, event: events.RunStarted) -> RunState:
    brief = replace(state.brief, skills=event.skills)
    return asking.ask(replace(state, brief=brief, started_at=event.at), Phase.FRAME)


def _of_its_call(decider: Callable[[RunState, OpenCall, Any], RunState]) -> Decider:
    def decided(state: RunState, event: Any) -> RunState | Text:
        call = state.waiting.asking if isinstance(state.waiting, Thinking) else None
        return decider(state, call, event) if call and event.call == call.call else _why_ignored(state, event)

    return decided


def _on_timer(state: RunState, event: events.TimerFired) -> RunState | Text:
    waiting, is_over = state.waiting, event.at >= state.effective_deadline
    held = isinstance(waiting, Thinking) and waiting.still_since is not None and not is_over  # spending may go on now
    if not held and (state.due_at is None or event.at < state.due_at):
        return say("not_due")
    match waiting:
        case NeedsPerson():
            return people.on_expiry(state, waiting)
        case Thinking() if not is_over:
            return asking.begin_call(limits.extend_deadline(state, waiting.still_since), waiting.asking)
        case Sleeping() if not is_over:
            return planning.wake_up(state, waiting)
        case Acting() if not is_over:
            return results.on_due(state)
    past = limits.deadline_reached(state.brief.limits)
    if isinstance(waiting, Queued):  # nothing has begun that could be resumed
        return asking.escalate(state, *past)
    return asking.out_of_budget(state, past)


def _ends(status: Status, ending_class: str) -> Decider:
    return lambda state, event: asking.end(state, status, ending_class, event.reason)


# Replies of the model


def _on_reply(state: RunState, open_call: OpenCall, reply: events.ModelReplied) -> RunState:
    made, replies = reply.provenance, state.replies
    if made and made.reply_id:
        replies = {**replies, made.schema_hash: made.reply_id}
    decided, shown = _decided(state, open_call, reply), reply.words
    state = limits.charged(state, reply, waiting=Deciding(), replies=replies, shown=shown, happened=decided)
    is_outrun, (phases, take) = reply.words < state.words, TAKERS[type(reply.decision)]
    if not (is_outrun and any(_goes_past(state, chosen) for chosen in (reply.decision, reply.plan))):
        if open_call.phase in phases:
            taken = take(state, open_call, reply, reply.decision)
        else:
            taken = asking.ask_again(state, open_call, (say("wrong_phase", phase=open_call.phase),))
        if not (is_outrun and taken.final and not taken.ending_class.startswith(BUDGET_PREFIX)):
            return taken
    phase = Phase.REFLECT if open_call.phase is Phase.PLAN else open_call.phase
    anew = replace(open_call, call=state.calls + 1, phase=phase, feedback=(*open_call.feedback, say("reply_outrun")))
    outrun = tuple([replace(one, status="outrun", why=(say("said_newer"),)) for one in decided])
    state = replace(state, happened=outrun, claim=None, proposed=None, summary=say("reply_discarded"))
    return asking.begin_call(state, anew)


def _decided(state: RunState, open_call: OpenCall, reply: events.ModelReplied) -> tuple[Decided, ...]:
    """A decision is `ok`, and a plan that came along is `ignored`, until something else is known."""
    phase, step = open_call.phase, state.step + (open_call.phase is Phase.PLAN)
    decided = Decided(phase=phase, step=step, attempt=open_call.repairs + 1, status="ok")
    if reply.plan is None:
        return (decided,)
    return decided, Decided(phase=Phase.PLAN, step=state.step + 1, attempt=1, status="ignored", along=True)


def _goes_past(state: RunState, chosen: Decision | None) -> bool:
    """True if a decision would act without the messages that people sent meanwhile. Reads and the first framing may go
    on: the next prompt has the messages.
    """
    match chosen:
        case None | Digest():
            return False
        case Plan():
            return planning.plan_writes(state, chosen)
        case Reflection(verdict=verdict):
            return verdict is not Verdict.CONTINUE
        case Framing():
            return state.framing is not None
    return True


# Its decisions, by kind


def _refusal(state: RunState, open_call: OpenCall, _: events.ModelReplied, refusal: ModelRefusal) -> RunState:
    reason = say("model_refused", category=refusal.category, why=refusal.explanation)
    state = with_decision_status(state, "refused", "model_refused", (reason,))
    if open_call.phase is Phase.VERIFY:
        return asking.unverified(state, reason)
    return asking.escalate(state, "model_refused", reason)


def _digest(state: RunState, open_call: OpenCall, _: events.ModelReplied, digest: Digest) -> RunState:
    unheard = tuple(dict.fromkeys((*state.refusals, *open_call.feedback)))
    return asking.ask_reflection(replace(notes.compacted(state, digest.memory), refusals=unheard))


def _reflection(state: RunState, open_call: OpenCall, reply: events.ModelReplied, reflection: Reflection) -> RunState:
    verdict = reflection.verdict
    if open_call.phase in (Phase.PLAN, Phase.FRAME) and verdict is not Verdict.ESCALATE:
        return asking.ask_again(state, open_call, (say("wrong_phase", phase=open_call.phase),))
    items, accepted, refusals = framing.judge_claims(state, reflection, reply.seen)
    claims = (ClaimsJudged(accepted=accepted, refusals=refusals),) if reflection.met or refusals else ()
    state = with_facts(
        state,
        *claims,
        done_items=items,
        refusals=refusals,
        facts=notes.merge_facts(state.facts, reflection.facts),
        reflection=replace(reflection, met=accepted) if reflection.met else reflection,
        outline=state.outline if reflection.outline is None else reflection.outline,
        summary=reflection.summary,
    )
    match verdict:
        case Verdict.DONE:
            return _done(state, reflection)
        case Verdict.REFRAME:
            return _reframed(state, reflection)
        case Verdict.ESCALATE:
            return asking.escalate(state, "model", reflection.summary)
    if reply.plan is None:
        return asking.ask(state, Phase.PLAN)
    repairs = open_call.repairs if isinstance(reply.plan, AskPerson | Wait) else 0
    return planning.take_along(state, reply.plan, repairs=repairs)


def _done(state: RunState, reflection: Reflection) -> RunState:
    still_open = [say("item_open", item=i.id, text=i.text) for i in state.done_items if not i.done]
    flaws = (*state.refusals, *still_open)
    if not flaws and (state.unverified or not framing.is_affordable(state)):
        return asking.complete(state, reflection)
    if not flaws:
        return asking.ask(replace(state, claim=reflection), Phase.VERIFY)
    feedback, times = (say("done_refused"), *flaws), state.refused_done + 1
    refused = replace(with_decision_status(state, "refused", "done_refused", feedback), refused_done=times)
    if times > state.brief.limits.max_refused_done:
        return asking.escalate(refused, "done_refused", say("done_claimed", times=times, flaws=flaws))
    return asking.ask(replace(refused, refusals=(), summary=feedback[0]), Phase.REFLECT, feedback=feedback)


def _reframed(state: RunState, reflection: Reflection) -> RunState:
    reframed, allowed = replace(state, reframes=state.reframes + 1), state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        return asking.out_of_budget(reframed, ("budget_reframes", say("reframes_used", most=allowed)))
    return asking.ask(reframed, Phase.FRAME, feedback=(say("reframe", why=reflection.summary),))


Taker = Callable[[RunState, OpenCall, events.ModelReplied, Any], RunState]
_ANY, _PLANNING = frozenset(Phase), frozenset({Phase.PLAN})
TAKERS: Mapping[type[Decision], tuple[frozenset[Phase], Taker]] = {
    ModelRefusal: (_ANY, _refusal),
    Unusable: (_ANY, planning.take_next),
    Framing: (frozenset({Phase.FRAME}), framing.take_framing),
    Plan: (_PLANNING, planning.take_next),
    Wait: (_PLANNING, planning.take_next),
    AskPerson: (frozenset({Phase.PLAN, Phase.FRAME}), planning.take_next),
    Reflection: (_ANY - {Phase.VERIFY}, _reflection),
    Digest: (frozenset({Phase.REFLECT, Phase.COMPACT}), _digest),
    Verification: (frozenset({Phase.VERIFY}), framing.take_verification),
}
"""The phases in which each kind of decision is valid, and its handler. A reflection may answer a call to compact."""


# The table of events

_ALIVE = (Queued, Thinking, Acting, Sleeping, NeedsPerson)
Targets = Mapping[type[Waiting] | None, tuple[type[Waiting], ...]]
_ENDS: Targets = dict.fromkeys(_ALIVE, (Ended,))
_CALLS: Targets = {Thinking: (Thinking, NeedsPerson, Ended)}
TABLE: Mapping[type[events.Event], tuple[Decider, Targets]] = {
    events.WakeAccepted: (_accept, {None: (Queued,)}),
    events.RunStarted: (_start, {Queued: (Thinking, NeedsPerson, Ended)}),
    events.ToolReturned: (
        results.on_result,
        {**_ENDS, Acting: (Acting, Thinking, NeedsPerson, Ended), NeedsPerson: (NeedsPerson, Ended), Ended: (Ended,)},
    ),
    CallReserved: (_of_its_call(asking.on_reserved), _CALLS),
    events.ModelReplied: (_of_its_call(_on_reply), {Thinking: (Thinking, Acting, Sleeping, NeedsPerson, Ended)}),
    events.ModelUnavailable: (_of_its_call(asking.on_unavailable), _CALLS),
    events.CancelRequested: (_ends(Status.CANCELLED, "cancelled"), _ENDS),
    events.SignalReceived: (
        people.on_signal,
        {
            **{kind: (kind,) for kind in (Queued, Thinking, Acting)},
            Sleeping: (Sleeping, Thinking, NeedsPerson, Ended),
            NeedsPerson: (Thinking, Acting, NeedsPerson, Ended),
            Ended: (Queued, Thinking, Acting, NeedsPerson),
        },
    ),
    events.TimerFired: (
        _on_timer,
        {
            Queued: (Ended,),
            Thinking: (Thinking, NeedsPerson, Ended),
            Acting: (Acting, Thinking, NeedsPerson, Ended),
            Sleeping: (Thinking, NeedsPerson, Ended),
            NeedsPerson: (Thinking, Acting, NeedsPerson, Ended),
        },
    ),
    events.TurnBroke: (_ends(Status.FAILED, "internal"), _ENDS),
    events.StoodStill: (limits.on_stood_still, {kind: (kind,) for kind in _ALIVE}),
}
"""Who decides an event, and where it may lead, by the state before. It is ignored in any other state."""
