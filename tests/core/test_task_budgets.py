"""What a step may gather: so many continuations, so long, so many requests at a time, and what the run has left."""

import pytest

from tests.core.cues import FETCH, due, frames, goes_on, plans, queued, started
from tests.core.script import NOTHING, asks, escalates, ignores
from tests.core.task_cues import (
    SHELF,
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

A_MINUTE = budget(max_plugin_total_time_ms=60_000)


def test_a_step_that_continues_once_too_often_ends_with_what_was_gathered() -> None:
    run = a_gathering_run(**budget(max_plugin_continuations=2)) >> comes("task-1") >> continues(retrieve(), "again")
    run = run >> comes("task-1")
    run >> continues(retrieve("a third"), "again") << asks("reflect")
    assert run.state.completed[0].status == "budget"
    assert "a third" in run.state.completed[0].summary
    assert run.state.evidence == ()


def test_the_continuations_of_tasks_count_too() -> None:
    run = a_gathering_run(a_task("a"), **budget(max_plugin_continuations=2)) >> continues(retrieve(), "a")
    run = run >> comes("a.task-1")
    run >> continues(retrieve(), "a.again") << asks("reflect")
    assert run.state.completed[0].status == "budget"


def test_the_time_is_over_while_a_read_is_out() -> None:
    run = a_gathering_run(**A_MINUTE)
    run >> due << asks("reflect")
    assert run.state.completed[0].status == "budget"
    run >> comes("task-1", round=1, tool="knowledge") << ignores("finished")


def test_the_time_is_over_while_a_write_is_out_which_is_waited_for() -> None:
    run = a_gathering_run(a_task("w", "post"), a_task("r"), a_task("z", after=("w",)), **A_MINUTE)
    run >> due << NOTHING
    assert [p.task for p in run.state.pendings] == ["w"]
    run >> comes("w") << asks("reflect")
    assert run.state.completed[0].status == "budget"
    assert run.state.due_at is not None


def test_what_was_given_up_when_the_time_was_over_comes_too_late() -> None:
    run = a_gathering_run(a_task("w", "post"), a_task("r"), a_task("z", after=("w",)), **A_MINUTE) >> due
    run >> comes("r", round=1, tool="knowledge") << ignores("given up")
    run >> comes("w") << asks("reflect")


def test_a_write_that_is_out_when_the_time_is_over_and_never_answers_is_in_doubt() -> None:
    run = a_gathering_run(a_task("w", "post"), **A_MINUTE) >> due
    run >> due << escalates("in_doubt")


def test_a_write_that_continues_once_the_time_is_over_ends_the_step() -> None:
    run = a_gathering_run(a_task("w", "post"), **A_MINUTE) >> due
    run >> continues(retrieve(), "w") << asks("reflect")
    assert run.state.completed[0].status == "budget"


def test_the_time_that_is_over_is_told_before_a_retry_that_is_due_later() -> None:
    run = a_gathering_run(**A_MINUTE).wait(seconds=59) >> fails("task-1", "upstream", retryable=True)
    run >> due << asks("reflect")
    assert run.state.completed[0].status == "budget"


def test_the_deadline_of_the_run_comes_first() -> None:
    run = a_gathering_run(a_task("w", "post"), **budget(max_plugin_total_time_ms=10**8)).wait(hours=1)
    run >> due << escalates("budget_time")


def test_no_more_requests_are_out_than_one_run_may_have() -> None:
    run = a_gathering_run(*(a_task(f"t{n}", "look" if n % 2 else "") for n in range(9)), **budget(parallel=3))
    assert len(run.state.pendings) == 3
    run = run >> comes("t1")
    assert asked(run) == ["look t3:1"]


def test_no_more_requests_of_one_tool_are_out_than_it_may_have() -> None:
    tasks = (*(a_task(f"k{n}") for n in range(5)), a_task("other", "look"))
    run = a_gathering_run(*tasks, **budget(parallel=4, parallel_per_tool=2))
    assert asked(run) == ["knowledge k0:1", "knowledge k1:1", "look other:1"]


def test_first_attempts_of_tasks_cost_the_run_no_attempt_but_retries_do() -> None:
    run = a_gathering_run(a_task("a"), a_task("b"), max_attempts_of_run=2) >> comes("a")
    run = run >> fails("b", "upstream", retryable=True) >> due
    assert asked(run) == ["knowledge b:1 attempt 2"]
    run = run >> fails("b", "upstream", retryable=True)
    assert asked(run) == ["fetch again:2"]
    assert [what for _, _, what in told(run)] == ["ok", "upstream"]


def test_more_tasks_than_a_continuation_may_have_are_refused_before_any_is_asked() -> None:
    run = a_gathering_run(*(a_task(f"t{n}") for n in range(4)), **budget(max_tasks=3))
    run << asks("reflect")
    assert run.state.completed[0].status == "error"
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "bad_continuation"


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


def test_a_step_after_one_that_gathered_has_a_budget_of_its_own() -> None:
    run = a_gathering_run(**budget(max_plugin_continuations=1)) >> comes("task-1") >> comes("again")
    run = run >> goes_on("fetch", url="another") >> continues(retrieve())
    assert asked(run) == ["knowledge task-1:1"]
    run = run >> comes("task-1")
    assert asked(run) == ["fetch again:2"]
    assert told(run) == [("task-1", 1, "ok")]
