"""What steps gather, as people see it: the same tree wherever a run is shown."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.remedies import remedy
from agent_service.core.waiting import Status
from agent_service.moments import retell
from agent_service.telling.asks import asks_view
from agent_service.telling.heard import Heard
from agent_service.telling.outputs import named_artifacts
from agent_service.telling.pages.trail import trail
from agent_service.telling.spans.trace import spans
from agent_service.telling.steps import StepDetail, step_detail
from agent_service.telling.tasks import Tasks, TaskView
from agent_service.telling.views import run_view
from agent_service.telling.why import Seen, why_view
from tests.core.cues import cancel, due, signal
from tests.core.people_cues import approves
from tests.core.script import NOON, Cue, Script
from tests.core.task_cues import a_gathering_run, a_task, budget, comes, continues, fails, retrieve
from tests.core.test_tasks_among_people import PATIENT, a_lost_write, a_write_after_strangers, too_late
from tests.metrics.readings import measured
from tests.projections.journals import PAGE, artifact, entries_of
from tests.projections.people import answers
from tests.projections.test_log_lines import lines as log_lines
from tests.projections.test_spans import tree
from tests.projections.test_timeline import items, statuses
from tests.projections.test_trace import lines


def tasks_of(script: Script, step: int = 1) -> tuple[TaskView, ...]:
    return Tasks(retell(entries_of(script))).of(step)


def told(script: Script) -> list[tuple[str, int, str]]:
    return [(task.id, task.round, task.status) for task in tasks_of(script)]


def viewed(script: Script) -> dict[str, Any]:
    entries = entries_of(script)
    return run_view(script.state, Heard(entries), Tasks(retell(entries))).model_dump(by_alias=True)


def detail(script: Script) -> StepDetail:
    found = step_detail(retell(entries_of(script)), 1)
    assert found is not None
    return found


def goes_on_later(script: Script) -> Cue:
    """An answer, with a later deadline."""
    return signal("answer", message="go on", deadline_at=script.now + timedelta(hours=8))


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


def test_a_task_that_asks_for_more_goes_on_until_it_is_answered() -> None:
    run = one_after_the_other() >> continues(retrieve(), "look")
    assert told(run)[1:3] == [("look", 1, "pending"), ("look.task-1", 2, "pending")]
    answered = run >> comes("look.task-1") >> comes("look.again")
    assert told(answered)[1:4] == [("look", 1, "ok"), ("look.task-1", 2, "ok"), ("look.again", 3, "ok")]


def test_a_task_that_failed_before_it_was_asked_says_why() -> None:
    dependent = next(task for task in tasks_of(two_rounds()) if task.id == "c")
    assert dependent.error is not None
    assert (dependent.attempt, dependent.error.error_class) == (0, "dependency")
    assert "b" in dependent.error.message


def test_a_task_is_tried_again_under_the_same_name() -> None:
    run = one_after_the_other() >> fails("other", "transient", retryable=True)
    assert told(run)[2] == ("other", 1, "waiting")
    run = run >> due
    assert [(task.status, task.attempt) for task in tasks_of(run) if task.id == "other"] == [("pending", 2)]


@pytest.mark.parametrize("end", [cancel(), due])
def test_what_was_under_way_when_the_step_or_the_run_ended_is_unfinished(end: Any) -> None:
    run = one_after_the_other().wait(seconds=60) >> end
    assert told(run) == [("page", 1, "ok"), ("look", 1, "unfinished"), ("other", 1, "unfinished")]


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


def test_what_came_after_the_end_is_told_as_what_the_run_went_by_once_an_answer_opens_it_again() -> None:
    out = a_gathering_run(a_task("a"), a_task("z", after=("a",)), reopen_days=9, **PATIENT) >> too_late
    goes_on = out >> comes("a", round=1, tool="knowledge") >> goes_on_later(out)
    assert told(goes_on) == [("a", 1, "ok"), ("z", 1, "pending")]
    of_a = [item.status for item in items(goes_on, "task", "attempt") if item.id.startswith("step:1:task:a:1")]
    assert of_a == ["ok", "ok"]


def test_a_tool_whose_answer_came_after_the_end_has_answered_once_an_answer_opens_the_run_again() -> None:
    out = a_gathering_run(reopen_days=9, **PATIENT) >> comes("task-1") >> too_late
    goes_on = out >> comes("again", round=2, tool="fetch") >> goes_on_later(out)
    assert told(goes_on) == [("task-1", 1, "ok"), ("again", 2, "ok")]
    assert [item.status for item in items(goes_on, "step", "task")] == ["ok", "ok", "ok"]
    assert [line["result_status"] for line in lines(goes_on) if line.get("task") == "again"] == ["late", "ok"]


@pytest.mark.parametrize(("outcome", "status"), [("ran", "ok"), ("did_not_run", "error")])
def test_a_person_settles_a_task_also_where_its_step_is_over_with_that(outcome: Any, status: str) -> None:
    stopped = a_gathering_run(a_task("w", "post"), a_task("a"), **budget(max_plugin_total_time_ms=3000))
    lost = stopped.wait(seconds=3) >> due >> fails("w", "in_doubt")
    assert told(lost >> answers("somebody looked", outcome)) == [("w", 1, status), ("a", 1, "unfinished")]


def test_a_run_shows_the_tasks_beneath_their_step() -> None:
    shown = viewed(one_after_the_other())
    (step,) = shown["steps"]
    assert (step["status"], step["summary"]) == ("pending", "asks for more: 3 tasks (page, look, other)")
    assert [task["id"] for task in step["tasks"]] == ["page", "look", "other"]
    assert [(pending["task"], pending["round"]) for pending in shown["pendings"]] == [("other", 1), ("look", 1)]
    assert shown["waiting_for"]["kind"] == "tool"


def test_a_step_that_may_gather_no_more_is_told_as_such() -> None:
    run = a_gathering_run(**budget(max_plugin_continuations=1)) >> comes("task-1") >> continues(retrieve(), "again")
    (step,) = viewed(run)["steps"]
    assert (step["status"], step["error"]["class"]) == ("budget", "budget")
    assert told(run) == [("task-1", 1, "ok"), ("again", 2, "budget")]
    assert statuses(run, "step", "task") == [
        ("Step 1: fetch handle", "error"),
        ("task-1: knowledge handle “more”", "ok"),
        ("again: fetch handle", "error"),
    ]


def test_a_step_whose_wish_is_not_followed_says_why() -> None:
    run = a_gathering_run() >> comes("task-1") >> continues({"action": "dance"}, "again")
    (step,) = viewed(run)["steps"]
    assert (step["status"], step["error"]["class"]) == ("error", "bad_continuation")
    assert "action" in step["error"]["message"]
    error = {"class": "x", "message": "m", "retryable": False}
    (step,) = viewed(a_gathering_run() >> comes("task-1") >> continues({"action": "dance"}, "again", error=error))[
        "steps"
    ]
    assert step["error"]["class"] == "bad_continuation"


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


def test_an_attempt_that_was_answered_with_a_wish_for_more_has_not_failed() -> None:
    attempts = [item.status for item in items(two_rounds(), "attempt")]
    assert attempts.count("continuation") == 3
    assert attempts.count("error") == 1


def test_a_step_lasts_until_its_tool_has_answered() -> None:
    (step,) = items(one_after_the_other(), "step")
    assert step.status == "open"
    (step,) = items(two_rounds(), "step")
    assert (step.status, step.ended_at) == ("ok", NOON + timedelta(seconds=7))


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


def test_the_trail_has_a_line_for_each_request_and_for_what_failed_without_one() -> None:
    acts = [line for line in lines(two_rounds()) if line["phase"] == "act"]
    assert [(line.get("task"), line.get("round"), line["attempt"], line["result_status"]) for line in acts] == [
        (None, None, 1, "continuation"),
        ("b", 1, 1, "error"),
        ("c", 1, 0, "error"),
        ("a", 1, 1, "continuation"),
        ("a.task-1", 2, 1, "ok"),
        ("a.again", 3, 1, "ok"),
        ("again", 3, 1, "continuation"),
        ("task-1", 3, 1, "ok"),
        ("again", 4, 1, "ok"),
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


def test_what_a_task_leaves_is_an_artifact_of_the_run() -> None:
    page = artifact("artifacts/page.html", PAGE, "text/html")
    run = a_gathering_run() >> comes("task-1", result={"artifact_path": page["path"], "artifacts": [page]})
    assert [(one.path, one.step) for one in named_artifacts(retell(entries_of(run)))] == [("artifacts/page.html", 1)]
    assert "artifacts/page.html" in trail(entries_of(run))["memory.md"]


def test_the_log_names_the_task() -> None:
    told_last = log_lines(one_after_the_other())[-1]
    assert told_last.message == "step 1, page of round 1 ok; step 1, look of round 1 sent"
    assert (told_last.fields["step"], told_last.fields["task"], told_last.fields["round"]) == (1, "page", 1)


def test_why_a_run_stands_names_the_sub_request_that_is_out() -> None:
    view = why_view(one_after_the_other().state, Seen(now=NOON))
    assert "step 1, other of round 1 (knowledge handle), attempt 1" in view.verdict


def test_continuations_and_tasks_are_counted_by_what_became_of_them() -> None:
    seen = measured(two_rounds())
    assert (
        seen['agentic_tool_continuations_total{agentic_continuation_outcome="followed",gen_ai_tool_name="fetch"}'] == 2
    )
    failed = [series for series in seen if series.startswith("agentic_tool_tasks_total") and "dependency" in series]
    assert len(failed) == 1


def test_a_wish_that_is_not_followed_is_counted_as_refused() -> None:
    run = a_gathering_run() >> comes("task-1") >> continues({"action": "dance"}, "again")
    assert run.state.status is Status.RUNNING
    assert any('outcome="refused"' in series for series in measured(run))
