"""Rules of tasks: a step gathers what its tool asked for, each thing once, and within its budget."""

from collections import defaultdict

from agent_service.core.events import ToolReturned
from agent_service.core.tools.flights import gatherings
from agent_service.core.waiting import ForEvidence
from tests.core.rules.reading import Story, after, entries, requests_of, sent, woken


def a_task_is_asked_only_where_a_tool_asked_for_it(story: Story) -> None:
    continued: set[int] = set()
    for moment in entries(story):
        if isinstance(moment.event, ToolReturned) and moment.event.result.status == "continuation":
            continued.add(moment.event.result.step)
        assert {request.step for request in requests_of(moment) if request.task} <= continued


def no_step_continues_more_often_than_granted(story: Story) -> None:
    rounds = defaultdict(set)
    for request in sent(story):
        if request.task and request.task.rpartition(".")[2] != "again":
            rounds[request.step].add(request.round)
    most = woken(story).limits.continuations.max_plugin_continuations
    assert all(len(numbers) <= most and max(numbers) <= most for numbers in rounds.values())


def no_more_is_under_way_than_one_run_may_have(story: Story) -> None:
    granted = woken(story).limits.continuations
    for moment in entries(story):
        waiting = after(moment).waiting
        if isinstance(waiting, ForEvidence) and [request for request in requests_of(moment) if request.task]:
            busy = [flight.pending.action.tool for flight in waiting.flights]
            first = woken(story).limits.parallel_reads
            assert len(busy) <= max(granted.parallel, first)
            assert all(busy.count(tool) <= max(granted.parallel_per_tool, first) for tool in busy)


def what_was_gathered_is_forgotten_with_the_last_step_that_gathers(story: Story) -> None:
    for moment in story:
        run = after(moment)
        assert run.final or gatherings(run.waiting) or run.evidence == ()
