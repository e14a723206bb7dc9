"""What steps gather, as people see it: the same tree wherever a run is shown."""

from datetime import timedelta

from agent_service.core.people.remedies import remedy
from agent_service.run.moments import retell
from agent_service.telling.answers.asks import asks_view
from agent_service.telling.answers.step_in_full import StepDetail, step_detail
from agent_service.telling.pages.trail import trail
from agent_service.telling.spans.trace import spans
from agent_service.telling.tasks import Tasks, TaskView
from tests.core.cues import (
    a_gathering_run,
    a_lost_write,
    a_task,
    a_write_after_strangers,
    approves,
    comes,
    continues,
    fails,
    retrieve,
)
from tests.core.script import NOON, Script
from tests.metrics.readings import measured
from tests.projections.journals import entries_of
from tests.projections.people import answers
from tests.projections.test_spans import tree
from tests.projections.test_timeline import items


def tasks_of(script: Script, step: int = 1) -> tuple[TaskView, ...]:
    return Tasks(retell(entries_of(script))).of(step)


def told(script: Script) -> list[tuple[str, int, str]]:
    return [(task.id, task.round, task.status) for task in tasks_of(script)]


def detail(script: Script) -> StepDetail:
    found = step_detail(retell(entries_of(script)), 1)
    assert found is not None
    return found


def one_after_the_other() -> Script:
    """`look` waits for `page`, and asks for more itself once it is asked."""
    run = a_gathering_run(a_task("page"), a_task("look", "look", after=("page",)), a_task("other"))
    return run.wait(seconds=1) >> comes("page")


def two_rounds() -> Script:
    """A task that asks for more itself, one that fails and takes another with it, and a tool that asks twice."""
    run = a_gathering_run(a_task("a", "look"), a_task("b"), a_task("c", after=("b",)))
    run = run.wait(seconds=1) >> fails("b")
    run = run.wait(seconds=1) >> continues(retrieve("deeper"), "a")
    run = run.wait(seconds=1) >> comes("a.task-1")
    run = run.wait(seconds=1) >> comes("a.again")
    run = run.wait(seconds=1) >> continues(retrieve("once more"), "again")
    run = run.wait(seconds=1) >> comes("task-1")
    return run.wait(seconds=1) >> comes("again")


OF_TWO_ROUNDS = [
    ("a", 1, "ok"),
    ("a.task-1", 2, "ok"),
    ("a.again", 3, "ok"),
    ("b", 1, "error"),
    ("c", 1, "error"),
    ("again", 3, "continuation"),
    ("task-1", 3, "ok"),
    ("again", 4, "ok"),
]


def test_the_tasks_of_a_step_are_told_each_with_its_own_beneath_it_and_round_by_round() -> None:
    assert told(two_rounds()) == OF_TWO_ROUNDS
    assert [task.asked_by for task in tasks_of(two_rounds())] == [None, "a", "a", None, None, None, None, None]


def test_a_task_tells_what_it_asks_what_it_waits_for_and_what_came() -> None:
    page, look, other = tasks_of(one_after_the_other())
    assert (page.query, page.status, page.summary) == ("page", "ok", "result of page")
    assert (page.started_at, page.ended_at) == (NOON, NOON + timedelta(seconds=1))
    assert (look.tool, look.depends_on, look.status, look.attempt) == ("look", ("page",), "pending", 1)
    assert (other.status, other.ended_at) == ("pending", None)


def test_a_task_waits_until_what_it_depends_on_is_there() -> None:
    run = a_gathering_run(a_task("page"), a_task("look", "look", after=("page",)))
    assert told(run) == [("page", 1, "pending"), ("look", 1, "waiting")]
    assert tasks_of(run)[1].started_at is None


def test_a_task_that_failed_before_it_was_asked_says_why() -> None:
    dependent = next(task for task in tasks_of(two_rounds()) if task.id == "c")
    assert dependent.error is not None
    assert (dependent.attempt, dependent.error.error_class) == (0, "dependency")
    assert "b" in dependent.error.message


def test_a_task_that_a_person_allows_names_who_did() -> None:
    waiting = a_write_after_strangers()
    asks = asks_view(waiting.state)
    assert asks is not None
    assert (asks.kind, asks.step, asks.task, asks.round, asks.tool) == ("approval", 1, "mail", 1, "post")
    assert told(waiting) == [("page", 1, "ok"), ("mail", 1, "waiting")]
    assert [task.approved_by for task in detail(waiting >> approves()).tasks] == [None, "os user ann"]


def test_a_task_of_which_nobody_knows_is_settled_by_a_person_and_the_step_goes_on() -> None:
    lost = a_lost_write()
    asks = asks_view(lost.state)
    assert asks is not None
    assert (asks.kind, asks.step, asks.task) == ("in_doubt", 1, "w")
    assert "step 1, w of round 1 (post handle)" in str(remedy(lost.state))
    assert told(lost) == [("a", 1, "unfinished"), ("w", 1, "error"), ("z", 1, "unfinished")]
    goes_on = lost >> answers("it is there", "ran")
    assert told(goes_on) == [("a", 1, "pending"), ("w", 1, "ok"), ("z", 1, "waiting")]
    assert [task.error for task in tasks_of(goes_on)] == [None, None, None]
    assert [item.status for item in items(goes_on, "step", "task")] == ["open", "open", "ok"]


def test_the_timeline_has_each_task_below_whoever_asked_for_it() -> None:
    parents = {item.id: item.parent for item in items(two_rounds(), "task")}
    assert parents == {
        "step:1:task:a:1": "step:1",
        "step:1:task:b:1": "step:1",
        "step:1:task:c:1": "step:1",
        "step:1:task:a.task-1:2": "step:1:task:a:1",
        "step:1:task:a.again:3": "step:1:task:a:1",
        "step:1:task:again:3": "step:1",
        "step:1:task:task-1:3": "step:1",
        "step:1:task:again:4": "step:1",
    }
    assert [item.depth for item in items(two_rounds(), "task")] == [1, 1, 1, 2, 2, 1, 1, 1]


def test_the_trace_has_each_task_as_a_span_below_whoever_asked_for_it() -> None:
    found = [line for line in tree(list(spans(retell(entries_of(two_rounds()))))) if "execute_tool" in line]
    assert found == [
        "  execute_tool fetch",
        "    execute_tool knowledge ! no_such_thing",
        "    execute_tool look",
        "      execute_tool knowledge",
        "      execute_tool look",
        "    execute_tool fetch",
        "    execute_tool knowledge",
        "    execute_tool fetch",
    ]


def test_the_plan_page_has_the_tree_beneath_its_step() -> None:
    page = trail(entries_of(two_rounds()))["plan.md"]
    listed = [line.split("`")[0] + line.split("`")[1] for line in page.splitlines() if "] `" in line]
    assert listed == [
        "  - [x] a",
        "    - [x] a.task-1",
        "    - [x] a.again",
        "  - [ ] b",
        "  - [ ] c",
        "  - [ ] again",
        "  - [x] task-1",
        "  - [x] again",
    ]


def test_a_step_in_full_has_what_was_asked_in_each_task_and_what_came() -> None:
    found = detail(two_rounds())
    assert [attempt.status for attempt in found.attempts] == ["continuation"]
    assert [(task.id, [attempt.status for attempt in task.attempts]) for task in found.tasks] == [
        ("a", ["continuation"]),
        ("a.task-1", ["ok"]),
        ("a.again", ["ok"]),
        ("b", ["error"]),
        ("c", []),
        ("again", ["continuation"]),
        ("task-1", ["ok"]),
        ("again", ["ok"]),
    ]
    assert found.tasks[1].arguments["query"] == "deeper"


def test_continuations_and_tasks_are_counted_by_what_became_of_them() -> None:
    seen = measured(two_rounds())
    assert (
        seen['agentic_tool_continuations_total{agentic_continuation_outcome="followed",gen_ai_tool_name="fetch"}'] == 2
    )
    failed = [series for series in seen if series.startswith("agentic_tool_tasks_total") and "dependency" in series]
    assert len(failed) == 1
