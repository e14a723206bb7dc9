"""Results of tasks that come twice, late, out of order or without a name: each answers what it is of, or nothing."""

from typing import Any

import pytest

from agent_service.core.events import ToolReturned
from schemas.events import ToolResult
from tests.core.cues import cancel, due, frames, plans, queued, returns, signal, started
from tests.core.script import NOTHING, Cue, Script, asks, cancels, escalates, ignores
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


def a_second_round() -> Script:
    """One retrieval is in, the tool was asked again and asked for another."""
    return a_gathering_run() >> comes("task-1") >> continues(retrieve(), "again")


def test_a_tool_that_asks_for_something_gets_it_and_is_asked_again() -> None:
    run = a_gathering_run()
    assert asked(run) == ["knowledge task-1:1"]
    run = run >> comes("task-1")
    assert asked(run) == ["fetch again:2"]
    run = run >> continues(retrieve(), "again")
    assert asked(run) == ["knowledge task-1:2"]
    run = run >> comes("task-1")
    assert asked(run) == ["fetch again:3"]
    assert told(run) == [("task-1", 1, "ok"), ("task-1", 2, "ok")]
    run >> comes("again") << asks("reflect")


@pytest.mark.parametrize(
    "again",
    [
        continues(retrieve(), ""),
        continues(retrieve(), "", attempt=None),
        comes(""),
        fails("", "upstream", retryable=True),
        comes("task-1", round=1, tool="knowledge"),
        comes("again", round=2),
        continues(retrieve(), "again", round=2),
    ],
)
def test_what_was_answered_in_the_first_round_is_answered_for_good(again: object) -> None:
    run = a_second_round()
    before = run.state
    run >> again << ignores("")  # type: ignore[operator]
    assert run.state == before
    run >> comes("task-1")
    assert asked(run) == ["fetch again:3"]


@pytest.mark.parametrize(
    "wrong",
    [
        comes("task-1", round=3, tool="knowledge"),
        comes("task-1", round=2, tool="post"),
        comes("task-1", round=2, attempt=2),
    ],
)
def test_what_was_never_asked_for_breaks_the_protocol(wrong: object) -> None:
    a_second_round() >> wrong << escalates("protocol_violation")  # type: ignore[operator]


def test_a_result_that_names_neither_task_nor_key_answers_the_only_request_of_its_tool() -> None:
    run = a_gathering_run() >> comes("", tool="knowledge", attempt=None, place="7")
    assert asked(run) == ["fetch again:2"]


def test_a_result_that_names_neither_task_nor_key_answers_nothing_where_two_could_be_meant() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"))
    run >> comes("", tool="knowledge", attempt=None, place="7") << ignores("")


def test_the_same_unnamed_message_answers_one_request_only() -> None:
    run = a_gathering_run() >> comes("", tool="knowledge", attempt=None, place="7")
    run = run >> continues(retrieve(), "again")
    run >> comes("", tool="knowledge", attempt=None, place="7") << ignores("")
    run >> comes("", tool="knowledge", attempt=None, place="8")
    assert asked(run) == ["fetch again:3"]


def test_the_same_unnamed_message_does_not_continue_twice() -> None:
    nameless: dict[str, Any] = {"attempt": None, "place": "5"}
    run = queued() >> started(SKILLS) >> frames() >> plans() >> continues(retrieve(), **nameless)
    run = run >> comes("task-1")
    assert asked(run) == ["fetch again:2"]
    run >> continues(retrieve(), **nameless) << ignores("")
    run = run >> continues(retrieve(), attempt=None, place="6")
    assert asked(run) == ["knowledge task-1:2"]


def test_what_a_task_answered_when_it_was_asked_again_is_no_news_the_second_time() -> None:
    run = a_gathering_run(a_task("a"), a_task("b")) >> continues(retrieve(), "a") >> comes("a.task-1")
    run = run >> comes("a.again")
    run >> comes("a.again", round=3, tool="knowledge") << ignores("answered already")
    run = run >> comes("b")
    assert told(run) == [("a", 1, "ok"), ("b", 1, "ok")]


def test_a_task_of_an_earlier_round_is_no_news_while_another_of_its_name_gathers() -> None:
    run = a_gathering_run(a_task("a")) >> comes("a") >> continues(multi_step(a_task("a"), a_task("b")), "again")
    run = run >> continues(retrieve(), "a")
    run >> comes("a", round=1, tool="knowledge") << ignores("answered already")
    run >> comes("a", round=2, tool="knowledge") << ignores("answered already")
    assert run.state.pendings


def test_the_unnamed_continuation_of_the_step_delivered_again_does_not_answer_the_second_asking() -> None:
    run = a_gathering_run() >> comes("task-1")
    run >> continues(retrieve(), "", attempt=1) << ignores("")
    assert asked(run) == []
    run >> comes("again") << asks("reflect")


def test_a_late_result_of_a_task_changes_nothing_once_the_step_is_over() -> None:
    run = a_gathering_run() >> comes("task-1") >> comes("again")
    for late in (comes("task-1", round=1, tool="knowledge"), comes("again", round=2), comes("task-1", round=2)):
        run >> late << ignores("finished")


def test_an_attempt_that_was_given_up_comes_too_late() -> None:
    run = a_gathering_run(**budget(max_plugin_total_time_ms=10**8)) >> due
    assert asked(run) == []
    run >> comes("task-1", round=1, tool="knowledge", attempt=1) << ignores("given up")
    run >> due
    assert asked(run) == ["knowledge task-1:1 attempt 2"]
    run >> comes("task-1", attempt=1) << ignores("given up")
    run >> comes("task-1", attempt=2)
    assert asked(run) == ["fetch again:2"]


def test_what_comes_of_tasks_after_a_cancel_is_recorded_once_each() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"))
    run >> cancel() << cancels()
    run >> comes("a", round=1, tool="knowledge") << NOTHING
    run >> comes("b", round=1, tool="knowledge") << NOTHING
    run >> comes("a", round=1, tool="knowledge") << ignores("came after the run ended")


def test_a_step_that_gathers_takes_no_result_of_a_step_after_it() -> None:
    a_gathering_run() >> returns(step=2) << escalates("protocol_violation")


def test_a_task_and_the_one_below_it_are_told_apart() -> None:
    run = a_gathering_run(a_task("a"), a_task("b", after=("a",))) >> continues(multi_step(a_task("b")), "a")
    assert asked(run) == ["knowledge a.b:2"]
    run >> comes("b", round=1, tool="knowledge") << escalates("protocol_violation")


def test_two_tasks_that_continue_count_their_rounds_together_and_are_asked_again_each() -> None:
    run = a_gathering_run(a_task("a"), a_task("b")) >> continues(retrieve(), "b") >> continues(retrieve(), "a")
    assert asked(run) == ["knowledge a.task-1:3"]
    run = run >> comes("b.task-1")
    assert asked(run) == ["knowledge b.again:4"]
    run = run >> comes("a.task-1")
    assert asked(run) == ["knowledge a.again:4"]
    run = run >> comes("a.again") >> comes("b.again")
    assert asked(run) == ["fetch again:4"]
    (request,) = run.story[-1].published("agentic.tool_request")
    assert request["tool_payload"]["continuations_left"] == 0
    assert told(run) == [("a", 1, "ok"), ("b", 1, "ok")]


def test_a_message_of_a_person_disturbs_no_gathering() -> None:
    run = a_gathering_run() >> signal("message", message="hurry")
    assert asked(run) == []
    run >> comes("task-1")
    assert asked(run) == ["fetch again:2"]


def test_a_message_that_names_its_task_and_no_attempt_answers_one_attempt_only() -> None:
    run = a_gathering_run(**budget(max_plugin_total_time_ms=10**8))
    run = run >> fails("task-1", "upstream", retryable=True, attempt=None, place="9") >> due
    assert asked(run) == ["knowledge task-1:1 attempt 2"]
    again = fails("task-1", "upstream", retryable=True, attempt=None, place="9")
    run >> again << ignores("answered an earlier attempt")
    run = run >> comes("task-1", attempt=None, place="10")
    assert asked(run) == ["fetch again:2"]


def test_a_message_that_names_its_task_and_no_round_answers_one_round_only() -> None:
    run = a_gathering_run()
    old = {"run_id": run.state.run_id, "step": 1, "tool": "knowledge", "attempt": 1, "task": "task-1", "status": "ok"}
    run = run >> nameless_round(old, place="9")
    assert asked(run) == ["fetch again:2"]
    run = run >> continues(retrieve(), "again")
    run >> nameless_round(old, place="9") << ignores("answered an earlier request")
    run = run >> nameless_round(old, place="10")
    assert asked(run) == ["fetch again:3"]


def test_a_result_without_its_round_that_is_said_once_more_changes_nothing() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"))
    said = {"run_id": run.state.run_id, "step": 1, "tool": "knowledge", "attempt": 1, "task": "a", "status": "ok"}
    run = run >> nameless_round(said, place="9")
    run >> nameless_round(said, place="10") << ignores("a of step 1 is answered already")
    run >> nameless_round(said | {"task": "z"}, place="11") << escalates("protocol_violation")


def nameless_round(payload: dict[str, Any], *, place: str) -> Cue:
    return lambda script: ToolReturned(
        at=script.now, result=ToolResult.model_validate({"completed_at": script.now, **payload}), place=place
    )
