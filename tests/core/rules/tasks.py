"""Rules of tasks: each follows its dependencies and gets their results; the asker gets all results in order."""

from collections.abc import Iterator
from typing import Any

from agent_service.core.events import ToolReturned
from agent_service.core.waiting import Acting
from tests.core.rules.reading import Story, after, entries, requests_of
from tests.core.script import ChangeRecord

AGAIN = "again"


def a_task_is_asked_when_what_it_needs_is_there(story: Story) -> None:
    for place, change in enumerate(story):
        for request in requests_of(change):
            above, _, name = request.task.rpartition(".")
            if name and name != AGAIN:
                wish = list(_wishes(story[: place + 1], request.step, above))[-1]
                needed = [task["id"] for task in wish if task["id"] in _needs(wish, name)]
                told = request.payload.get("evidence", [])
                assert [(item["task"], item["status"]) for item in told] == [(need, "ok") for need in needed]


def who_asked_for_tasks_is_told_of_all_in_their_order(story: Story) -> None:
    for place, change in enumerate(story):
        for request in requests_of(change):
            above, _, name = request.task.rpartition(".")
            if name == AGAIN:
                asked = [task["id"] for wish in _wishes(story[: place + 1], request.step, above) for task in wish]
                assert [item["task"] for item in request.payload["evidence"]] == asked


def a_step_that_gathers_waits_for_something(story: Story) -> None:
    for change in entries(story):
        waiting, limits = after(change).waiting, after(change).brief.limits
        if isinstance(waiting, Acting) and waiting.graphs and change.event.at < limits.deadline_at:
            assert waiting.pendings


def _wishes(story: Story, step: int, above: str) -> Iterator[list[dict[str, Any]]]:
    """Tasks of each continuation of a step's own tool, or of its task `above`."""
    for change in entries(story):
        if _continues(change, step, above):
            assert isinstance(change.event, ToolReturned)
            assert change.event.result.result is not None
            wish = change.event.result.result.model_dump()["continuation"]
            yield wish["tasks"] if wish["action"] == "multi-step" else [{"id": "task-1"}]


def _continues(change: ChangeRecord, step: int, above: str) -> bool:
    event = change.event
    is_taken = change.before is not None and not change.before.final
    if not isinstance(event, ToolReturned) or not is_taken or after(change).ending_class == "protocol_violation":
        return False
    asker = (event.result.task or "").removesuffix(AGAIN).removesuffix(".")
    return (event.result.status, event.result.step, asker) == ("continuation", step, above)


def _needs(wish: list[dict[str, Any]], name: str) -> list[str]:
    return next(task.get("depends_on", []) for task in wish if task["id"] == name)
