"""Rules of steps, attempts, requests and tasks: one at a time, in order, and checked against the requests.

A task follows its dependencies and gets their results; the asker gets all results in order.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from agent_service.core.events import ToolReturned
from agent_service.core.facts import AttemptAnswered, TasksAsked
from agent_service.core.waiting import AGAIN, Acting, Pending, acting_of, asker_id
from schemas.events import ToolResult
from schemas.subjects import OUR_OWN_ROUTES
from tests.core.rules.reading import (
    Name,
    Sent,
    Story,
    after,
    entries,
    is_entry,
    name_of,
    offered,
    requests_of,
    sent,
    woken,
)
from tests.core.script import ChangeRecord

RESERVED = {"run_id", "step", "tool", "tool_command", "attempt", "wake_id"}


def one_action_is_in_flight_or_several_that_only_read(story: Story) -> None:
    for place, change in enumerate(story):
        begun = [request for request in requests_of(change, place) if request.attempt == 1 and not request.task]
        if not begun or change.before is None:
            continue
        finished = {record.step for record in change.before.completed}
        assert finished >= set(range(1, begun[0].step))
        assert len(begun) <= (woken(story).brief.limits.parallel_reads)
        assert len(begun) == 1 or {offered(story)[request.tool].commands[0].tier for request in begun} == {"read"}


def steps_count_from_one(story: Story) -> None:
    steps = [request.step for request in sent(story) if request.attempt == 1 and not request.task]
    assert steps == list(range(1, len(steps) + 1))


def an_attempt_follows_the_failure_of_the_one_before(story: Story) -> None:
    newest: dict[Name, Sent] = {}
    for other in sent(story):
        one, newest[other.name] = newest.get(other.name), other
        if other.attempt > 1:
            assert one is not None
            assert (one.tool, one.command, one.payload) == (other.tool, other.command, other.payload)
            between = entries(story[one.place + 1 : other.place])
            answers = [(change.event.at, fact) for change in between for fact in change.transition.all(AttemptAnswered)]
            mine = [(at, fact) for at, fact in answers if fact.name == other.name and fact.status == "error"]
            failed = [(at, fact.attempt) for at, fact in mine if fact.error and fact.error.retryable]
            assert [attempt for _, attempt in failed] == [one.attempt] == [other.attempt - 1]
            assert failed[0][0] < other.at


def only_what_can_be_repeated_is_tried_again(story: Story) -> None:
    for request in sent(story):
        (command,) = (c for c in offered(story)[request.tool].commands if c.name == request.command)
        assert request.attempt == 1 or command.tier == "read" or command.idempotent


def what_is_sent_is_pending_in_the_same_entry(story: Story) -> None:
    for change in story:
        for request in requests_of(change):
            sent_now = {(pending.name, pending.attempt, pending.action.tool) for pending in after(change).sent}
            assert (request.name, request.attempt, request.tool) in sent_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A tool result of an open run. `asked`: the request that it means. `past`: its step has finished.
    `gathers`: its step has sub-requests, so that a result may mean one that is answered.
    """

    change: ChangeRecord
    asked: Pending | None
    attempt: int
    past: bool
    gathers: bool
    malformed: bool

    @property
    def escalated(self) -> bool:
        return after(self.change).ending_class == "protocol_violation"


def returns(story: Story) -> Iterator[Return]:
    for change in story:
        run, event = change.before, change.event
        if run is None or run.final or not isinstance(event, ToolReturned) or event.place in run.places:
            continue
        result, gathers = event.result, acting_of(run.waiting).graph(event.result.step) is not None
        asked = [one for one in run.pendings if _means(result, one, by_tool=gathers and bool(event.place))]
        yield Return(
            change=change,
            asked=asked[0] if len(asked) == 1 else None,
            attempt=result.attempt or (asked[0].attempt if asked else 1),
            past=result.step in {record.step for record in run.completed},
            gathers=gathers,
            malformed=event.malformed,
        )


def _means(result: ToolResult, pending: Pending, *, by_tool: bool) -> bool:
    """A result without a task means the only request of its tool where the step has several."""
    named = pending.name == name_of(result) or (by_tool and not result.task and pending.step == result.step)
    return named and pending.action.tool == result.tool


def a_result_of_the_past_changes_nothing(story: Story) -> None:
    """The past: finished steps, and attempts that were given up."""
    for it in returns(story):
        if it.past or (it.asked and it.attempt < it.asked.attempt):
            assert not is_entry(it.change)


def a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates(story: Story) -> None:
    for it in returns(story):
        if not it.asked and not it.past and not it.gathers:
            assert it.escalated or it.malformed
            assert is_entry(it.change) is it.escalated


def a_result_of_an_attempt_that_was_not_asked_for_escalates(story: Story) -> None:
    for it in returns(story):
        if it.asked and it.attempt > it.asked.attempt:
            assert it.escalated or it.malformed


def the_result_that_is_waited_for_is_taken(story: Story) -> None:
    for it in returns(story):
        if it.asked and it.attempt == it.asked.attempt and it.asked.retry_at is None:
            assert is_entry(it.change)
            assert not it.escalated


def only_offered_commands_are_requested(story: Story) -> None:
    for request in sent(story):
        offer = offered(story)[request.tool]
        assert request.command in {command.name for command in offer.commands}
        assert request.subject == f"agentic.tool_request.{offer.route}"


def an_agent_calls_itself_only_as_deep_as_granted(story: Story) -> None:
    allowed = woken(story).brief.depth < woken(story).brief.limits.max_depth
    assert allowed or not {request.subject.split(".")[-1] for request in sent(story)} & OUR_OWN_ROUTES


def the_correlation_keys_are_ours(story: Story) -> None:
    for request in sent(story):
        assert not RESERVED & {key.lower() for key in request.payload}
    for change in story:
        for payload in change.published("agentic.tool_request"):
            assert payload["run_id"] == woken(story).run_id


def no_step_continues_more_often_than_granted(story: Story) -> None:
    rounds = defaultdict(set)
    for request in sent(story):
        if request.task and request.task.rpartition(".")[2] != "again":
            rounds[request.step].add(request.round)
    most = woken(story).brief.limits.continuations.max_plugin_continuations
    assert all(len(numbers) <= most and max(numbers) <= most for numbers in rounds.values())


def no_more_is_under_way_than_one_run_may_have(story: Story) -> None:
    granted = woken(story).brief.limits.continuations
    for change in entries(story):
        waiting = after(change).waiting
        if (
            isinstance(waiting, Acting)
            and waiting.graphs
            and [request for request in requests_of(change) if request.task]
        ):
            busy = [pending.action.tool for pending in waiting.pendings]
            first = woken(story).brief.limits.parallel_reads
            assert len(busy) <= max(granted.parallel, first)
            assert all(busy.count(tool) <= max(granted.parallel_per_tool, first) for tool in busy)


def what_was_gathered_is_forgotten_with_the_last_step_that_gathers(story: Story) -> None:
    for change in story:
        run = after(change)
        assert run.final or acting_of(run.waiting).graphs or run.evidence == ()


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
