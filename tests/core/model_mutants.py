"""Bugs in what a model call may spend, in the notes of its prompt, and in what its replies lead to."""

from dataclasses import replace
from typing import Any

from agent_service.core import decide, endings, limits
from agent_service.core.effects import AskModel, Transition
from agent_service.core.events import CallReserved
from agent_service.core.model import asking, notes, planning, thinking
from agent_service.core.phases import Digest, Framing, Phase, Refusal, Unusable
from agent_service.core.state import Note, RunState
from agent_service.core.waiting import ForModel, ForPerson
from tests.core.bugs import Bug, always, before, behind, decided
from tests.core.rules import Rule, deciding, reserves, spending, waiting
from tests.core.rules import notes as kept


def with_rewritten_notes(state: RunState) -> RunState:
    """The newest note but one is told anew, shorter."""
    told = tuple(replace(note, text=note.text[:200]) for note in state.notes[:-1])
    return replace(state, notes=(*told, *state.notes[-1:]))


def without_people(state: RunState) -> RunState:
    return replace(state, notes=tuple(note for note in state.notes if note.kind != "person"))


def forgetting_the_thought(state: RunState, *rest: Any) -> tuple[Any, ...]:
    return replace(state, reflection=None), *rest


def with_the_whole_result(note: Note) -> Note:
    return replace(note, text=note.text + "x" * 27_000)


def still_reserved(right: Any) -> Any:
    """What an outage leaves set aside."""

    def on_unavailable(state: RunState, event: Any) -> Transition:
        led_to: Transition = right(state, event)
        if (
            not isinstance(state.waiting, ForModel)
            or not led_to.state
            or not isinstance(led_to.state.waiting, ForPerson)
        ):
            return led_to
        kept_aside = replace(led_to.state.waiting, held=state.waiting)
        return replace(led_to, state=replace(led_to.state, waiting=kept_aside))

    return on_unavailable


def digested_in_any_phase(right: Any) -> Any:
    def take_up(state: RunState, asked: Any, reply: Any) -> Transition | None:
        if isinstance(reply.decision, Digest) and asked.phase is not Phase.FRAME:
            return asking.ask_to_reflect(notes.compacted(state, reply.decision.memory), reply.at)
        led_to: Transition | None = right(state, asked, reply)
        return led_to

    return take_up


def planned_with_a_flaw(right: Any) -> Any:
    """The plan of a framing is carried out whatever is wrong with the framing."""

    def take_up(state: RunState, asked: Any, reply: Any) -> Transition | None:
        if asked.phase is Phase.FRAME and isinstance(reply.decision, Framing) and reply.plan:
            led_to: Transition | None = planning.take_next(state, reply.plan, (), at=reply.at)
            return led_to
        otherwise: Transition | None = right(state, asked, reply)
        return otherwise

    return take_up


def refusals_repaired(right: Any) -> Any:
    def on_reply(state: RunState, reply: Any) -> Transition:
        refused = isinstance(reply.decision, Refusal)
        led_to: Transition = right(state, replace(reply, decision=Unusable(reason="refused")) if refused else reply)
        return led_to

    return on_reply


def asked_for_nothing(reserved: Transition) -> Transition:
    """The call is set aside for and never made."""
    return replace(reserved, effects=tuple(e for e in reserved.effects if not isinstance(e, AskModel)))


def any_call_may_reserve(state: RunState, event: Any) -> tuple[RunState, Any]:
    stray = isinstance(event, CallReserved) and state.asking is not None
    return state, replace(event, call=state.asking.call) if stray and state.asking else event


def lost_again(spent: Any) -> Any:
    return replace(spent, lost_calls=spent.lost_calls + 1, lost_tokens=2 * spent.lost_tokens)


MODEL_BUGS: dict[Rule, tuple[Bug, ...]] = {
    reserves.what_was_set_aside_and_not_answered_is_lost_once: (
        Bug("a reserve that is found is forgotten", endings, "with_lost", lambda _: lambda spent, _reserve: spent),
        Bug("a lost call is counted twice", endings, "with_lost", behind(lost_again)),
        Bug(
            "a call that a pause or an end interrupts costs nothing",
            endings,
            "with_lost_call",
            lambda _: lambda state: state,
        ),
        Bug(
            "a reply makes what was lost forgotten",
            thinking,
            "_add",
            behind(lambda spent: replace(spent, lost_calls=0, lost_tokens=0, lost_cost_usd=0.0)),
        ),
    ),
    spending.every_paid_call_is_counted: (
        Bug(
            "what comes from the cache is not counted",
            thinking,
            "_add",
            behind(lambda spent: replace(spent, cache_read_tokens=0)),
        ),
    ),
    reserves.no_call_is_made_that_could_break_a_limit: (
        Bug("a limit is not held against what is set aside", limits, "beyond_with", always(None)),
        Bug(
            "what was lost does not count against a limit",
            limits,
            "beyond_with",
            before(
                lambda state, reserve: (
                    replace(state, spent=replace(state.spent, lost_tokens=0, lost_cost_usd=0.0)),
                    reserve,
                )
            ),
        ),
        Bug(
            "an unknown price passes for a low one",
            limits,
            "beyond_with",
            before(lambda state, reserve: (state, replace(reserve, cost_usd=reserve.cost_usd or 0.0))),
        ),
    ),
    reserves.a_reserve_stands_only_while_its_call_is_being_made: (
        Bug("an outage keeps what was set aside", asking, "on_unavailable", still_reserved),
    ),
    reserves.a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget: (
        Bug("a call is set aside for and not made", asking, "on_reserved", behind(asked_for_nothing)),
    ),
    kept.notes_are_only_appended_but_for_a_compaction: (
        Bug("the older notes are told anew", notes, "with_step", behind(with_rewritten_notes)),
        Bug("a digest that nobody asked for is taken up", thinking, "_decided", digested_in_any_phase),
    ),
    kept.what_people_said_is_a_note_for_ever: (
        Bug("a compaction drops what people said", notes, "compacted", behind(without_people)),
        Bug("a message is heard and not noted", notes, "with_message", lambda _: lambda state, *_, **__: state),
    ),
    kept.a_compaction_gives_up_older_steps_and_nothing_else: (
        Bug(
            "a compaction drops the newest steps too",
            notes,
            "compacted",
            lambda right: lambda state, memory, **_: right(state, memory, kept_steps=0),
        ),
    ),
    kept.a_compaction_leaves_the_rest_of_the_run_as_it_is: (
        Bug(
            "a compaction unticks the definition of done",
            notes,
            "compacted",
            behind(lambda state: replace(state, done_items=())),
        ),
    ),
    kept.notes_are_compacted_only_when_they_are_too_long: (
        Bug("notes are never too long", notes, "overfull", always(False)),
        Bug("notes of few steps are compacted", notes, "overfull", lambda _: lambda state: len(state.notes) > 2),
    ),
    kept.every_finished_step_has_one_note_with_the_thought_before_it: (
        Bug("the thought before a step is not noted", notes, "with_step", before(forgetting_the_thought)),
    ),
    kept.notes_are_bounded: (Bug("a result is noted in full", notes, "_step", behind(with_the_whole_result)),),
    deciding.only_a_plan_that_goes_with_a_good_decision_is_carried_out: (
        Bug("the plan of a flawed framing is carried out", thinking, "_decided", planned_with_a_flaw),
    ),
    deciding.a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound: (
        Bug("a framing's flaws are not looked at", Framing, "flaws", always(())),
    ),
    deciding.a_refusal_hands_the_run_to_a_person: (
        Bug("a refusal is asked for again", thinking, "on_reply", refusals_repaired),
    ),
    waiting.only_the_reply_that_is_waited_for_counts: (
        Bug(
            "a reserve of any call is taken for the one that is waited for",
            decide,
            "TABLE",
            decided("_of_the_model", before(any_call_may_reserve)),
        ),
    ),
}
