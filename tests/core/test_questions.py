"""Questions to people, their answers, and what a person says while the model waits or thinks."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.announcing import outstanding
from agent_service.core.phases import Ask, Unusable, Wait
from agent_service.core.waiting import ForAnswer, Status
from schemas import subjects
from tests.core.cues import (
    DEADLINE,
    PROOF,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    cancel,
    due,
    frames,
    framing,
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
from tests.core.model_cues import opens, refuses
from tests.core.people_cues import (
    QUESTION,
    a_run_for_answer,
    a_run_for_time,
    a_run_with_strangers,
    answer,
    asks_a_person,
    waits,
)
from tests.core.script import (
    NOON,
    NOTHING,
    Cue,
    Script,
    asks,
    asks_people,
    cancels,
    completes,
    escalates,
    ignores,
    pauses,
    requests,
)

# Questions


@pytest.mark.parametrize(
    "run",
    [a_framing_run(), a_planning_run(), a_reflecting_run(), a_reflecting_run(fused=False) >> reflects("continue")],
    ids=["in the place of a framing", "of a plan", "with a reflection", "after one"],
)
def test_a_question_may_take_the_place_of_whatever_comes_next(run: Script) -> None:
    run >> asks_a_person() << asks_people("question")
    assert (run.state.status, run.state.questions) == (Status.PAUSED, 1)


def test_who_is_asked_is_told_of_strangers_and_to_type_no_secret() -> None:
    trusted = a_planning_run() >> asks_a_person()
    assert trusted.sent(subjects.WAITING)["reason"].startswith("the model asks; never type passwords or keys here")
    strange = a_run_with_strangers() >> asks_a_person()
    reason = strange.sent(subjects.WAITING)["reason"]
    assert "step 1 (browse) brought what strangers wrote, who may be behind the question" in reason
    assert "never type passwords or keys here" in reason


def test_a_question_may_come_along_with_a_framing() -> None:
    run = a_framing_run()
    run >> replies(framing(), plan=QUESTION) << asks_people("question")
    run >> answer() << asks("reflect")


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


def test_a_question_before_any_framing_is_followed_by_the_framing() -> None:
    run = a_framing_run() >> asks_a_person()
    run >> answer() << asks("frame")
    run >> opens(plan()) << requests("fetch", step=1)


def test_an_answer_may_finish_the_run() -> None:
    run = a_reflecting_run() >> asks_a_person() >> answer("that is enough")
    run >> reflects("done", PROOF) << completes()


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (answer(None), "which needs a message"),
        (signal("resume"), "which needs a message"),
        (signal("approve", message="yes"), "nothing waits for an approval"),
        (signal("reject"), "nothing waits for an approval"),
    ],
    ids=["no answer", "resume", "approve", "reject"],
)
def test_what_is_no_answer_is_refused(said: Any, because: str) -> None:
    a_run_for_answer() >> said << ignores(because)


def test_a_second_answer_is_refused_and_the_first_delivered_again_is_ignored() -> None:
    run = a_run_for_answer() >> answer(signal_id="one")
    run >> answer(signal_id="one") << ignores("was heard already")
    run >> answer("the old one", signal_id="two") << ignores("no question waits for an answer")
    assert run.state.messages == ("the new one",)


def test_no_more_questions_are_asked_than_granted() -> None:
    run = a_run_for_answer(max_questions=1) >> answer()
    run >> asks_a_person() << asks("plan")
    assert run.told()[-1] == "all 1 questions are asked: decide without an answer, or escalate"


@pytest.mark.parametrize("question", [Ask(question=" "), Ask(question="Which?", choices=("a", " "))])
def test_a_question_that_nobody_could_answer_is_not_asked(question: Ask) -> None:
    a_planning_run() >> asks_a_person(question) << asks("plan")


def test_nobody_in_time_ends_the_run_and_a_late_answer_lets_it_go_on() -> None:
    run = a_run_for_answer(answer_s=60.0)
    run >> due << escalates("unanswered")
    assert run.state.reason == "nobody answered in time: Which of the two?"
    run >> answer()
    assert run.outcomes[-1] == asks("reflect")


def test_the_deadline_stands_still_until_the_answer() -> None:
    run = a_run_for_answer().wait(days=3)
    run >> answer() << asks("reflect")
    assert run.state.brief.limits.deadline_at == DEADLINE + timedelta(days=3)


def test_a_larger_budget_answers_nothing() -> None:
    run = a_run_for_answer()
    run >> signal("raise_budget", max_steps=15) << NOTHING
    assert isinstance(run.state.waiting, ForAnswer)


def test_a_run_that_asks_can_be_cancelled() -> None:
    a_run_for_answer() >> cancel() << cancels()


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


def test_a_plan_that_was_made_too_early_gives_way_to_a_reflection() -> None:
    run = a_planning_run() >> signal("message", message="leave that")
    run >> replies(plan("save"), heard=0) << asks("reflect")


def test_what_only_reads_goes_on_for_its_result_is_judged_with_the_message() -> None:
    run = a_reflecting_run() >> signal("message", message="hello")
    run >> replies(reflection("continue"), plan=plan(number=2), heard=0) << requests("fetch", step=2)


def test_a_first_framing_is_kept_and_a_new_one_is_made_again() -> None:
    run = a_framing_run() >> signal("message", message="hello")
    run >> frames(heard=0) << asks("plan")
    run = run >> plans() >> returns() >> reflects("reframe") >> signal("message", message="keep to the goal")
    run >> frames(heard=1) << asks("frame")


def test_a_model_that_refuses_is_asked_once_more_when_a_person_spoke() -> None:
    run = a_reflecting_run()
    run >> refuses() << escalates("model_refused")


def test_a_message_that_the_prompt_told_of_voids_nothing() -> None:
    run = a_reflecting_run() >> signal("message", message="finish now")
    run >> reflects("done", PROOF, heard=1) << completes()


def test_what_a_reply_cost_counts_though_its_decision_does_not() -> None:
    run = a_reflecting_run() >> signal("message", message="hello")
    before = run.state.spent.tokens
    assert (run >> reflects("done", PROOF, heard=0)).state.spent.tokens == before + 100


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


def test_a_wait_ends_with_the_deadline_of_the_run() -> None:
    run = a_reflecting_run() >> waits(86_400.0)
    assert run.state.due_at == DEADLINE
    run >> due << escalates("budget_time")


def test_a_wait_that_meets_its_deadline_pauses_where_a_budget_does() -> None:
    run = a_reflecting_run(on_budget="pause") >> waits(86_400.0)
    run >> due << pauses("budget_time")


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


def test_a_message_ends_a_wait_at_once_and_so_does_a_resume() -> None:
    a_run_for_time() >> signal("message", message="it is ready") << asks("reflect")
    a_run_for_time() >> signal("resume") << asks("plan")


def test_more_budget_does_not_end_a_wait() -> None:
    run = a_run_for_time()
    run >> signal("raise_budget", max_steps=15) << NOTHING
    assert run.state.due_at == NOON + timedelta(minutes=10)


def test_polling_is_no_stuck_loop_when_time_passes_between() -> None:
    run = a_reflecting_run(max_steps=20) >> waits(60.0) >> due
    for _ in range(5):
        run = run >> plans() >> returns(output={"summary": "not ready"}) >> waits(60.0) >> due
    assert run.outcomes == (asks("plan"),)


def test_without_time_between_the_same_three_times_is_a_stuck_loop() -> None:
    run = a_reflecting_run(max_steps=20)
    for _ in range(3):
        run = run >> goes_on() >> returns(output={"summary": "not ready"})
    run >> goes_on() << escalates("stuck_loop")


def test_a_wait_that_cannot_be_read_is_no_wait() -> None:
    run = a_reflecting_run()
    run >> replies(reflection("continue"), plan=Unusable(reason="wait: seconds is no number")) << asks("plan")


# Where no step is left


def test_a_wait_that_is_over_with_no_step_left_may_still_end_the_run() -> None:
    run = a_run_for_time(max_steps=1)
    run >> due << asks("reflect")
    assert run.told()[0].startswith("you have waited since")
    run >> reflects("done", PROOF) << completes()


@pytest.mark.parametrize(
    "flawed", [asks_a_person(Ask(question=" ")), waits(-1.0)], ids=["no question", "no time to wait for"]
)
def test_what_takes_no_step_is_mended_also_where_none_is_left(flawed: Cue) -> None:
    run = a_reflecting_run(max_steps=1, max_repairs=1)
    run >> flawed << asks("reflect")
    run >> flawed << escalates("invalid_decision")
