"""Rules of steps, attempts, requests and tasks: one at a time, in order, and checked against the requests."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent_service.core.events import ToolReturned
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Pending
from schemas.events import ToolResult
from schemas.subjects import OUR_OWN_ROUTES
from tests.core.rules.reading import (
    Name,
    Sent,
    Story,
    after,
    entries,
    given_up,
    is_entry,
    is_retryable,
    name_of,
    offered,
    reopened,
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
        if other.attempt == 1:
            continue
        assert one is not None
        assert (one.attempt + 1, one.tool, one.command, one.payload) == (
            other.attempt,
            other.tool,
            other.command,
            other.payload,
        )
        between = entries(story[one.place + 1 : other.place])
        failures = [change for change in between if is_retryable(change, other.name)]
        assert len(failures) == 1
        assert failures[0].event.at < other.at


def only_what_can_be_repeated_is_tried_again(story: Story) -> None:
    for request in sent(story):
        (command,) = (c for c in offered(story)[request.tool].commands if c.name == request.command)
        assert request.attempt == 1 or command.tier == "read" or command.idempotent


def what_is_sent_is_pending_in_the_same_entry(story: Story) -> None:
    for change in story:
        for request in requests_of(change):
            sent_now = {(pending.name, pending.attempt, pending.action.tool) for pending in out(after(change))}
            assert (request.name, request.attempt, request.tool) in sent_now


def out(run: RunState) -> tuple[Pending, ...]:
    """Attempts that are sent and not answered."""
    if not isinstance(run.waiting, Acting):
        return ()
    return run.sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A tool result, the newest request of its step, and whether that was answered already."""

    change: ChangeRecord
    result: ToolResult
    newest: Sent | None
    answered: bool

    @property
    def met_a_live_run(self) -> bool:
        return self.change.before is not None and not self.change.before.final

    @property
    def is_of_a_finished_step(self) -> bool:
        completed = self.change.before.completed if self.change.before else ()
        return self.result.step in {record.step for record in completed}

    @property
    def is_of_a_step_that_gathers(self) -> bool:
        run, result = self.change.before, self.result
        gathers = run is not None and run.acting.graph(result.step) is not None
        return gathers and (not result.task or self.newest is None or self.answered)

    @property
    def is_of_a_step_asked_for(self) -> bool:
        return self.newest is not None and (self.newest.step, self.newest.tool) == (self.result.step, self.result.tool)

    @property
    def attempt(self) -> int:
        """Of the newest if it names none."""
        return self.result.attempt or (self.newest.attempt if self.newest else 1)

    @property
    def is_malformed(self) -> bool:
        return isinstance(self.change.event, ToolReturned) and self.change.event.malformed

    @property
    def escalated(self) -> bool:
        return after(self.change).ending_class == "protocol_violation"


def returns(story: Story) -> Iterator[Return]:
    """Every tool result of an open run."""
    newest: dict[Name, Sent] = {}
    answered: set[Name] = set()
    heard: set[str] = set()
    for change in story:
        name = given_up(change)
        if isinstance(change.event, ToolReturned):
            again = change.event.place in heard
            name = name_of(change.event.result) if again else _meant(change.event, newest, answered)
            heard |= {change.event.place} if is_entry(change) else set()
            returned = Return(
                change=change, result=change.event.result, newest=newest.get(name), answered=name in answered
            )
            if returned.met_a_live_run:
                yield returned
        answered |= {name} if name and _is_taken(change) else set()
        answered |= {one for one in newest.keys() - answered if _is_settled(change, one)}
        for request in requests_of(change):
            newest[request.name] = request
            answered.discard(request.name)


def _meant(event: ToolReturned, newest: Mapping[Name, Sent], answered: set[Name]) -> Name:
    """The request that a result means; one that names only its step means the only request of its tool."""
    step, task, asked_in = name = name_of(event.result)
    if task or not event.place or name not in answered:
        return name
    out_now = [n for n, sent in newest.items() if n[0] == step and n not in answered and sent.tool == event.result.tool]
    return out_now[0] if len(out_now) == 1 else (step, task, asked_in)


def _is_taken(change: ChangeRecord) -> bool:
    """True if the event ended an attempt."""
    live = is_entry(change) and change.before is not None and not change.before.final
    return live and after(change).ending_class != "protocol_violation"


def _is_settled(change: ChangeRecord, name: Name) -> bool:
    """True if the run no longer waits for a request: by an answer, a timeout, or the end of its step."""
    run, (step, task, _) = after(change), name
    if run.final:
        return False
    stopped = any(one.step == step and one.stopped for one in run.acting.graphs)
    over = run.has_finished(step) or (task and stopped) or reopened(change)
    return bool(over) and name not in {pending.name for pending in run.pendings}


def a_result_of_the_past_changes_nothing(story: Story) -> None:
    """The past: finished steps, and attempts that were given up."""
    for it in returns(story):
        older = it.is_of_a_step_asked_for and it.newest is not None and it.attempt < it.newest.attempt
        if it.is_of_a_finished_step or older:
            assert not is_entry(it.change)


def a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates(story: Story) -> None:
    for it in returns(story):
        past = it.is_of_a_finished_step or it.is_of_a_step_that_gathers
        if not past and not it.is_of_a_step_asked_for and not it.is_malformed:
            assert it.escalated


def a_result_that_cannot_be_read_changes_nothing_unless_it_is_waited_for(story: Story) -> None:
    for it in returns(story):
        if it.is_malformed and not it.is_of_a_step_asked_for:
            assert not is_entry(it.change)


def a_result_of_an_attempt_that_was_not_asked_for_escalates(story: Story) -> None:
    for it in returns(story):
        newer = it.is_of_a_step_asked_for and it.newest is not None and it.attempt > it.newest.attempt
        past = it.is_of_a_finished_step or it.is_of_a_step_that_gathers
        if newer and not past and not it.is_malformed:
            assert it.escalated


def the_result_that_is_waited_for_is_taken(story: Story) -> None:
    for it in returns(story):
        if it.is_of_a_step_asked_for and it.newest and it.attempt == it.newest.attempt:
            assert not it.escalated
            assert is_entry(it.change) is not it.answered


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
        assert run.final or run.acting.graphs or run.evidence == ()
