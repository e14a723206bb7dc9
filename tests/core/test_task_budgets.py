"""What a step may gather: so many continuations, so long, so many requests at a time, and what the run has left."""

import pytest

from tests.core.cues import FETCH, due, frames, plans, queued, started
from tests.core.script import NOTHING, asks
from tests.core.task_cues import (
    SHELF,
    a_gathering_run,
    a_task,
    asked,
    budget,
    comes,
    continues,
    multi_step,
    retrieve,
    told,
)

A_MINUTE = budget(max_plugin_total_time_ms=60_000)


def test_a_step_that_continues_once_too_often_ends_with_what_was_gathered() -> None:
    run = a_gathering_run(**budget(max_plugin_continuations=2)) >> comes("task-1") >> continues(retrieve(), "again")
    run = run >> comes("task-1")
    run >> continues(retrieve("a third"), "again") << asks("reflect")
    assert run.state.completed[0].status == "budget"
    assert "a third" in run.state.completed[0].summary
    assert run.state.evidence == ()


def test_the_time_is_over_while_a_write_is_out_which_is_waited_for() -> None:
    run = a_gathering_run(a_task("w", "post"), a_task("r"), a_task("z", after=("w",)), **A_MINUTE)
    run >> due << NOTHING
    assert [p.task for p in run.state.pendings] == ["w"]
    run >> comes("w") << asks("reflect")
    assert run.state.completed[0].status == "budget"
    assert run.state.due_at is not None


def test_no_more_requests_are_out_than_one_run_may_have() -> None:
    run = a_gathering_run(*(a_task(f"t{n}", "look" if n % 2 else "") for n in range(9)), **budget(parallel=3))
    assert len(run.state.pendings) == 3
    run = run >> comes("t1")
    assert asked(run) == ["look t3:1"]


def test_a_tool_that_says_it_never_asks_for_more_is_not_believed_to_ask() -> None:
    final = FETCH.model_copy(update={"continues": False})
    run = queued() >> started((final, SHELF)) >> frames() >> plans("fetch")
    run >> continues(retrieve()) << asks("reflect")
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "bad_continuation"


@pytest.mark.parametrize(
    "wish",
    [
        multi_step(a_task("a", after=("b",)), a_task("b", after=("c",)), a_task("c", after=("a",))),
        multi_step(a_task("a", after=("a",))),
        multi_step(a_task("a", after=("nobody",))),
        multi_step(a_task("a"), a_task("a")),
        multi_step(a_task("a"), a_task("b", "nowhere")),
        multi_step(a_task("a"), a_task("b", "helper")),
        {"action": "retrieve"},
        {"action": "dance"},
        "retrieve",
        None,
    ],
)
@pytest.mark.parametrize("asker", ["", "task-1"])
def test_what_cannot_be_done_is_refused_whole(wish: object, asker: str) -> None:
    run = a_gathering_run() if asker else a_gathering_run(a_task("x")) >> comes("x")
    name = asker or "again"
    before = len(run.state.pendings)
    run = run >> comes(name, status="continuation", result={"continuation": wish, "summary": "no form"})
    assert [one for one in asked(run) if not one.endswith("again:2")] == []
    assert before == 1
    if asker:
        assert told(run)[-1][2] == "bad_continuation"
    else:
        assert run.state.completed[0].status == "error"


def test_a_retrieval_needs_a_tool_for_it() -> None:
    run = a_gathering_run(**budget(retrieval_tool="library"))
    run << asks("reflect")
    assert "library" in run.state.completed[0].summary
