"""Rules of tasks: each is asked after what it needs and told of it; who asked is told of all, in their order."""

from collections.abc import Iterator
from typing import Any

from agent_service.core.events import ToolReturned
from agent_service.core.waiting import Acting
from tests.core.rules.reading import Story, after, entries, requests_of
from tests.core.script import Moment

AGAIN = "again"


def a_task_is_asked_when_what_it_needs_is_there(story: Story) -> None:
    for place, moment in enumerate(story):
        for request in requests_of(moment):
            above, _, name = request.task.rpartition(".")
            if name and name != AGAIN:
                wish = list(_wishes(story[: place + 1], request.step, above))[-1]
                needed = [task["id"] for task in wish if task["id"] in _needs(wish, name)]
                told = request.payload.get("evidence", [])
                assert [(item["task"], item["status"]) for item in told] == [(need, "ok") for need in needed]


def who_asked_for_tasks_is_told_of_all_in_their_order(story: Story) -> None:
    for place, moment in enumerate(story):
        for request in requests_of(moment):
            above, _, name = request.task.rpartition(".")
            if name == AGAIN:
                asked = [task["id"] for wish in _wishes(story[: place + 1], request.step, above) for task in wish]
                assert [item["task"] for item in request.payload["evidence"]] == asked


def a_step_that_gathers_waits_for_something(story: Story) -> None:
    for moment in entries(story):
        waiting, limits = after(moment).waiting, after(moment).brief.limits
        if isinstance(waiting, Acting) and waiting.graphs and moment.event.at < limits.deadline_at:
            assert waiting.pendings


def _wishes(story: Story, step: int, above: str) -> Iterator[list[dict[str, Any]]]:
    """The tasks of each continuation of a step's own tool, or of its task `above`."""
    for moment in entries(story):
        if _continues(moment, step, above):
            assert isinstance(moment.event, ToolReturned)
            assert moment.event.result.result is not None
            wish = moment.event.result.result.model_dump()["continuation"]
            yield wish["tasks"] if wish["action"] == "multi-step" else [{"id": "task-1"}]


def _continues(moment: Moment, step: int, above: str) -> bool:
    event = moment.event
    is_taken = moment.before is not None and not moment.before.final
    if not isinstance(event, ToolReturned) or not is_taken or after(moment).ending_class == "protocol_violation":
        return False
    asker = (event.result.task or "").removesuffix(AGAIN).removesuffix(".")
    return (event.result.status, event.result.step, asker) == ("continuation", step, above)


def _needs(wish: list[dict[str, Any]], name: str) -> list[str]:
    return next(task.get("depends_on", []) for task in wish if task["id"] == name)
