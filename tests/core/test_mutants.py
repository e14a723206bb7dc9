"""Mutation tests of the rules: a core with a sown bug breaks the named rule within few stories, without a crash."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import Any

import pytest

from agent_service.core import asking, limits, planning
from agent_service.core.events import CancelRequested, ModelReplied, RunStarted, Transition
from agent_service.core.facts import CallReserved, RequestSent
from agent_service.core.phases import Framing, ModelRefusal, Unusable
from agent_service.core.results import Unmatched
from agent_service.core.state import Note, RunState, StepNote, with_facts
from agent_service.core.waiting import Acting, Ended, Pending, Thinking
from tests.core.rules import Rule, deciding, order, spending, steps
from tests.core.rules import notes as kept
from tests.core.rules import people as of_people
from tests.core.stories import story

ENOUGH = 800
"""Stories within which a bug must be found."""
Sow = Callable[[Any], Any]
"""Turns the right function into a wrong one."""


def always(value: Any) -> Sow:
    return lambda _: lambda *_args, **_kwargs: value


def instead(wrong: Any) -> Sow:
    return lambda _: wrong


def before(change: Callable[..., tuple[Any, ...]]) -> Sow:
    """The function with positional arguments changed by `change`."""
    return lambda right: lambda *args, **named: right(*change(*args), **named)


def behind(change: Callable[[Any], Any]) -> Sow:
    """The function with its result changed by `change`."""
    return lambda right: lambda *args, **named: change(right(*args, **named))


def given(**changes: Any) -> Sow:
    """The function with changes to its state."""
    return before(lambda state, *rest: (replace(state, **changes), *rest))


def but(**changes: Any) -> Sow:
    """The function with fields of its result changed."""
    return behind(lambda led_to: replace(led_to, **changes))


def without(words: str) -> Sow:
    """The flaws except those with these words."""
    return behind(lambda flaws: tuple(flaw for flaw in flaws if words not in str(flaw)))


def unless(violates: bool, like: Callable[[RunState, Any], bool]) -> Sow:
    """`judge`, where a result that answers nothing is taken for an answer if state and result are `like` that."""

    def sow(right: Any) -> Any:
        def judge_wrongly(state: RunState, result: Any, *place: str) -> Pending | Unmatched:
            judged: Pending | Unmatched = right(state, result, *place)
            wrong = isinstance(judged, Unmatched) and judged.violates is violates and like(state, result)
            return state.pending if wrong and state.pending else judged

        return judge_wrongly

    return sow


def decided(kind: type, change: Sow) -> Sow:
    """The table, with the decider of event `kind` changed."""
    return lambda table: {**table, kind: (change(table[kind][0]), table[kind][1])}


def as_in(other: type, kind: type, state: type) -> Sow:
    """The table, with `kind` in `state` decided as in `other`."""
    return lambda table: {**table, kind: (table[kind][0], {**table[kind][1], state: table[kind][1][other]})}


# What bugs do


def same_step(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.step == state.pending.step


def other_tool(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.tool != state.pending.action.tool


def match_ignored(judged: Pending | Unmatched) -> Unmatched:
    return Unmatched("no") if isinstance(judged, Pending) else judged


def same_attempt(retried: RunState | None) -> RunState | None:
    if retried is None or retried.pending is None:
        return retried
    (pending,) = retried.pendings
    return replace(retried, waiting=Acting(requests=(replace(pending, attempt=pending.attempt - 1),)))


def retryable(state: RunState, pending: Any, error: Any) -> tuple[Any, ...]:
    return state, pending, error.model_copy(update={"retryable": True})


def not_sent(sent: RunState) -> RunState:
    assert sent.pending is not None
    return replace(sent, waiting=Acting(requests=(replace(sent.pending, retry_at=sent.updated_at),)))


def every_item_ticked(state: RunState, reflection: Any, _seen: Any) -> tuple[Any, ...]:
    named = {claim.item: claim.evidence for claim in reflection.met}
    items = tuple(replace(item, evidence=(named.get(item.id, "trust me"),)) for item in state.done_items)
    return items, reflection.met, ()


def recorded_again(state: RunState, event: Any, _why: str) -> RunState:
    return replace(state, late=(*state.late, str(event.result.step)))


def this_call(state: RunState, event: Any) -> tuple[RunState, Any]:
    return state, replace(event, call=state.open_call.call) if state.open_call else event


def rewritten(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    told = tuple(replace(note, size=0) if isinstance(note, StepNote) else note for note in notes[:-1])
    return *told, *notes[-1:]


def sent_while_paused(paused: RunState) -> RunState:
    asked = (RequestSent(pending=pending) for pending in paused.pendings)
    return with_facts(paused, *asked)


def changed_though_ignored(right: Any) -> Any:
    def transition(**fields: Any) -> Transition:
        state = fields["state"]
        changed = replace(state, summary="ignored") if state and fields.get("ignored") else state
        led_to: Transition = right(**fields | {"state": changed})
        return led_to

    return transition


def planned_with_a_flaw(right: Any) -> Any:
    """The plan that comes with a flawed framing is carried out."""

    phases, take = right[Framing]

    def take_up(state: RunState, asked: Any, reply: Any, framing: Any) -> Any:
        return planning.take_along(state, reply.plan) if reply.plan else take(state, asked, reply, framing)

    return {**right, Framing: (phases, take_up)}


def refused_as_unusable(state: RunState, reply: Any) -> tuple[Any, ...]:
    return state, replace(reply, decision=Unusable(reason="no")) if isinstance(reply.decision, ModelRefusal) else reply


def claim_left(right: Any) -> Any:
    return lambda state, event: replace(right(state, event), claim=state.claim, proposed=state.proposed)


def without_all_but_a_tool(right: Any) -> property:
    return property(lambda state: right.fget(state) if state.pending else None)


BELIEVED = instead(asking.complete)
FOUND_ANYWAY = before(lambda state, claim, found: (state, claim, replace(found, holds=True)))
CLAIM_KEPT = before(lambda state, claim, found: (replace(state, claim=claim), claim, found))
BY_TWO = before(lambda state, *action: (replace(state, step=state.step + 1), *action))
UNCOUNTED = behind(lambda state: replace(state, spent=replace(state.spent, cache_read_tokens=0)))
UNPAID = before(lambda words, taken, _need, most: (words, taken, 0, most))
TOO_LONG = behind(lambda note: replace(note, expected="x" * 30_000) if isinstance(note, StepNote) else note)
NEWEST_TOO: Sow = lambda right: lambda state, memory, **_: right(state, memory, kept_steps=0)  # noqa: E731
ONLY_TIME = behind(lambda reached: reached if reached and reached[0] == "budget_time" else None)
WITHOUT_PEOPLE = behind(
    lambda state: replace(state, notes=tuple(n for n in state.notes if n.kind not in ("message", "ruling")))
)

BUGS: tuple[tuple[Rule, str, Sow], ...] = (
    (steps.a_result_of_the_past_changes_nothing, "results.judge", unless(False, same_step)),
    (
        steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates,
        "results.judge",
        unless(True, other_tool),
    ),
    (steps.the_result_that_is_waited_for_is_taken, "results.judge", behind(match_ignored)),
    (steps.only_what_can_be_repeated_is_tried_again, "acting.is_repeatable", always(True)),
    (steps.an_attempt_follows_the_failure_of_the_one_before, "acting.plan_retry", before(retryable)),
    (steps.steps_count_from_one, "acting.dispatch", BY_TWO),
    (steps.what_is_sent_is_pending_in_the_same_entry, "acting.send", behind(not_sent)),
    (steps.the_correlation_keys_are_ours, "phases:Action.payload", instead(property(lambda it: it.arguments))),
    (steps.one_action_is_in_flight_or_several_that_only_read, "planning._why_alone", always("")),
    (steps.only_offered_commands_are_requested, "acting.action_flaws", without("has no command")),
    (
        steps.an_agent_calls_itself_only_as_deep_as_granted,
        "acting.action_flaws",
        without("agent from an agent"),
    ),
    (steps.no_more_is_under_way_than_one_run_may_have, "continuing._has_room", always(True)),
    (steps.a_task_is_asked_when_what_it_needs_is_there, "continuing._is_needed", always(False)),
    (steps.who_asked_for_tasks_is_told_of_all_in_their_order, "continuing._in_order", instead(list)),
    (steps.a_step_that_gathers_waits_for_something, "continuing._has_room", always(False)),
    (
        spending.limits_grow_only_by_people_or_while_they_are_asked,
        "people.with_signal",
        behind(lambda state: limits.with_limits(state, max_steps=99)),
    ),
    (spending.no_more_steps_and_attempts_are_taken_than_granted, "limits.reached_before_a_step", always(None)),
    (spending.nothing_is_asked_at_or_after_the_deadline, "limits.reached_before_a_call", always(None)),
    (
        spending.no_model_call_is_made_when_the_money_is_spent,
        "limits.reached_before_a_call",
        ONLY_TIME,
    ),
    (spending.every_paid_call_is_counted, "limits.charged", UNCOUNTED),
    (spending.no_more_reframes_are_made_than_granted, "decide._reframed", given(reframes=-9)),
    (
        spending.what_was_set_aside_and_not_answered_is_lost_once,
        "asking.with_lost_call",
        instead(lambda state: state),
    ),
    (spending.no_call_is_made_that_could_break_a_limit, "limits._reached", UNPAID),
    (
        spending.a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget,
        "decide.TABLE",
        decided(CallReserved, instead(lambda state, _event: state)),
    ),
    (order.no_key_is_used_twice, "acting.plan_retry", behind(same_attempt)),
    (order.a_run_is_completed_only_with_proof_of_every_item, "decide._done", BELIEVED),
    (order.a_run_is_completed_only_with_proof_of_every_item, "framing.judge_claims", instead(every_item_ticked)),
    (order.a_run_ends_once_and_nothing_follows, "decide.TABLE", as_in(Thinking, CancelRequested, Ended)),
    (order.a_late_result_is_recorded_once, "results._on_late", instead(recorded_again)),
    (order.a_cancel_ends_any_run, "decide.TABLE", decided(CancelRequested, always("never"))),
    (order.a_paused_run_asks_for_nothing, "asking.pause", behind(sent_while_paused)),
    (order.only_the_reply_that_is_waited_for_counts, "decide.TABLE", decided(ModelReplied, before(this_call))),
    (order.a_live_run_has_a_timer_no_later_than_its_deadline, "state:RunState.due_at", without_all_but_a_tool),
    (order.every_entry_counts_one_version, "decide.TABLE", decided(RunStarted, but(version=1))),
    (order.an_ignored_event_changes_nothing, "decide:events.Transition", changed_though_ignored),
    (order.a_signal_is_heard_once, "people.with_signal", given(signals=())),
    (kept.notes_are_only_appended_but_for_a_compaction, "notes.with_step", behind(rewritten)),
    (kept.what_people_said_is_a_note_for_ever, "notes.compacted", WITHOUT_PEOPLE),
    (kept.a_compaction_gives_up_older_steps_and_nothing_else, "notes.compacted", NEWEST_TOO),
    (kept.a_compaction_leaves_the_rest_of_the_run_as_it_is, "notes.compacted", but(done_items=())),
    (kept.notes_are_compacted_only_when_they_are_too_long, "notes.overfull", always(False)),
    (
        kept.every_finished_step_has_one_note_and_the_first_of_its_plan_the_thought_before_it,
        "notes.shorten_reflection",
        always(None),
    ),
    (kept.notes_are_bounded, "notes._sized", TOO_LONG),
    (
        deciding.only_a_plan_that_goes_with_a_good_decision_is_carried_out,
        "decide.TAKERS",
        planned_with_a_flaw,
    ),
    (deciding.a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound, "phases:Framing.flaws", always(())),
    (
        deciding.a_refusal_hands_the_run_to_a_person,
        "decide.TABLE",
        decided(ModelReplied, before(refused_as_unusable)),
    ),
    (deciding.a_claim_that_is_not_shown_is_refused_and_only_once, "framing._of_done", FOUND_ANYWAY),
    (deciding.done_is_looked_at_where_that_is_wanted, "framing.is_affordable", always(False)),
    (deciding.what_a_person_says_voids_what_is_claimed, "people.with_signal", claim_left),
    (deciding.a_claim_stands_only_while_it_is_looked_at, "framing._of_done", CLAIM_KEPT),
    (
        of_people.no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it,
        "planning.approval_reason",
        always(""),
    ),
    (
        of_people.what_was_refused_is_not_asked_for_again_until_somebody_says_more,
        "planning.refusal_flaws",
        always(()),
    ),
    (
        of_people.a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared,
        "acting.doubt_flaws",
        always(()),
    ),
    (of_people.nothing_goes_past_what_a_person_said_meanwhile, "decide._goes_past", always(False)),
    (of_people.no_more_questions_are_asked_than_granted, "planning.question_flaws", always(())),
)


@pytest.mark.parametrize(("rule", "where", "sow"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS])
def test_a_rule_finds_a_core_that_breaks_it(rule: Rule, where: str, sow: Sow, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, name = where.rpartition(".")
    module, _, inside = path.partition(":")
    home = reduce(getattr, filter(None, inside.split(".")), import_module(f"agent_service.core.{module}"))
    monkeypatch.setattr(home, name, sow(getattr(home, name)))
    assert any(breaks(rule, number) for number in range(ENOUGH))


def breaks(rule: Rule, number: int) -> bool:
    script = story(number)
    try:
        rule(script.story)
    except AssertionError:
        return True
    return False
