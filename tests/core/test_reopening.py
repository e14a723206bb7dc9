"""Reopening: what an answer sets going again, where it goes on, and what stays closed."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.people.remedies import remedy
from agent_service.core.waiting import Status
from schemas import subjects
from schemas.events import Outcome as SaidOutcome
from tests.core.cues import (
    DEADLINE,
    a_finished_run,
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    garbles,
    goes_on,
    plans,
    reflects,
    returns,
    too_early,
    unavailable,
)
from tests.core.people_cues import a_run_in_doubt, answer, asks_a_person
from tests.core.script import Outcome, Script, asks, ignores, requests

REOPENS = Outcome("publish agent.reopened")


def out_of(budget: str) -> Script:
    """A run that escalated for a spent budget."""
    match budget:
        case "steps":
            return a_reflecting_run(max_steps=1) >> goes_on("save", text="x")
        case "tokens":
            return a_reflecting_run(max_tokens=200)
        case "cost":
            return a_reflecting_run(max_cost_usd=0.02)
        case "reframes":
            return a_reflecting_run(max_reframes=0) >> reflects("reframe")
        case "time":
            return a_reflecting_run().wait(hours=1) >> too_early
    raise AssertionError(budget)


def stuck() -> Script:
    run = a_reflecting_run(max_steps=9)
    for _ in range(3):
        run = run >> goes_on() >> returns(output={"summary": "same"})
    return run >> goes_on()


ENDINGS: dict[str, Script] = {
    "model": a_reflecting_run() >> reflects("escalate"),
    "invalid_decision": a_planning_run(max_repairs=0) >> garbles(),
    "stuck_loop": stuck(),
    "tool_exhausted": a_waiting_run(max_attempts=1) >> errs("upstream", retryable=True),
    "configuration": a_waiting_run("post") >> errs("configuration"),
    "protocol_violation": a_reflecting_run() >> returns(step=9),
    "overloaded": a_planning_run() >> unavailable("escalate"),
}


@pytest.mark.parametrize("why", ENDINGS)
def test_an_answer_sets_an_escalated_run_going_again(why: str) -> None:
    run = ENDINGS[why]
    assert (run.state.status, run.state.ending_class) == (Status.ESCALATED, why)
    run >> answer("try it once more", by="token ops") << (REOPENS, asks("reflect"))
    opened = run.sent(subjects.REOPENED)
    assert (opened["by"], opened["answer_to"], opened["message"]) == ("token ops", why, "try it once more")
    assert (run.state.status, run.state.reopened) == (Status.RUNNING, 1)
    assert "try it once more" in "".join(note.text for note in run.state.notes[-2:])


@pytest.mark.parametrize(
    "run", [a_finished_run(), a_waiting_run() >> cancel(), a_planning_run() >> unavailable("fail")]
)
def test_what_is_done_cancelled_or_failed_stays_closed(run: Script) -> None:
    run >> answer() << ignores(f"the run has ended ({run.state.status})")


def test_an_answer_needs_words() -> None:
    a_reflecting_run() >> reflects("escalate") >> answer(None) << ignores("an answer needs a message")


def test_a_run_is_reopened_within_its_days_and_not_later() -> None:
    run = (a_reflecting_run(reopen_days=2.0) >> reflects("escalate")).wait(days=2)
    run >> answer() << (REOPENS, asks("reflect"))
    run = (run >> reflects("escalate")).wait(days=2, seconds=1)
    run >> answer() << ignores("more than 2 days ago: ask for a new one")


def test_the_deadline_stood_still_while_it_was_closed() -> None:
    run = (a_reflecting_run() >> reflects("escalate")).wait(days=1) >> answer()
    assert run.state.brief.limits.deadline_at == DEADLINE + timedelta(days=1)


RAISES: dict[str, dict[str, Any]] = {
    "steps": {"max_steps": 2},
    "tokens": {"max_tokens": 9000},
    "cost": {"max_cost_usd": 9.0},
    "reframes": {"max_reframes": 1},
    "time": {"deadline_at": DEADLINE + timedelta(hours=3)},
}


@pytest.mark.parametrize(("budget", "raises"), RAISES.items())
def test_the_budget_that_ended_it_has_to_be_raised_with_the_answer(budget: str, raises: dict[str, Any]) -> None:
    run = out_of(budget)
    assert run.state.ending_class == f"budget_{budget}"
    run >> answer("go on") << ignores("raise that with the answer (--")
    run >> answer("go on", **raises)
    assert run.outcomes[0] == REOPENS
    assert run.state.status is Status.RUNNING


# Steps that were open


def test_what_came_after_the_end_is_what_came_of_the_step() -> None:
    run = a_waiting_run("post").wait(hours=1) >> too_early
    run = run >> returns(tool="post")
    run >> answer("go on", deadline_at=run.now + timedelta(hours=1)) << (REOPENS, asks("reflect"))
    assert [(record.step, record.status) for record in run.state.completed] == [(1, "ok")]


# In doubt


@pytest.mark.parametrize(
    ("said", "outcome", "status"),
    [
        ("the mail is there", "ran", "ok"),
        ("nothing arrived", "did_not_run", "error"),
        ("see for yourself", "look", "error"),
        ("It ran: number 17", None, "ok"),
        ("It did not run. Send it again.", None, "error"),
        ("no idea", None, "error"),
    ],
)
def test_a_person_says_what_came_of_a_write_in_doubt(said: str, outcome: SaidOutcome | None, status: str) -> None:
    run = a_run_in_doubt()
    run >> answer(said, outcome=outcome) << (REOPENS, asks("reflect"))
    (record,) = run.state.completed
    assert (record.step, record.status) == (1, status)
    assert said in record.summary
    assert [doubt.step for doubt in run.state.doubts] == ([1] if said in ("see for yourself", "no idea") else [])


def test_a_stranger_s_words_do_not_say_what_came_of_a_write_in_doubt() -> None:
    run = a_run_in_doubt() >> answer("It ran.", untrusted=True)
    assert [doubt.tool for doubt in run.state.doubts] == ["ledger"]


def test_what_is_in_doubt_is_looked_at_before_anything_is_written_there_again() -> None:
    run = a_run_in_doubt() >> answer("look") >> reflects("continue")
    run >> plans("ledger") << asks("plan")
    assert run.told()[0] == "whether step 1 (ledger) was carried out is not known: look first, with look of ledger"
    run = run >> plans("ledger", "look") >> errs("not_found") >> reflects("continue")
    run >> plans("ledger") << asks("plan")
    run = run >> plans("ledger", "look", key="1") >> returns() >> reflects("continue")
    run >> plans("ledger") << requests("ledger", step=4)


def test_without_a_read_to_look_with_a_person_is_asked_whose_word_settles_it() -> None:
    run = a_run_in_doubt("post") >> answer("no idea") >> reflects("continue")
    run >> plans("post") << asks("plan")
    assert "ask a person first" in run.told()[0]
    run = run >> asks_a_person() >> answer("it did not run") >> reflects("continue")
    assert run.state.doubts == ()
    run >> plans("post") << requests("post", step=2)


def test_who_is_asked_about_a_write_in_doubt_is_told_how_an_answer_settles_it() -> None:
    run = a_run_in_doubt("post") >> answer("no idea") >> asks_a_person()
    settles = "an answer with the outcome ran or did_not_run settles whether step 1 (post) was carried out"
    assert run.sent(subjects.WAITING)["reason"].startswith(f"the model asks; {settles}; ")
    assert "with --ran or --did-not-run if it says whether step 1 (post) was carried out" in str(remedy(run.state))
    run >> answer("as you like", outcome="did_not_run")
    assert run.state.doubts == ()


@pytest.mark.parametrize(
    ("words", "settled"),
    [
        ("No, the mail was not sent.", True),
        ("It didn\u2019t run!", True),
        ("Yes, it was sent", True),
        ("It did not run", True),
        ("No", False),
        ("It was not the kitchen, the cellar of course", False),
        ("It ran into an error before it began", False),
        ("It did fail", False),
        ("it ran, I think", False),
        ("the new one was not bad", False),
        ("The page was not found", False),
    ],
)
def test_words_that_say_whether_it_was_done_settle_it_and_others_do_not(words: str, settled: bool) -> None:
    run = a_run_in_doubt("post") >> answer("no idea") >> asks_a_person() >> answer(words)
    assert (run.state.doubts == ()) is settled


def test_the_truth_that_comes_late_goes_before_a_person_who_does_not_know() -> None:
    run = a_waiting_run("ledger") >> due >> returns(step=1, tool="ledger", attempt=1)
    run >> answer("no idea") << (REOPENS, asks("reflect"))
    assert [record.status for record in run.state.completed] == ["ok"]
    assert run.state.doubts == ()


# What a rest leaves behind
