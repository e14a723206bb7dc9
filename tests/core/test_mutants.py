"""The rules have teeth: a core with one bug sown into it breaks the rule that forbids it, within few stories.

Each bug must be found by the rule that is named, not by a crash.
"""

from dataclasses import replace

import pytest

from agent_service.core import acting, decide, endings, limits, results, thinking
from agent_service.core.correlate import Judgement, Relation
from agent_service.core.events import CancelRequested
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, ForModel, ForPerson
from schemas.events import RESERVED_KEYS
from tests.core.bugs import (
    Mutant,
    always,
    always_done,
    any_call_for_this_one,
    as_in,
    asking_while_paused,
    at_once,
    before,
    behind,
    decided,
    every_item_ticked,
    not_sent,
    other_tool,
    recorded_again,
    said_twice,
    same_step,
    unless,
    without_retry_number,
)
from tests.core.model_mutants import MODEL_MUTANTS
from tests.core.rules import RULES, Rule, order, spending, steps, waiting
from tests.core.rules import endings as ends
from tests.core.stories import told

ENOUGH = 400
"""Stories within which a bug must be found."""


MUTANTS = (
    Mutant(
        bug="an attempt that was given up is taken for the pending one",
        where=results,
        name="judge",
        sow=unless(Relation.STALE, same_step),
        found_by=steps.a_result_of_the_past_changes_nothing,
    ),
    Mutant(
        bug="finished steps are forgotten",
        where=RunState,
        name="has_finished",
        sow=always(False),
        found_by=steps.a_result_of_the_past_changes_nothing,
    ),
    Mutant(
        bug="the result of a wrong tool is taken",
        where=results,
        name="judge",
        sow=unless(Relation.VIOLATION, other_tool),
        found_by=steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates,
    ),
    Mutant(
        bug="a step of the future is ignored",
        where=results,
        name="judge",
        sow=behind(lambda judged: replace(judged, relation=Relation.STALE) if "future" in judged.reason else judged),
        found_by=steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates,
    ),
    Mutant(
        bug="the result that is waited for is ignored",
        where=results,
        name="judge",
        sow=behind(lambda judged: Judgement(Relation.STALE, "") if judged.relation is Relation.MATCH else judged),
        found_by=steps.the_result_that_is_waited_for_is_taken,
    ),
    Mutant(
        bug="a step goes beyond max_steps",
        where=limits,
        name="reached_before_a_step",
        sow=always(None),
        found_by=spending.no_more_steps_and_attempts_are_taken_than_granted,
    ),
    Mutant(
        bug="the deadline and the tokens are not looked at before a call",
        where=limits,
        name="reached_before_a_call",
        sow=always(None),
        found_by=spending.nothing_is_asked_at_or_after_the_deadline,
    ),
    Mutant(
        bug="spent tokens are not looked at before a call",
        where=limits,
        name="reached_before_a_call",
        sow=behind(lambda reached: reached if reached and reached[0] == "budget_time" else None),
        found_by=spending.no_model_call_is_made_when_the_money_is_spent,
    ),
    Mutant(
        bug="an unknown cost counts as nothing",
        where=thinking,
        name="_add",
        sow=behind(lambda spent: replace(spent, cost_usd=spent.cost_usd or 0.0)),
        found_by=spending.every_paid_call_is_counted,
    ),
    Mutant(
        bug="reframes are not counted",
        where=thinking,
        name="_reframed",
        sow=before(lambda state, reflection: (replace(state, reframes=-9), reflection)),
        found_by=spending.no_more_reframes_are_made_than_granted,
    ),
    Mutant(
        bug="a write is tried again",
        where=acting,
        name="is_repeatable",
        sow=always(True),
        found_by=steps.only_what_can_be_repeated_is_tried_again,
    ),
    Mutant(
        bug="an error that is not retryable is tried again",
        where=acting,
        name="retry",
        sow=before(lambda state, pending, error: (state, pending, error.model_copy(update={"retryable": True}))),
        found_by=steps.an_attempt_follows_the_failure_of_the_one_before,
    ),
    Mutant(
        bug="a retry is the same attempt again",
        where=acting,
        name="retry",
        sow=behind(without_retry_number),
        found_by=order.no_key_is_used_twice,
    ),
    Mutant(
        bug="a retry does not wait",
        where=acting,
        name="retry",
        sow=behind(at_once),
        found_by=steps.an_attempt_follows_the_failure_of_the_one_before,
    ),
    Mutant(
        bug="steps are counted by two",
        where=thinking,
        name="dispatch",
        sow=before(lambda state, action: (replace(state, step=state.step + 1), action)),
        found_by=steps.steps_count_from_one,
    ),
    Mutant(
        bug="a request leaves that is not pending",
        where=acting,
        name="send",
        sow=behind(not_sent),
        found_by=steps.what_is_sent_is_pending_in_the_same_entry,
    ),
    Mutant(
        bug="reserved keys of the arguments are sent",
        where=acting,
        name="_without_reserved",
        sow=lambda _: dict,
        found_by=steps.the_correlation_keys_are_ours,
    ),
    Mutant(
        bug="only reserved keys in lower case are kept back",
        where=acting,
        name="_without_reserved",
        sow=lambda _: lambda arguments: {k: v for k, v in arguments.items() if k not in RESERVED_KEYS},
        found_by=steps.the_correlation_keys_are_ours,
    ),
    Mutant(
        bug="a command is not looked for on the list",
        where=thinking,
        name="flaws_of_action",
        sow=behind(lambda flaws: tuple(flaw for flaw in flaws if "has no command" not in flaw)),
        found_by=steps.only_offered_commands_are_requested,
    ),
    Mutant(
        bug="an agent may call itself",
        where=thinking,
        name="flaws_of_action",
        sow=behind(lambda flaws: tuple(flaw for flaw in flaws if "agent from an agent" not in flaw)),
        found_by=steps.an_agent_calls_itself_only_as_deep_as_granted,
    ),
    Mutant(
        bug="done is believed",
        where=thinking,
        name="_done",
        sow=lambda _: always_done,
        found_by=ends.a_run_is_completed_only_with_proof_of_every_item,
    ),
    Mutant(
        bug="evidence is believed",
        where=thinking,
        name="_ticked",
        sow=lambda _: every_item_ticked,
        found_by=ends.a_run_is_completed_only_with_proof_of_every_item,
    ),
    Mutant(
        bug="a final status is left again",
        where=decide,
        name="TABLE",
        sow=as_in(ForModel, CancelRequested, Ended),
        found_by=ends.a_run_ends_once_and_nothing_follows,
    ),
    Mutant(
        bug="the end is told twice",
        where=endings,
        name="_final",
        sow=behind(said_twice),
        found_by=ends.a_run_ends_once_and_nothing_follows,
    ),
    Mutant(
        bug="a late result is recorded each time it comes",
        where=results,
        name="_on_late",
        sow=lambda _: recorded_again,
        found_by=ends.a_late_result_is_recorded_once,
    ),
    Mutant(
        bug="a paused run cannot be cancelled",
        where=decide,
        name="TABLE",
        sow=as_in(Ended, CancelRequested, ForPerson),
        found_by=ends.a_cancel_ends_any_run,
    ),
    Mutant(
        bug="a paused run asks its model",
        where=endings,
        name="pause",
        sow=behind(asking_while_paused),
        found_by=waiting.a_paused_run_asks_for_nothing,
    ),
    Mutant(
        bug="any reply is taken for the one that is waited for",
        where=decide,
        name="TABLE",
        sow=decided("_of_the_model", before(any_call_for_this_one)),
        found_by=waiting.only_the_reply_that_is_waited_for_counts,
    ),
    Mutant(
        bug="only a tool has a timer",
        where=RunState,
        name="due_at",
        sow=lambda right: property(lambda state: right.fget(state) if state.pending else None),
        found_by=waiting.a_live_run_has_a_timer_no_later_than_its_deadline,
    ),
    Mutant(
        bug="an entry is not counted",
        where=decide,
        name="_counted",
        sow=lambda _: lambda state: state,
        found_by=order.every_entry_counts_one_version,
    ),
    Mutant(
        bug="what is ignored makes a new state",
        where=decide,
        name="_ignored",
        sow=before(lambda state, why: (replace(state, summary=why), why)),
        found_by=order.an_ignored_event_changes_nothing,
    ),
    Mutant(
        bug="a signal is forgotten once it was heard",
        where=decide,
        name="TABLE",
        sow=decided("_hear", before(lambda state, event: (replace(state, signals=()), event))),
        found_by=order.a_signal_is_heard_once,
    ),
)


ALL = (*MUTANTS, *MODEL_MUTANTS)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.bug)
def test_a_rule_finds_that(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(mutant.where, mutant.name)
    monkeypatch.setattr(mutant.where, mutant.name, mutant.sow(right))
    assert any(breaks(mutant.found_by, number) for number in range(ENOUGH))


def breaks(rule: Rule, number: int) -> bool:
    script = told(number)
    try:
        rule(script.story)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule in {mutant.found_by for mutant in ALL}])
def test_the_right_core_does_not_break_the_rule(rule: Rule) -> None:
    assert not any(breaks(rule, number) for number in range(ENOUGH // 8))
