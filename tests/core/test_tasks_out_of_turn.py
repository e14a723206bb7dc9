"""Results of tasks that come twice, late, out of order or without a name: each answers what it is of, or nothing."""

from typing import Any

import pytest

from agent_service.core.events import ToolReturned
from schemas.events import ToolResult
from tests.core.cues import cancel
from tests.core.script import NOTHING, Cue, Script, asks, cancels, escalates, ignores
from tests.core.task_cues import (
    a_gathering_run,
    a_task,
    asked,
    comes,
    continues,
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
    "wrong",
    [
        comes("task-1", round=3, tool="knowledge"),
        comes("task-1", round=2, tool="post"),
        comes("task-1", round=2, attempt=2),
    ],
)
def test_what_was_never_asked_for_breaks_the_protocol(wrong: object) -> None:
    a_second_round() >> wrong << escalates("protocol_violation")  # type: ignore[operator]


def test_a_result_that_names_neither_task_nor_key_answers_nothing_where_two_could_be_meant() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"))
    run >> comes("", tool="knowledge", attempt=None, place="7") << ignores("")


def test_the_same_unnamed_message_answers_one_request_only() -> None:
    run = a_gathering_run() >> comes("", tool="knowledge", attempt=None, place="7")
    run = run >> continues(retrieve(), "again")
    run >> comes("", tool="knowledge", attempt=None, place="7") << ignores("")
    run >> comes("", tool="knowledge", attempt=None, place="8")
    assert asked(run) == ["fetch again:3"]


def test_what_comes_of_tasks_after_a_cancel_is_recorded_once_each() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"))
    run >> cancel() << cancels()
    run >> comes("a", round=1, tool="knowledge") << NOTHING
    run >> comes("b", round=1, tool="knowledge") << NOTHING
    run >> comes("a", round=1, tool="knowledge") << ignores("came after the run ended")


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
