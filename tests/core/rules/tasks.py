"""Rules of tasks: each follows its dependencies and gets their results; the asker gets all results in order."""

from agent_service.core.facts import TasksAsked
from agent_service.core.waiting import AGAIN, Acting, Pending, asker_id
from tests.core.rules.reading import Story, after, entries, requests_of


def asked_by(story: Story, step: int, asker: str) -> list[Pending]:
    """Tasks of a step's own tool, or of its task `asker`, in their order."""
    asked = [task for change in entries(story) for fact in change.transition.all(TasksAsked) for task in fact.tasks]
    return [task for task in asked if (task.step, asker_id(task.id)) == (step, asker)]


def short(task: str) -> str:
    return task.rpartition(".")[2]


def a_task_is_asked_when_what_it_needs_is_there(story: Story) -> None:
    for place, change in enumerate(story):
        for request in requests_of(change):
            if request.task and short(request.task) != AGAIN:
                asked = asked_by(story[: place + 1], request.step, asker_id(request.task))
                (task,) = [one for one in asked if one.name == request.name]
                needed = [short(one.id) for one in asked if one.round == task.round and one.id in task.needs]
                told = request.payload.get("evidence", [])
                assert [(item["task"], item["status"]) for item in told] == [(need, "ok") for need in needed]


def who_asked_for_tasks_is_told_of_all_in_their_order(story: Story) -> None:
    for place, change in enumerate(story):
        for request in requests_of(change):
            if short(request.task) == AGAIN:
                asked = asked_by(story[: place + 1], request.step, asker_id(request.task))
                assert [item["task"] for item in request.payload["evidence"]] == [short(task.id) for task in asked]


def a_step_that_gathers_waits_for_something(story: Story) -> None:
    for change in entries(story):
        waiting, limits = after(change).waiting, after(change).brief.limits
        if isinstance(waiting, Acting) and waiting.graphs and change.event.at < limits.deadline_at:
            assert waiting.pendings
