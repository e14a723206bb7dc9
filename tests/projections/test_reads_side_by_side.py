"""Several reads of one plan, as people see them: each a step of its own, in the order of their numbers."""

from typing import Any

from agent_service.run.moments import retell
from agent_service.telling.answers.runs import run_view
from agent_service.telling.heard import Heard
from agent_service.telling.spans.trace import spans
from tests.core.cues import a_run_that_reads, cancel, due, errs, returns
from tests.core.script import Script
from tests.projections.journals import entries_of
from tests.projections.test_spans import tree
from tests.projections.test_timeline import statuses


def viewed(script: Script) -> dict[str, Any]:
    return run_view(script.state, Heard(entries_of(script))).model_dump(by_alias=True)


def two_of_three() -> Script:
    """The last is finished, the first failed and is tried again, the one between is out."""
    return a_run_that_reads(3) >> returns(step=3) >> errs("upstream", retryable=True, step=1)


def test_a_run_shows_what_it_waits_for_of_each_step_in_their_order() -> None:
    shown = viewed(two_of_three())
    assert [(step["step"], step["status"], step["attempt"]) for step in shown["steps"]] == [
        (1, "waiting", 2),
        (2, "pending", 1),
        (3, "ok", 1),
    ]
    assert [(pending["step"], pending["retry_at"] is None) for pending in shown["pendings"]] == [(1, False), (2, True)]
    assert shown["pending"] == shown["pendings"][0]
    assert shown["waiting_for"]["kind"] == "tool"


def test_a_run_that_ended_shows_which_of_them_were_not_finished() -> None:
    shown = viewed(a_run_that_reads(3) >> returns(step=2) >> cancel())
    assert [(step["step"], step["status"]) for step in shown["steps"]] == [
        (1, "unfinished"),
        (2, "ok"),
        (3, "unfinished"),
    ]
    assert shown["pendings"] == ()


def test_the_timeline_has_each_step_with_its_own_attempts_and_waits() -> None:
    assert statuses(two_of_three(), "step", "attempt", "wait") == [
        ("Step 1: fetch handle", "open"),
        ("Attempt 1", "error"),
        ("Step 2: fetch handle", "open"),
        ("Attempt 1", "open"),
        ("Step 3: fetch handle", "ok"),
        ("Attempt 1", "ok"),
        ("Tries again later", "waiting"),
    ]


def test_the_trace_has_each_step_from_its_request_to_its_own_result() -> None:
    story = two_of_three().wait(seconds=1) >> due >> returns(step=2) >> returns(step=1)
    found = list(spans(retell(entries_of(story))))
    assert [line for line in tree(found) if "execute_tool" in line or "attempt" in line] == [
        "  execute_tool fetch",
        "    attempt 1",
        "  execute_tool fetch",
        "    attempt 1",
        "  execute_tool fetch",
        "    attempt 1 ! upstream",
        "    attempt 2",
    ]
