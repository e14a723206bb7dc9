"""Bugs in what a model call may spend, in the notes of its prompt, and in what its replies lead to."""

from dataclasses import replace
from typing import Any

from agent_service.core import asking, decide, endings, limits, notes, thinking
from agent_service.core.effects import AskModel, Transition
from agent_service.core.events import CallReserved
from agent_service.core.phases import Digest, Framing, Phase, Refusal, Unusable
from agent_service.core.state import Note, RunState
from agent_service.core.waiting import ForModel, ForPerson
from tests.core.bugs import Mutant, always, before, behind, decided
from tests.core.rules import deciding, reserves, spending, waiting
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
    return replace(note, text=note.text + "x" * 20_000)


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
            led_to: Transition | None = thinking._with_plan(state, reply.plan, (), at=reply.at)
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


MODEL_MUTANTS = (
    Mutant(
        bug="a reserve that is found is forgotten",
        where=endings,
        name="with_lost",
        sow=lambda _: lambda spent, _reserve: spent,
        found_by=reserves.what_was_set_aside_and_not_answered_is_lost_once,
    ),
    Mutant(
        bug="a lost call is counted twice",
        where=endings,
        name="with_lost",
        sow=behind(lost_again),
        found_by=reserves.what_was_set_aside_and_not_answered_is_lost_once,
    ),
    Mutant(
        bug="a call that a pause or an end interrupts costs nothing",
        where=endings,
        name="with_lost_call",
        sow=lambda _: lambda state: state,
        found_by=reserves.what_was_set_aside_and_not_answered_is_lost_once,
    ),
    Mutant(
        bug="a reply makes what was lost forgotten",
        where=thinking,
        name="_add",
        sow=behind(lambda spent: replace(spent, lost_calls=0, lost_tokens=0, lost_cost_usd=0.0)),
        found_by=reserves.what_was_set_aside_and_not_answered_is_lost_once,
    ),
    Mutant(
        bug="what comes from the cache is not counted",
        where=thinking,
        name="_add",
        sow=behind(lambda spent: replace(spent, cache_read_tokens=0)),
        found_by=spending.every_paid_call_is_counted,
    ),
    Mutant(
        bug="a limit is not held against what is set aside",
        where=limits,
        name="beyond_with",
        sow=always(None),
        found_by=reserves.no_call_is_made_that_could_break_a_limit,
    ),
    Mutant(
        bug="what was lost does not count against a limit",
        where=limits,
        name="beyond_with",
        sow=before(
            lambda state, reserve: (
                replace(state, spent=replace(state.spent, lost_tokens=0, lost_cost_usd=0.0)),
                reserve,
            )
        ),
        found_by=reserves.no_call_is_made_that_could_break_a_limit,
    ),
    Mutant(
        bug="an unknown price passes for a low one",
        where=limits,
        name="beyond_with",
        sow=before(lambda state, reserve: (state, replace(reserve, cost_usd=reserve.cost_usd or 0.0))),
        found_by=reserves.no_call_is_made_that_could_break_a_limit,
    ),
    Mutant(
        bug="an outage keeps what was set aside",
        where=asking,
        name="on_unavailable",
        sow=still_reserved,
        found_by=reserves.a_reserve_stands_only_while_its_call_is_being_made,
    ),
    Mutant(
        bug="a call is set aside for and not made",
        where=asking,
        name="on_reserved",
        sow=behind(asked_for_nothing),
        found_by=reserves.a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget,
    ),
    Mutant(
        bug="the older notes are told anew",
        where=notes,
        name="with_step",
        sow=behind(with_rewritten_notes),
        found_by=kept.notes_are_only_appended_but_for_a_compaction,
    ),
    Mutant(
        bug="a compaction drops what people said",
        where=notes,
        name="compacted",
        sow=behind(without_people),
        found_by=kept.what_people_said_is_a_note_for_ever,
    ),
    Mutant(
        bug="a compaction drops the newest steps too",
        where=notes,
        name="compacted",
        sow=lambda right: lambda state, memory, **_: right(state, memory, kept_steps=0),
        found_by=kept.a_compaction_gives_up_older_steps_and_nothing_else,
    ),
    Mutant(
        bug="a compaction unticks the definition of done",
        where=notes,
        name="compacted",
        sow=behind(lambda state: replace(state, done_items=())),
        found_by=kept.a_compaction_leaves_the_rest_of_the_run_as_it_is,
    ),
    Mutant(
        bug="notes are never too long",
        where=notes,
        name="overfull",
        sow=always(False),
        found_by=kept.notes_are_compacted_only_when_they_are_too_long,
    ),
    Mutant(
        bug="notes of few steps are compacted",
        where=notes,
        name="overfull",
        sow=lambda _: lambda state: len(state.notes) > 2,
        found_by=kept.notes_are_compacted_only_when_they_are_too_long,
    ),
    Mutant(
        bug="a message is heard and not noted",
        where=notes,
        name="with_message",
        sow=lambda _: lambda state, _message: state,
        found_by=kept.what_people_said_is_a_note_for_ever,
    ),
    Mutant(
        bug="the thought before a step is not noted",
        where=notes,
        name="with_step",
        sow=before(forgetting_the_thought),
        found_by=kept.every_finished_step_has_one_note_with_the_thought_before_it,
    ),
    Mutant(
        bug="a result is noted in full",
        where=notes,
        name="_step",
        sow=behind(with_the_whole_result),
        found_by=kept.notes_are_bounded,
    ),
    Mutant(
        bug="a digest that nobody asked for is taken up",
        where=thinking,
        name="_decided",
        sow=digested_in_any_phase,
        found_by=kept.notes_are_only_appended_but_for_a_compaction,
    ),
    Mutant(
        bug="the plan of a flawed framing is carried out",
        where=thinking,
        name="_decided",
        sow=planned_with_a_flaw,
        found_by=deciding.only_a_plan_that_goes_with_a_good_decision_is_carried_out,
    ),
    Mutant(
        bug="a framing's flaws are not looked at",
        where=Framing,
        name="flaws",
        sow=always(()),
        found_by=deciding.a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound,
    ),
    Mutant(
        bug="a refusal is asked for again",
        where=thinking,
        name="on_reply",
        sow=refusals_repaired,
        found_by=deciding.a_refusal_hands_the_run_to_a_person,
    ),
    Mutant(
        bug="a reserve of any call is taken for the one that is waited for",
        where=decide,
        name="TABLE",
        sow=decided("_of_the_model", before(any_call_may_reserve)),
        found_by=waiting.only_the_reply_that_is_waited_for_counts,
    ),
)
