"""Tasks that wait for people: approvals among them, pauses and reopenings in their middle, writes in doubt."""

from typing import Any

import pytest

from agent_service.core.events import Event, TimerFired
from agent_service.core.waiting import Status
from tests.core.cues import cancel, due, frames, queued, signal, started
from tests.core.going_on import made
from tests.core.people_cues import answer, approves, rejects
from tests.core.read_cues import plans_several
from tests.core.script import NOTHING, Cue, Outcome, Script, asks, asks_people, cancels, escalates, ignores
from tests.core.task_cues import (
    SKILLS,
    a_gathering_run,
    a_task,
    asked,
    budget,
    comes,
    continues,
    fails,
    multi_step,
    retrieve,
    told,
)

REOPENS = Outcome("publish agent.reopened")


def a_write_after_strangers(*more: dict[str, Any], **limits: Any) -> Script:
    """A page that strangers wrote was looked at, and the mail that depends on it waits for a person."""
    tasks = (a_task("page", "browse"), a_task("mail", "post", ("page",), to="them"), *more)
    return a_gathering_run(*tasks, **limits) >> comes("page")


# Approvals


def test_a_write_that_needs_approval_waits_for_it_and_then_goes_on() -> None:
    run = a_write_after_strangers()
    run << asks_people("approval")
    assert run.state.status is Status.PAUSED
    run = run >> approves()
    assert asked(run) == ["post mail:1"]
    run = run >> comes("mail")
    assert asked(run) == ["fetch again:2"]
    run >> comes("again") << asks("reflect")


def reason_of(run: Script) -> str:
    (asked_of_people,) = run.story[-1].published("agent.waiting")
    return str(asked_of_people["reason"])


def test_whoever_allows_a_write_is_told_which_tool_asks_for_it_and_why() -> None:
    said = a_task("page", "browse"), a_task("mail", "post", ("page",), to="them") | {"reason": "they\nwait for it"}
    assert reason_of(a_gathering_run(*said) >> comes("page")).endswith(
        "; fetch asks for it, and says: they wait for it"
    )
    assert reason_of(a_write_after_strangers()).endswith("; fetch asks for it, and does not say why")


def test_whoever_allows_a_write_of_a_task_that_asks_for_more_is_told_of_the_tool_of_that() -> None:
    run = a_gathering_run(a_task("page", "browse"), a_task("a", "look", ("page",))) >> comes("page")
    run = run >> continues(multi_step(a_task("mail", "post", to="them")), "a")
    assert reason_of(run).endswith("; look asks for it, and does not say why")


def test_whoever_allows_that_a_writing_tool_is_asked_again_is_told_so() -> None:
    run = a_gathering_run(a_task("page", "browse"), first="post") >> comes("page")
    assert reason_of(run).endswith("; post is to be asked again with what it asked for")


def test_a_write_that_is_refused_fails_its_dependents_and_the_tool_is_told() -> None:
    run = a_write_after_strangers(a_task("note", "look", ("mail",)), a_task("free"))
    assert asked(run) == []
    run = run >> comes("free")
    run = run >> rejects(message="not now")
    assert asked(run) == ["fetch again:2"]
    assert told(run) == [("page", 1, "ok"), ("mail", 1, "not_approved"), ("note", 1, "dependency"), ("free", 1, "ok")]


def test_nobody_is_asked_while_anything_of_the_run_is_under_way() -> None:
    run = a_write_after_strangers(a_task("slow"))
    assert run.state.status is Status.RUNNING
    run >> comes("slow") << asks_people("approval")


def test_nobody_is_asked_while_an_attempt_waits_to_be_made_again() -> None:
    run = a_write_after_strangers(a_task("slow")) >> fails("slow", "upstream", retryable=True)
    assert run.state.status is Status.RUNNING
    run = run >> due
    assert asked(run) == ["knowledge slow:1 attempt 2"]
    run >> comes("slow") << asks_people("approval")


def test_two_writes_with_the_same_arguments_are_approved_each() -> None:
    run = a_write_after_strangers(a_task("copy", "post", ("page",), to="them"))
    run = run >> approves()
    assert len(asked(run)) == 1
    run >> comes("mail") << asks_people("approval")


def test_an_approval_of_other_arguments_allows_nothing() -> None:
    run = a_write_after_strangers()
    run >> signal("approve", arguments_hash="0123456789abcdef0123456789abcdef") << ignores("what waits for approval is")


def test_what_is_approved_twice_is_sent_once() -> None:
    run = a_write_after_strangers()
    approval = made(approves(signal_id="yes"), run)
    run = run >> approval
    run >> approval << ignores("heard already")
    run >> signal("approve", arguments_hash="0" * 32) << ignores("nothing waits for an approval")


def test_an_approval_that_comes_twice_does_not_allow_the_same_of_another_task() -> None:
    run = a_write_after_strangers(a_task("copy", "post", ("page",), to="them"))
    shown = run.sent("agent.waiting")["arguments_hash"]
    run = run >> approves() >> comes("mail")
    run >> signal("approve", arguments_hash=shown) << ignores("what waits for approval is")
    run = run >> approves()
    assert asked(run) == ["post copy:1"]


def test_an_approval_that_nobody_gives_fails_the_task_and_the_others_count() -> None:
    run = a_write_after_strangers(a_task("free")) >> comes("free") >> due
    assert asked(run) == ["fetch again:2"]
    assert told(run) == [("page", 1, "ok"), ("mail", 1, "not_approved"), ("free", 1, "ok")]


def test_an_approval_that_nobody_gives_hands_the_run_over_where_that_is_wanted() -> None:
    run = a_write_after_strangers(on_expiry="escalate")
    run >> due << escalates("approval_expired")


def test_the_time_in_which_a_person_is_waited_for_costs_the_gathering_nothing() -> None:
    run = a_write_after_strangers().wait(minutes=30)
    run = run >> approves()
    run = run >> comes("mail") >> comes("again") << asks("reflect")
    assert run.state.completed[0].status == "ok"


def test_a_result_of_the_past_does_not_disturb_an_approval() -> None:
    run = a_write_after_strangers()
    run >> comes("page", round=1, tool="browse") << ignores("")
    run >> comes("", attempt=1) << ignores("")
    assert run.state.status is Status.PAUSED


def test_a_message_instead_of_a_ruling_sends_no_write() -> None:
    run = a_write_after_strangers() >> signal("message", message="wait, not to them")
    assert "post mail:1" not in asked(run)


def test_a_cancel_while_an_approval_is_open_ends_the_run() -> None:
    a_write_after_strangers() >> cancel() << cancels()


def test_a_writing_tool_that_strangers_have_fed_is_asked_again_only_by_a_person() -> None:
    run = a_gathering_run(a_task("page", "browse"), first="post") >> comes("page")
    run << asks_people("approval")
    run = run >> approves()
    assert asked(run) == ["post again:2"]


def test_a_writing_tool_that_may_not_be_asked_again_ends_its_step_as_not_approved() -> None:
    run = a_gathering_run(a_task("page", "browse"), first="post") >> comes("page")
    run >> rejects() << asks("reflect")
    assert run.state.completed[0].status == "error"


# Pauses


PATIENT = budget(max_plugin_total_time_ms=10**8)


def a_pause_in_the_middle() -> Script:
    """The deadline passed while one of two tasks was out, and a third waits for both."""
    run = a_gathering_run(a_task("a"), a_task("b"), a_task("c", after=("a", "b")), on_budget="pause", **PATIENT)
    return run >> comes("a") >> too_late


def too_late(script: Script) -> Event:
    """The deadline of the run."""
    script.wait(hours=1)
    return TimerFired(at=script.now)


def later(run: Script) -> Cue:
    return signal("raise_budget", deadline_at=run.now.replace(hour=23))


def test_what_comes_while_paused_is_taken_up_and_what_follows_is_sent_on_the_resume() -> None:
    run = a_pause_in_the_middle()
    assert run.state.status is Status.PAUSED
    run >> comes("b") << NOTHING
    assert run.state.status is Status.PAUSED
    run = run >> later(run)
    assert asked(run) == ["knowledge c:1"]


def test_what_is_out_at_a_pause_is_waited_for_after_it() -> None:
    run = a_pause_in_the_middle()
    run = run >> later(run)
    assert asked(run) == []
    run = run >> comes("b")
    assert asked(run) == ["knowledge c:1"]


def test_the_last_task_of_a_paused_run_leads_to_asking_again_on_the_resume() -> None:
    run = a_gathering_run(on_budget="pause", **PATIENT) >> too_late
    run >> comes("task-1") << NOTHING
    run = run >> later(run)
    assert asked(run) == ["fetch again:2"]


def test_a_continuation_that_comes_while_paused_begins_on_the_resume() -> None:
    run = a_gathering_run(a_task("a"), on_budget="pause", **PATIENT) >> too_late
    run >> continues(retrieve(), "a") << NOTHING
    run = run >> later(run)
    assert asked(run) == ["knowledge a.task-1:2"]


# Writes in doubt, and reopening


def a_lost_write(*more: dict[str, Any]) -> Script:
    """What came of the write is not known; another task was out beside it."""
    run = a_gathering_run(a_task("a"), a_task("w", "post"), a_task("z", after=("a", "w")), *more)
    return run >> fails("w", "in_doubt")


def test_a_task_whose_outcome_nobody_knows_hands_the_run_to_a_person() -> None:
    a_lost_write() << escalates("in_doubt")


@pytest.mark.parametrize(("outcome", "of_z"), [("ran", "ok"), ("did_not_run", "dependency")])
def test_the_word_of_a_person_settles_the_task_and_the_rest_goes_on(outcome: str, of_z: str) -> None:
    run = a_lost_write() >> comes("a", round=1, tool="knowledge")
    run = run >> answer("looked", outcome=outcome)
    if of_z == "ok":
        assert asked(run) == ["knowledge z:1"]
        run = run >> comes("z")
    assert asked(run) == ["fetch again:2"]
    assert [(task, what) for task, _, what in told(run)][-1] == ("z", of_z)


def test_a_write_that_nobody_can_tell_of_is_not_sent_again_after_an_answer() -> None:
    run = a_lost_write() >> comes("a", round=1, tool="knowledge") >> answer("go on")
    assert not [one for one in asked(run) if one.startswith("post")]
    while run.state.pendings:
        assert not [p for p in run.state.pendings if p.action.tool == "post"]
        run = run >> comes(run.state.pendings[0].task)
    assert run.state.has_finished(1)
    assert [doubt.tool for doubt in run.state.doubts] == ["post"]


def test_an_answer_waits_still_for_the_read_that_was_out() -> None:
    run = a_lost_write() >> answer("it is there", outcome="ran")
    assert [p.task for p in run.state.pendings] == ["a"]
    run = run >> comes("a")
    assert asked(run) == ["knowledge z:1"]


def test_a_run_that_is_reopened_twice_asks_for_no_task_twice() -> None:
    run = a_lost_write(a_task("x", "post", n=2)) >> comes("a", round=1, tool="knowledge")
    run = run >> answer("it is there", outcome="ran")
    assert "post x:1" not in asked(run)
    sent = [name for moment in run.story for name in moment.published("agentic.tool_request")]
    names = [(one.get("task"), one.get("round"), one["attempt"]) for one in sent]
    assert len(names) == len(set(names))


def test_the_time_of_a_pause_costs_the_gathering_nothing() -> None:
    two_hours = budget(max_plugin_total_time_ms=2 * 3_600_000)
    run = a_gathering_run(on_budget="pause", **two_hours) >> too_late
    run = run.wait(hours=5)
    run = run >> later(run) >> comes("task-1")
    assert asked(run) == ["fetch again:2"]
    run >> comes("again") << asks("reflect")
    assert run.state.completed[0].status == "ok"


def test_the_time_between_the_end_and_the_answer_costs_the_gathering_nothing() -> None:
    run = a_lost_write().wait(minutes=30) >> answer("it is there", outcome="ran")
    run = run >> comes("a") >> comes("z") >> comes("again")
    assert run.state.completed[0].status == "ok"


def test_a_write_that_waits_for_its_turn_is_asked_for_after_the_reads_of_another_step_too() -> None:
    run = queued(parallel_reads=2) >> started(SKILLS) >> frames()
    run = run >> plans_several("browse", "fetch") >> comes(step=1, tool="browse")
    run = run >> continues(multi_step(a_task("w", "post"), a_task("r")))
    assert asked(run) == ["knowledge r:1"]
    run >> comes("r") << asks_people("approval")


def test_two_steps_that_gather_are_told_of_their_own_tasks_alone() -> None:
    run = queued(parallel_reads=2) >> started(SKILLS) >> frames() >> plans_several("fetch", "look")
    run = run >> continues(retrieve(), step=1, tool="fetch") >> continues(retrieve(), step=2, tool="look")
    both = [p for p in run.state.pendings if p.task == "task-1"]
    assert [p.step for p in both] == [1, 2]
    run = run >> comes("task-1", step=2, tool="knowledge", result={"summary": "of two"})
    assert asked(run) == ["look again:2"]
    run = run >> comes("again", step=2, tool="look")
    run = run >> comes("task-1", step=1, tool="knowledge")
    assert asked(run) == ["fetch again:2"]
    assert told(run) == [("task-1", 1, "ok")]
    run >> comes("again", step=1, tool="fetch") << asks("reflect")
    assert run.state.evidence == ()


def test_what_was_gathered_is_forgotten_also_when_the_answer_comes_in_a_pause() -> None:
    run = a_gathering_run(on_budget="pause", **PATIENT) >> comes("task-1") >> too_late
    run >> comes("again") << NOTHING
    assert run.state.evidence == ()
    run >> later(run) << asks("reflect")


# Several writes under way, of which one is in doubt


def three_writes(**limits: Any) -> Script:
    return a_gathering_run(*(a_task(name, "post", page=name) for name in "abc"), **limits)


def evidence(run: Script) -> list[tuple[str, str]]:
    return [(one.task, str(one.output.get("class", "ok"))) for one in run.state.evidence]


@pytest.mark.parametrize(("outcome", "known_as"), [("did_not_run", "did_not_run"), ("ran", "ok")])
def test_a_word_about_the_write_in_doubt_is_not_of_those_that_are_under_way(outcome: Any, known_as: str) -> None:
    run = three_writes() >> fails("a", "in_doubt") >> answer(outcome=outcome)
    assert (evidence(run), run.state.doubts) == ([("a", known_as)], ())
    assert [pending.task for pending in run.state.pendings] == ["b", "c"]
    run = run >> comes("b") >> comes("c")
    assert asked(run) == ["fetch again:2"]
    assert told(run) == [("a", 1, known_as), ("b", 1, "ok"), ("c", 1, "ok")]


def test_writes_whose_time_is_over_meanwhile_are_in_doubt_whatever_is_said_of_another() -> None:
    run = (three_writes() >> fails("a", "in_doubt") >> comes("b", tool="post")).wait(hours=2) >> answer(outcome="ran")
    assert evidence(run) == [("a", "ok"), ("b", "ok"), ("c", "in_doubt")]
    assert len(run.state.doubts) == 1


def test_an_outcome_that_could_be_of_several_writes_is_refused() -> None:
    run = three_writes() >> too_late
    run >> answer(outcome="ran") << ignores("it could be of several writes (step 1 a, step 1 b")


# Words among the tasks


def a_mail_and_what_follows() -> Script:
    """Two mails, each of which a person has to allow."""
    mails = (a_task("mail", "post", ("page",), to="them"), a_task("next", "post", ("page",), to="others"))
    return a_gathering_run(a_task("page", "browse"), *mails) >> comes("page")


def test_words_along_with_an_approval_stop_no_later_write() -> None:
    run = a_mail_and_what_follows() >> approves(message="fine, but be careful")
    assert asked(run) == ["post mail:1"]
    (run >> comes("mail")) << asks_people("approval")
    run = run >> approves()
    assert asked(run) == ["post next:1"]


def test_words_along_with_a_rejection_stop_no_other_write() -> None:
    run = a_mail_and_what_follows() >> rejects(message="not to them")
    assert evidence(run) == [("page", "ok"), ("mail", "not_approved")]
    run << asks_people("approval")


def test_words_along_with_an_answer_about_a_write_stop_no_later_write() -> None:
    later = a_task("later", "save", ("a",), text="x")
    run = a_gathering_run(a_task("a", "post"), later) >> fails("a", "in_doubt") >> answer("It ran")
    assert asked(run) == ["save later:1"]


def test_what_a_person_says_besides_stops_the_writes_that_have_not_begun() -> None:
    run = a_mail_and_what_follows() >> signal("message", message="write to nobody")
    assert evidence(run) == [("page", "ok"), ("mail", "overruled"), ("next", "overruled")]


def test_an_answer_takes_back_nothing_that_was_said_besides() -> None:
    later = a_task("later", "save", ("a",), text="x")
    run = a_gathering_run(a_task("a", "post"), later) >> signal("message", message="write nothing more")
    run = run >> fails("a", "in_doubt") >> answer("It ran")
    assert evidence(run) == [("a", "ok"), ("later", "overruled")]
