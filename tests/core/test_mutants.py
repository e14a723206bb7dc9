"""The rules have teeth: a core with one bug sown into it breaks the rule that forbids it, within few stories.

Each bug must be found by the rule that is named, not by a crash.
"""

from dataclasses import replace

import pytest

from agent_service.core import decide, endings, limits
from agent_service.core.events import CancelRequested
from agent_service.core.model import planning, reads, reflecting, thinking
from agent_service.core.people import hearing
from agent_service.core.phases import Action
from agent_service.core.state import RunState
from agent_service.core.tools import acting, finishing, results
from agent_service.core.tools.correlate import Judgement, Relation
from agent_service.core.waiting import Ended, ForModel, ForPerson
from schemas.events import RESERVED_KEYS
from tests.core.bugs import (
    Bug,
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
    reflected_at_once,
    said_twice,
    same_step,
    unless,
    without_retry_number,
)
from tests.core.model_mutants import MODEL_BUGS
from tests.core.people_mutants import PEOPLE_BUGS
from tests.core.proof_mutants import PROOF_BUGS
from tests.core.rules import Rule, order, spending, steps, waiting
from tests.core.rules import endings as ends
from tests.core.stories import told

ENOUGH = 800
"""Stories within which a bug must be found."""


BUGS: dict[Rule, tuple[Bug, ...]] = {
    steps.a_result_of_the_past_changes_nothing: (
        Bug(
            "an attempt that was given up is taken for the pending one",
            results,
            "judge",
            unless(Relation.STALE, same_step),
        ),
        Bug("finished steps are forgotten", RunState, "has_finished", always(False)),
    ),
    steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates: (
        Bug("the result of a wrong tool is taken", results, "judge", unless(Relation.VIOLATION, other_tool)),
        Bug(
            "a step of the future is ignored",
            results,
            "judge",
            behind(lambda judged: replace(judged, relation=Relation.STALE) if "future" in judged.reason else judged),
        ),
    ),
    steps.the_result_that_is_waited_for_is_taken: (
        Bug(
            "the result that is waited for is ignored",
            results,
            "judge",
            behind(lambda judged: Judgement(Relation.STALE, "") if judged.relation is Relation.MATCH else judged),
        ),
    ),
    spending.no_more_steps_and_attempts_are_taken_than_granted: (
        Bug("a step goes beyond max_steps", limits, "reached_before_a_step", always(None)),
    ),
    spending.nothing_is_asked_at_or_after_the_deadline: (
        Bug(
            "the deadline and the tokens are not looked at before a call", limits, "reached_before_a_call", always(None)
        ),
    ),
    spending.no_model_call_is_made_when_the_money_is_spent: (
        Bug(
            "spent tokens are not looked at before a call",
            limits,
            "reached_before_a_call",
            behind(lambda reached: reached if reached and reached[0] == "budget_time" else None),
        ),
    ),
    spending.every_paid_call_is_counted: (
        Bug(
            "an unknown cost counts as nothing",
            thinking,
            "_add",
            behind(lambda spent: replace(spent, cost_usd=spent.cost_usd or 0.0)),
        ),
    ),
    spending.no_more_reframes_are_made_than_granted: (
        Bug(
            "reframes are not counted",
            reflecting,
            "_reframed",
            before(lambda state, reflection: (replace(state, reframes=-9), reflection)),
        ),
    ),
    steps.only_what_can_be_repeated_is_tried_again: (
        Bug("a write is tried again", acting, "is_repeatable", always(True)),
    ),
    steps.an_attempt_follows_the_failure_of_the_one_before: (
        Bug(
            "an error that is not retryable is tried again",
            acting,
            "retry",
            before(lambda state, pending, error: (state, pending, error.model_copy(update={"retryable": True}))),
        ),
        Bug("a retry does not wait", acting, "retry", behind(at_once)),
    ),
    order.no_key_is_used_twice: (
        Bug("a retry is the same attempt again", acting, "retry", behind(without_retry_number)),
    ),
    steps.steps_count_from_one: (
        Bug(
            "steps are counted by two",
            planning,
            "dispatch",
            before(lambda state, action: (replace(state, step=state.step + 1), action)),
        ),
    ),
    steps.what_is_sent_is_pending_in_the_same_entry: (
        Bug("a request leaves that is not pending", acting, "_depart", behind(not_sent)),
    ),
    steps.the_correlation_keys_are_ours: (
        Bug("reserved keys of the arguments are sent", Action, "payload", lambda _: property(lambda it: it.arguments)),
        Bug(
            "only reserved keys in lower case are kept back",
            Action,
            "payload",
            lambda _: property(lambda it: {k: v for k, v in it.arguments.items() if k not in RESERVED_KEYS}),
        ),
    ),
    steps.one_action_is_in_flight_or_several_that_only_read: (
        Bug("a write is planned beside a read", reads, "_why_alone", always("")),
        Bug("more reads are planned than granted", reads, "most", always(9)),
        Bug("the next step begins while a read is out", finishing, "finished", lambda _: reflected_at_once),
    ),
    steps.only_offered_commands_are_requested: (
        Bug(
            "a command is not looked for on the list",
            planning,
            "flaws_of_action",
            behind(lambda flaws: tuple(flaw for flaw in flaws if "has no command" not in flaw)),
        ),
    ),
    steps.an_agent_calls_itself_only_as_deep_as_granted: (
        Bug(
            "an agent may call itself",
            planning,
            "flaws_of_action",
            behind(lambda flaws: tuple(flaw for flaw in flaws if "agent from an agent" not in flaw)),
        ),
    ),
    ends.a_run_is_completed_only_with_proof_of_every_item: (
        Bug("done is believed", reflecting, "_done", lambda _: always_done),
        Bug("evidence is believed", reflecting, "judged", lambda _: every_item_ticked),
    ),
    ends.a_run_ends_once_and_nothing_follows: (
        Bug("a final status is left again", decide, "TABLE", as_in(ForModel, CancelRequested, Ended)),
        Bug("the end is told twice", endings, "_final", behind(said_twice)),
    ),
    ends.a_late_result_is_recorded_once: (
        Bug("a late result is recorded each time it comes", results, "_on_late", lambda _: recorded_again),
    ),
    ends.a_cancel_ends_any_run: (
        Bug("a paused run cannot be cancelled", decide, "TABLE", as_in(Ended, CancelRequested, ForPerson)),
    ),
    waiting.a_paused_run_asks_for_nothing: (
        Bug("a paused run asks its model", endings, "pause", behind(asking_while_paused)),
    ),
    waiting.only_the_reply_that_is_waited_for_counts: (
        Bug(
            "any reply is taken for the one that is waited for",
            decide,
            "TABLE",
            decided("_of_the_model", before(any_call_for_this_one)),
        ),
    ),
    waiting.a_live_run_has_a_timer_no_later_than_its_deadline: (
        Bug(
            "only a tool has a timer",
            RunState,
            "due_at",
            lambda right: property(lambda state: right.fget(state) if state.pending else None),
        ),
    ),
    order.every_entry_counts_one_version: (
        Bug("an entry is not counted", decide, "_counted", lambda _: lambda state: state),
    ),
    order.an_ignored_event_changes_nothing: (
        Bug(
            "what is ignored makes a new state",
            decide,
            "_ignored",
            before(lambda state, why: (replace(state, summary=why), why)),
        ),
    ),
    order.a_signal_is_heard_once: (
        Bug(
            "a signal is forgotten once it was heard",
            hearing,
            "told",
            before(lambda state, event: (replace(state, signals=()), event)),
        ),
    ),
}


FOUND_BY = (*BUGS.items(), *MODEL_BUGS.items(), *PEOPLE_BUGS.items(), *PROOF_BUGS.items())


@pytest.mark.parametrize(
    ("rule", "bug"), [pytest.param(rule, bug, id=bug.what) for rule, bugs in FOUND_BY for bug in bugs]
)
def test_a_rule_finds_that(rule: Rule, bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug.where, bug.name, bug.sow(getattr(bug.where, bug.name)))
    assert any(breaks(rule, number) for number in range(ENOUGH))


def breaks(rule: Rule, number: int) -> bool:
    script = told(number)
    try:
        rule(script.story)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("rule", dict(FOUND_BY))
def test_the_right_core_does_not_break_the_rule(rule: Rule) -> None:
    assert not any(breaks(rule, number) for number in range(ENOUGH // 8))
