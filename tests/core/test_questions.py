"""Questions to people, their answers, and what a person says while the model waits or thinks."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.announcing import outstanding
from agent_service.core.phases import Ask, Wait
from agent_service.core.waiting import Status
from schemas import subjects
from tests.core.cues import (
    PROOF,
    a_planning_run,
    a_reflecting_run,
    due,
    garbles,
    goes_on,
    plan,
    plans,
    reflection,
    reflects,
    replies,
    returns,
    signal,
)
from tests.core.people_cues import (
    QUESTION,
    a_run_for_answer,
    a_run_with_strangers,
    answer,
    asks_a_person,
    waits,
)
from tests.core.script import (
    NOON,
    NOTHING,
    asks,
    completes,
    escalates,
    ignores,
)

# Questions


def test_what_is_asked_is_told_with_its_choices_and_until_when() -> None:
    run = a_run_for_answer(answer_s=7200.0)
    asked = run.sent(subjects.WAITING)
    assert (asked["question"], asked["choices"]) == ("Which of the two?", ["the old one", "the new one"])
    assert (asked["would_change"], asked["expires_at"]) == ("what is fetched", "2026-11-21T14:00:00Z")
    assert [said.subject for said in outstanding(run.state)] == [subjects.WAITING]


@pytest.mark.parametrize("kind", ["answer", "message"])
def test_an_answer_and_a_message_both_end_the_wait_and_only_an_answer_is_told_as_one(kind: Any) -> None:
    run = a_run_for_answer()
    run >> signal(kind, message="the new one") << asks("reflect")
    answered = "your question was answered" if kind == "answer" else "which may answer it or not"
    assert answered in run.told()[0]
    asked = "<asked_of_a_person>\nWhich of the two?\n</asked_of_a_person>\n" if kind == "answer" else ""
    assert run.state.notes[-1].text == f"{asked}<message_from_a_person>\nthe new one\n</message_from_a_person>"


def test_a_second_answer_is_refused_and_the_first_delivered_again_is_ignored() -> None:
    run = a_run_for_answer() >> answer(signal_id="one")
    run >> answer(signal_id="one") << ignores("was heard already")
    run >> answer("the old one", signal_id="two") << ignores("no question waits for an answer")
    assert run.state.messages == ("the new one",)


@pytest.mark.parametrize("question", [Ask(question=" "), Ask(question="Which?", choices=("a", " "))])
def test_a_question_that_nobody_could_answer_is_not_asked(question: Ask) -> None:
    a_planning_run() >> asks_a_person(question) << asks("plan")


def test_nobody_in_time_ends_the_run_and_a_late_answer_lets_it_go_on() -> None:
    run = a_run_for_answer(answer_s=60.0)
    run >> due << escalates("unanswered")
    assert run.state.reason == "nobody answered in time: Which of the two?"
    run >> answer()
    assert run.outcomes[-1] == asks("reflect")


# What comes while the model thinks


BEYOND = {
    "done": reflects("done", PROOF, heard=0),
    "escalate": reflects("escalate", heard=0),
    "reframe": reflects("reframe", heard=0),
    "a write": replies(reflection("continue"), plan=plan("save"), heard=0),
    "a question": replies(reflection("continue"), plan=QUESTION, heard=0),
    "a wait": replies(reflection("continue"), plan=Wait(why="later", seconds=60.0), heard=0),
    "nothing usable": garbles(heard=0),
}


@pytest.mark.parametrize("beyond", BEYOND.values(), ids=BEYOND)
def test_no_decision_goes_past_what_a_person_said_meanwhile(beyond: Any) -> None:
    run = a_reflecting_run(max_repairs=0) >> signal("message", message="do not finish before it is checked")
    run >> beyond << asks("reflect")
    assert run.said == ["reflect: a person said something newer: the reply does not count"]
    assert "a person said something newer" in run.told()[-1]
    assert run.state.reframes == run.state.refused_done == run.state.questions == run.state.step - 1 == 0
    run >> reflects("done", PROOF) << completes()


def test_a_loop_that_a_person_has_spoken_into_is_no_end() -> None:
    run = a_reflecting_run(max_steps=20)
    for _ in range(3):
        run = run >> goes_on() >> returns(output={"summary": "not ready"})
    run = run >> signal("message", message="it is ready now")
    run >> replies(reflection("continue"), plan=plan(), heard=0) << asks("reflect")


# Waiting


@pytest.mark.parametrize(
    ("wait", "until"),
    [(waits(600.0), timedelta(minutes=10)), (waits(None, until=NOON + timedelta(minutes=5)), timedelta(minutes=5))],
    ids=["for a time", "until an instant"],
)
def test_a_run_waits_without_any_call_and_is_asked_what_comes_next(wait: Any, until: timedelta) -> None:
    run = a_reflecting_run()
    run >> wait << NOTHING
    assert (run.state.status, run.state.due_at) == (Status.RUNNING, NOON + until)
    run >> due << asks("plan")


@pytest.mark.parametrize(
    "wait",
    [
        waits(0.0),
        waits(-1.0),
        waits(float("nan")),
        waits(float("inf")),
        waits(None),
        waits(60.0, until=NOON + timedelta(hours=1)),
        waits(None, until=NOON),
        waits(None, until=(NOON + timedelta(minutes=5)).replace(tzinfo=None)),
    ],
)
def test_what_is_no_time_to_wait_for_is_refused(wait: Any) -> None:
    run = a_reflecting_run()
    run >> wait << asks("plan")
    assert run.told()[-1].startswith("wait")


def test_polling_is_no_stuck_loop_when_time_passes_between() -> None:
    run = a_reflecting_run(max_steps=20) >> waits(60.0) >> due
    for _ in range(5):
        run = run >> plans() >> returns(output={"summary": "not ready"}) >> waits(60.0) >> due
    assert run.outcomes == (asks("plan"),)


# Where no step is left


def test_who_is_asked_is_told_of_strangers_and_to_type_no_secret() -> None:
    trusted = a_planning_run() >> asks_a_person()
    assert trusted.sent(subjects.WAITING)["reason"].startswith("the model asks; never type passwords or keys here")
    strange = a_run_with_strangers() >> asks_a_person()
    reason = strange.sent(subjects.WAITING)["reason"]
    assert "step 1 (browse) brought what strangers wrote, who may be behind the question" in reason
    assert "never type passwords or keys here" in reason
