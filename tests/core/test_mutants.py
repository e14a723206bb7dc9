"""The rules have teeth: a core with one bug sown into it breaks the rule that forbids it, within few stories.

Each bug must be found by the rule that is named, not by a crash. Bugs of continuations are found by a walk through
random trees.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from random import Random
from typing import Any

import pytest

from agent_service.core import decide, endings
from agent_service.core.effects import AskModel, Transition
from agent_service.core.events import CallReserved, CancelRequested
from agent_service.core.evidence.proof import Judged
from agent_service.core.model import asking, notes, planning
from agent_service.core.people import hearing
from agent_service.core.phases import Digest, Framing, Phase, Refusal, Unusable
from agent_service.core.state import RunState
from agent_service.core.tools import acting, finishing
from agent_service.core.tools.correlate import Judgement, Relation
from agent_service.core.waiting import Deciding, Ended, ForModel, ForPerson, ToolRetry
from schemas.events import RESERVED_KEYS
from tests.core.gathering import Chances, Gathering, a_tree, check, play
from tests.core.rules import Rule, deciding, order, people, spending, steps
from tests.core.rules import notes as kept
from tests.core.stories import told

ENOUGH = 800
"""Stories within which a bug must be found."""
TREES = 60
"""Trees that are walked in search of a bug."""
WIDE = Chances(fails=20, ends_badly=20, depends=40, continues=20)
Sow = Callable[[Any], Any]
"""What a bug makes of the right function."""


@dataclass(frozen=True, slots=True)
class Bug:
    """`where`, a module of the core and a name in it, replaced by what `sow` makes of it."""

    what: str
    where: str
    sow: Sow

    def sown(self, patch: pytest.MonkeyPatch) -> None:
        path, _, name = self.where.rpartition(".")
        module, _, inside = path.partition(":")
        home = reduce(getattr, filter(None, inside.split(".")), import_module(f"agent_service.core.{module}"))
        patch.setattr(home, name, self.sow(getattr(home, name)))


def always(value: Any) -> Sow:
    return lambda _: lambda *_args, **_kwargs: value


def instead(wrong: Any) -> Sow:
    return lambda _: wrong


def before(change: Callable[..., tuple[Any, ...]]) -> Sow:
    """The function as it was, given what `change` makes of its positional arguments."""
    return lambda right: lambda *args, **named: right(*change(*args), **named)


def behind(change: Callable[[Any], Any]) -> Sow:
    """The function as it was, with `change` applied to what it returns."""
    return lambda right: lambda *args, **named: change(right(*args, **named))


def given(**changes: Any) -> Sow:
    """The function as it was, given a state with these changes."""
    return before(lambda state, *rest: (replace(state, **changes), *rest))


def but(**changes: Any) -> Sow:
    """The function as it was, but for fields of what it returns."""
    return behind(lambda led_to: replace(led_to, **changes))


def without(words: str) -> Sow:
    """The flaws that are found, but those with these words."""
    return behind(lambda flaws: tuple(flaw for flaw in flaws if words not in flaw))


def unless(relation: Relation, like: Callable[[RunState, Any], bool]) -> Sow:
    """`judge` with `relation` taken for a match, where the state and the result are `like` that."""

    def sow(right: Any) -> Any:
        def judge_wrongly(state: RunState, result: Any, *place: str) -> Judgement:
            judged: Judgement = right(state, result, *place)
            wrong = judged.relation is relation and state.pending is not None and like(state, result)
            return Judgement(Relation.MATCH, "", state.pending) if wrong else judged

        return judge_wrongly

    return sow


def decided(by: str, change: Sow) -> Sow:
    """The table, with what `change` makes of the function `by` of `decide` in its place."""
    right = getattr(decide, by)
    wrong = change(right)

    def row_of(row: Any) -> Any:
        return {kind: replace(rule, decider=wrong) if rule.decider is right else rule for kind, rule in row.items()}

    return lambda table: {state: row_of(row) for state, row in table.items()}


def as_in(other: type, kind: type, state: type) -> Sow:
    """The table, with an event of `kind` in `state` decided as it is in `other`."""
    return lambda table: {**table, state: {**table[state], kind: table[other][kind]}}


# What bugs do


def same_step(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.step == state.pending.step


def other_tool(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.tool != state.pending.action.tool


def future_ignored(judged: Judgement) -> Judgement:
    return replace(judged, relation=Relation.STALE) if "future" in judged.reason else judged


def match_ignored(judged: Judgement) -> Judgement:
    return Judgement(Relation.STALE, "") if judged.relation is Relation.MATCH else judged


def only_time(reached: Any) -> Any:
    return reached if reached and reached[0] == "budget_time" else None


def same_attempt(retried: Transition | None) -> Transition | None:
    if retried is None or retried.state is None or retried.state.pending is None:
        return retried
    assert isinstance(retried.state.waiting, ToolRetry)
    pending = replace(retried.state.pending, attempt=retried.state.pending.attempt - 1)
    return replace(retried, state=replace(retried.state, waiting=replace(retried.state.waiting, pending=pending)))


def at_once(retried: Transition | None) -> Transition | None:
    if retried is None or retried.state is None or retried.state.pending is None:
        return retried
    return acting.send(retried.state, retried.state.pending, at=retried.state.updated_at)


def retryable(state: RunState, pending: Any, error: Any) -> tuple[Any, ...]:
    return state, pending, error.model_copy(update={"retryable": True})


def not_sent(sent: Transition) -> Transition:
    assert sent.state is not None
    assert sent.state.pending is not None
    waiting = ToolRetry(pending=sent.state.pending, retry_at=sent.state.updated_at)
    return replace(sent, state=replace(sent.state, waiting=waiting))


def said_twice(ended: Transition) -> Transition:
    return replace(ended, effects=(*ended.effects, ended.effects[-1]))


def asking_while_paused(paused: Transition) -> Transition:
    asking = paused.state.asking if paused.state else None
    asked = (AskModel(call=asking.call, phase=asking.phase),) if asking else ()
    return replace(paused, effects=(*paused.effects, *asked))


def every_item_ticked(state: RunState, reflection: Any, _seen: Any) -> Judged:
    named = {claim.item: claim.evidence for claim in reflection.met}
    items = tuple(replace(item, evidence=(named.get(item.id, "trust me"),)) for item in state.done_items)
    return Judged(items=items, accepted=reflection.met, refusals=())


def recorded_again(state: RunState, event: Any, _why: str) -> Transition:
    return Transition(state=replace(state, late=(*state.late, (event.result.step, event.result.attempt))))


def reflected_at_once(state: RunState, pending: Any, result: Any, *, at: Any) -> Transition:
    finished = finishing.finish_step(state, pending, result, at=at)
    return asking.reflect(replace(finished, waiting=Deciding()), at=at)


def this_call(state: RunState, event: Any) -> tuple[RunState, Any]:
    return state, replace(event, call=state.asking.call) if state.asking else event


def this_reserve(state: RunState, event: Any) -> tuple[RunState, Any]:
    return this_call(state, event) if isinstance(event, CallReserved) else (state, event)


def rewritten(state: RunState) -> RunState:
    """The newest note but one is told anew, shorter."""
    told = tuple(replace(note, text=note.text[:200]) for note in state.notes[:-1])
    return replace(state, notes=(*told, *state.notes[-1:]))


def without_people(state: RunState) -> RunState:
    return replace(state, notes=tuple(note for note in state.notes if note.kind != "person"))


def nothing_lost(state: RunState, reserve: Any) -> tuple[Any, ...]:
    return replace(state, spent=replace(state.spent, lost_tokens=0, lost_cost_usd=0.0)), reserve


def cheap(state: RunState, reserve: Any) -> tuple[Any, ...]:
    return state, replace(reserve, cost_usd=reserve.cost_usd or 0.0)


def lost_again(spent: Any) -> Any:
    return replace(spent, lost_calls=spent.lost_calls + 1, lost_tokens=2 * spent.lost_tokens)


def not_asked(reserved: Transition) -> Transition:
    return replace(reserved, effects=tuple(e for e in reserved.effects if not isinstance(e, AskModel)))


def still_reserved(right: Any) -> Any:
    """What an outage leaves set aside."""

    def on_unavailable(state: RunState, event: Any) -> Transition:
        led_to: Transition = right(state, event)
        held = led_to.state.waiting if led_to.state else None
        if not isinstance(state.waiting, ForModel) or not led_to.state or not isinstance(held, ForPerson):
            return led_to
        return replace(led_to, state=replace(led_to.state, waiting=replace(held, held=state.waiting)))

    return on_unavailable


def digested_in_any_phase(right: Any) -> Any:
    def take_up(state: RunState, asked: Any, reply: Any) -> Any:
        if isinstance(reply.decision, Digest) and asked.phase is not Phase.FRAME:
            return asking.ask_to_reflect(notes.compacted(state, reply.decision.memory), reply.at)
        return right(state, asked, reply)

    return take_up


def planned_with_a_flaw(right: Any) -> Any:
    """The plan of a framing is carried out whatever is wrong with the framing."""

    def take_up(state: RunState, asked: Any, reply: Any) -> Any:
        if asked.phase is Phase.FRAME and isinstance(reply.decision, Framing) and reply.plan:
            return planning.take_next(state, reply.plan, (), at=reply.at)
        return right(state, asked, reply)

    return take_up


def refused_as_unusable(state: RunState, reply: Any) -> tuple[Any, ...]:
    return state, replace(reply, decision=Unusable(reason="no")) if isinstance(reply.decision, Refusal) else reply


def claim_left(right: Any) -> Any:
    """A message after which the claim still stands."""
    return lambda state, event: replace(right(state, event), claim=state.claim, proposed=state.proposed)


def without_needs(gathering: Any, task: Any, came: Any) -> tuple[Any, ...]:
    return gathering, replace(task, needs=()), came


def in_lower_case(action: Any) -> Any:
    return {name: value for name, value in action.arguments.items() if name not in RESERVED_KEYS}


def without_all_but_a_tool(right: Any) -> property:
    return property(lambda state: right.fget(state) if state.pending else None)


BUGS: dict[Rule, tuple[Bug, ...]] = {
    steps.a_result_of_the_past_changes_nothing: (
        Bug("an attempt that was given up counts", "tools.results.judge", unless(Relation.STALE, same_step)),
        Bug("finished steps are forgotten", "state:RunState.has_finished", always(False)),
    ),
    steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates: (
        Bug("the result of a wrong tool is taken", "tools.results.judge", unless(Relation.VIOLATION, other_tool)),
        Bug("a step of the future is ignored", "tools.results.judge", behind(future_ignored)),
    ),
    steps.the_result_that_is_waited_for_is_taken: (
        Bug("the result that is waited for is ignored", "tools.results.judge", behind(match_ignored)),
    ),
    spending.no_more_steps_and_attempts_are_taken_than_granted: (
        Bug("a step goes beyond max_steps", "limits.reached_before_a_step", always(None)),
    ),
    spending.nothing_is_asked_at_or_after_the_deadline: (
        Bug("no limit is looked at before a call", "limits.reached_before_a_call", always(None)),
    ),
    spending.no_model_call_is_made_when_the_money_is_spent: (
        Bug("spent tokens are not looked at before a call", "limits.reached_before_a_call", behind(only_time)),
    ),
    spending.every_paid_call_is_counted: (
        Bug(
            "an unknown cost counts as nothing",
            "model.thinking._add",
            behind(lambda spent: replace(spent, cost_usd=spent.cost_usd or 0.0)),
        ),
        Bug("what comes from the cache is not counted", "model.thinking._add", but(cache_read_tokens=0)),
    ),
    spending.no_more_reframes_are_made_than_granted: (
        Bug("reframes are not counted", "model.reflecting._reframed", given(reframes=-9)),
    ),
    steps.only_what_can_be_repeated_is_tried_again: (
        Bug("a write is tried again", "tools.acting.is_repeatable", always(True)),
    ),
    steps.an_attempt_follows_the_failure_of_the_one_before: (
        Bug("an error that is not retryable is tried again", "tools.acting.retry", before(retryable)),
        Bug("a retry does not wait", "tools.acting.retry", behind(at_once)),
    ),
    order.no_key_is_used_twice: (Bug("a retry is the same attempt again", "tools.acting.retry", behind(same_attempt)),),
    steps.steps_count_from_one: (
        Bug(
            "steps are counted by two",
            "model.planning.dispatch",
            before(lambda state, *action: (replace(state, step=state.step + 1), *action)),
        ),
    ),
    steps.what_is_sent_is_pending_in_the_same_entry: (
        Bug("a request leaves that is not pending", "tools.acting._depart", behind(not_sent)),
    ),
    steps.the_correlation_keys_are_ours: (
        Bug("reserved keys are sent", "phases:Action.payload", instead(property(lambda it: it.arguments))),
        Bug("only lower case is kept back", "phases:Action.payload", instead(property(in_lower_case))),
    ),
    steps.one_action_is_in_flight_or_several_that_only_read: (
        Bug("a write is planned beside a read", "model.reads._why_alone", always("")),
        Bug("more reads are planned than granted", "model.reads.most", always(9)),
        Bug("the next step begins while a read is out", "tools.finishing.finished", instead(reflected_at_once)),
    ),
    steps.only_offered_commands_are_requested: (
        Bug("a command is not looked for on the list", "model.planning.flaws_of_action", without("has no command")),
    ),
    steps.an_agent_calls_itself_only_as_deep_as_granted: (
        Bug("an agent may call itself", "model.planning.flaws_of_action", without("agent from an agent")),
    ),
    order.a_run_is_completed_only_with_proof_of_every_item: (
        Bug(
            "done is believed",
            "model.reflecting._done",
            instead(lambda state, reflection, *, at: endings.complete(state, reflection.summary, at)),
        ),
        Bug("evidence is believed", "model.reflecting.judged", instead(every_item_ticked)),
    ),
    order.a_run_ends_once_and_nothing_follows: (
        Bug("a final status is left again", "decide.TABLE", as_in(ForModel, CancelRequested, Ended)),
        Bug("the end is told twice", "endings._final", behind(said_twice)),
    ),
    order.a_late_result_is_recorded_once: (
        Bug("a late result is recorded each time it comes", "tools.results._on_late", instead(recorded_again)),
    ),
    order.a_cancel_ends_any_run: (
        Bug("a paused run cannot be cancelled", "decide.TABLE", as_in(Ended, CancelRequested, ForPerson)),
    ),
    order.a_paused_run_asks_for_nothing: (
        Bug("a paused run asks its model", "endings.pause", behind(asking_while_paused)),
    ),
    order.only_the_reply_that_is_waited_for_counts: (
        Bug("any reply is taken for the one", "decide.TABLE", decided("_of_the_model", before(this_call))),
        Bug("a reserve of any call is taken", "decide.TABLE", decided("_of_the_model", before(this_reserve))),
    ),
    order.a_live_run_has_a_timer_no_later_than_its_deadline: (
        Bug("only a tool has a timer", "state:RunState.due_at", without_all_but_a_tool),
    ),
    order.every_entry_counts_one_version: (
        Bug("an entry is not counted", "decide._counted", instead(lambda state: state)),
    ),
    order.an_ignored_event_changes_nothing: (
        Bug("what is ignored makes a new state", "decide._ignored", given(summary="ignored")),
    ),
    order.a_signal_is_heard_once: (Bug("a signal is forgotten once heard", "people.hearing.told", given(signals=())),),
    spending.what_was_set_aside_and_not_answered_is_lost_once: (
        Bug("a reserve that is found is forgotten", "endings.with_lost", instead(lambda spent, _reserve: spent)),
        Bug("a lost call is counted twice", "endings.with_lost", behind(lost_again)),
        Bug("a call that an end interrupts costs nothing", "endings.with_lost_call", instead(lambda state: state)),
        Bug(
            "a reply makes what was lost forgotten",
            "model.thinking._add",
            but(lost_calls=0, lost_tokens=0, lost_cost_usd=0.0),
        ),
    ),
    spending.no_call_is_made_that_could_break_a_limit: (
        Bug("a limit is not held against what is set aside", "limits.beyond_with", always(None)),
        Bug("what was lost does not count against a limit", "limits.beyond_with", before(nothing_lost)),
        Bug("an unknown price passes for a low one", "limits.beyond_with", before(cheap)),
    ),
    spending.a_reserve_stands_only_while_its_call_is_being_made: (
        Bug("an outage keeps what was set aside", "model.asking.on_unavailable", still_reserved),
    ),
    spending.a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget: (
        Bug("a call is set aside for and not made", "model.asking.on_reserved", behind(not_asked)),
    ),
    kept.notes_are_only_appended_but_for_a_compaction: (
        Bug("the older notes are told anew", "model.notes.with_step", behind(rewritten)),
        Bug("a digest that nobody asked for is taken up", "model.thinking._decided", digested_in_any_phase),
    ),
    kept.what_people_said_is_a_note_for_ever: (
        Bug("a compaction drops what people said", "model.notes.compacted", behind(without_people)),
        Bug("a message is not noted", "model.notes.with_message", instead(lambda state, *_, **__: state)),
    ),
    kept.a_compaction_gives_up_older_steps_and_nothing_else: (
        Bug(
            "a compaction drops the newest steps too",
            "model.notes.compacted",
            lambda right: lambda state, memory, **_: right(state, memory, kept_steps=0),
        ),
    ),
    kept.a_compaction_leaves_the_rest_of_the_run_as_it_is: (
        Bug("a compaction unticks the definition of done", "model.notes.compacted", but(done_items=())),
    ),
    kept.notes_are_compacted_only_when_they_are_too_long: (
        Bug("notes are never too long", "model.notes.overfull", always(False)),
        Bug("few notes are compacted", "model.notes.overfull", instead(lambda state: len(state.notes) > 2)),
    ),
    kept.every_finished_step_has_one_note_with_the_thought_before_it: (
        Bug("the thought before a step is not noted", "model.notes.with_step", given(reflection=None)),
    ),
    kept.notes_are_bounded: (
        Bug(
            "a result is noted in full",
            "model.notes._step",
            behind(lambda note: replace(note, text=note.text + "x" * 27_000)),
        ),
    ),
    deciding.only_a_plan_that_goes_with_a_good_decision_is_carried_out: (
        Bug("the plan of a flawed framing is carried out", "model.thinking._decided", planned_with_a_flaw),
    ),
    deciding.a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound: (
        Bug("a framing's flaws are not looked at", "phases:Framing.flaws", always(())),
    ),
    deciding.a_refusal_hands_the_run_to_a_person: (
        Bug("a refusal is asked for again", "model.thinking.on_reply", before(refused_as_unusable)),
    ),
    people.no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it: (
        Bug("nothing needs an approval", "people.approving.why_needed", always("")),
        Bug(
            "a refusal is taken for an approval",
            "people.hearing._refused",
            instead(lambda state, waiting, _ruling, *, at: hearing._approved(state, waiting, by="", at=at)),
        ),
        Bug(
            "any approval allows everything",
            "people.approving.is_allowed",
            instead(lambda state, _plan: bool(state.rulings)),
        ),
    ),
    people.what_was_refused_is_not_asked_for_again_until_somebody_says_more: (
        Bug("what was refused may be planned again at once", "people.approving.flaws_of", always(())),
    ),
    people.a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared: (
        Bug("a write in doubt bars nothing", "tools.doubting.flaws_of", always(())),
    ),
    people.nothing_goes_past_what_a_person_said_meanwhile: (
        Bug("a reply goes past a message", "model.thinking.outrun", always(False)),
    ),
    people.no_more_questions_are_asked_than_granted: (
        Bug("any number of questions is asked", "model.answering.flaws_of", always(())),
    ),
    deciding.a_claim_that_is_not_shown_is_refused_and_only_once: (
        Bug(
            "whatever was found, done counts",
            "model.verifying._of_done",
            before(lambda state, claim, found: (state, claim, replace(found, holds=True))),
        ),
        Bug("done is refused again and again", "model.verifying.look_at_done", given(unverified=0)),
    ),
    deciding.done_is_looked_at_where_that_is_wanted: (
        Bug("nobody is asked to look", "model.verifying.is_affordable", always(False)),
    ),
    deciding.what_a_person_says_voids_what_is_claimed: (
        Bug("a message leaves the claim", "people.hearing.told", claim_left),
    ),
    deciding.a_claim_stands_only_while_it_is_looked_at: (
        Bug(
            "a claim outlives its refusal",
            "model.verifying._of_done",
            before(lambda state, claim, found: (replace(state, claim=claim), claim, found)),
        ),
    ),
}
BUGS_OF_TASKS = (
    Bug("a task does not wait for others", "graph.coming_next._nothing_before", before(without_needs)),
    Bug("any number of requests is under way", "graph.coming_next._has_room", always(True)),
    Bug("nothing is ever asked", "graph.coming_next._has_room", always(False)),
    Bug("a failed task fails nothing", "graph.continuing.flaw_of", always(None)),
    Bug("what was answered is taken for what was never asked", "tools.correlate._was_sent", always(False)),
    Bug("a part of the evidence is left out", "graph.gathered._handed", behind(lambda handed: handed[:-1])),
    Bug("evidence comes in the order of arrival", "graph.gathered._in_order", instead(list)),
)


def found_by() -> Iterator[Any]:
    return (pytest.param(rule, bug, id=bug.what) for rule, bugs in BUGS.items() for bug in bugs)


@pytest.mark.parametrize(("rule", "bug"), [*found_by()])
def test_a_rule_finds_that(rule: Rule, bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.sown(monkeypatch)
    assert any(breaks(rule, number) for number in range(ENOUGH))


def breaks(rule: Rule, number: int) -> bool:
    script = told(number)
    try:
        rule(script.story)
    except AssertionError:
        return True
    return False


def test_the_right_core_breaks_no_rule() -> None:
    assert not [rule for number in range(ENOUGH // 8) for rule in BUGS if breaks(rule, number)]


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.what) for bug in BUGS_OF_TASKS])
def test_some_tree_shows_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.sown(monkeypatch)
    assert any(is_shown_by(number) for number in range(TREES))


def is_shown_by(number: int) -> bool:
    """Whether the walk through tree `number` ends in a broken rule, or in a fault of the program."""
    chance = Random(number)  # noqa: S311 - it makes trees, no secrets
    root = a_tree(chance, (chance.randint(4, 12), chance.randint(1, 6)), WIDE)
    try:
        gathering = Gathering(root)
        play(gathering, chance, loses=number % 2 == 1)
        assert gathering.executor.most_open <= 4
        check(gathering, root)
    except (AssertionError, ValueError, StopIteration, KeyError):
        return True
    return False


def test_no_tree_shows_a_bug_where_there_is_none() -> None:
    assert not [number for number in range(TREES) if is_shown_by(number)]
