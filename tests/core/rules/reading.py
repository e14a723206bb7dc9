"""How a story is read: what came in, what changed the run, and what was published."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any

from agent_service.core.brief import Limits
from agent_service.core.events import ModelReplied, ModelUsage, RunStarted, SignalReceived, TimerFired, ToolReturned
from agent_service.core.events import WakeAccepted as Woken
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Approval, Status, Waiting
from agent_service.run import journal
from schemas import subjects
from schemas.catalog import ToolOffer
from schemas.events import Constraints, ToolResult
from tests.core.script import ChangeRecord

Story = list[ChangeRecord]


Name = tuple[int, str, int]
"""Which request of a run: step, task and round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One tool request. `place` is its moment in the story."""

    place: int
    at: datetime
    subject: str
    step: int
    attempt: int
    tool: str
    command: str
    payload: dict[str, Any]
    task: str = ""
    round: int = 0
    """The sub-request of the step that it is; empty and 0 for its own."""

    @property
    def name(self) -> "Name":
        return self.step, self.task, self.round


def after(change: ChangeRecord) -> RunState:
    """The state that the moment led to."""
    assert change.transition.state is not None
    return change.transition.state


def is_entry(change: ChangeRecord) -> bool:
    return not change.transition.ignored


def entries(story: Story) -> list[ChangeRecord]:
    return [change for change in story if is_entry(change)]


def commits_of(story: Story) -> list[journal.Commit]:
    """What a store is given, entry by entry."""
    run: journal.Run | None = None
    commits = []
    for change in entries(story):
        commits.append(journal.commit_of(run, change.transition))
        run = journal.Run(state=commits[-1].state, head=commits[-1].entry.hash)
    return commits


def woken(story: Story) -> Woken:
    event = story[0].event
    assert isinstance(event, Woken)
    return event


def sent(story: Story) -> list[Sent]:
    return [request for place, change in enumerate(story) for request in requests_of(change, place)]


def requests_of(change: ChangeRecord, place: int = 0) -> list[Sent]:
    asked = subjects.TOOL_REQUEST
    return [_sent(change, place, subject, payload) for subject, payload in change.payloads if subject.startswith(asked)]


def _sent(change: ChangeRecord, place: int, subject: str, payload: dict[str, Any]) -> Sent:
    return Sent(
        place=place,
        at=change.event.at,
        subject=subject,
        step=payload["step"],
        attempt=payload["attempt"],
        tool=payload["tool"],
        command=payload["tool_command"],
        payload=payload["tool_payload"],
        task=payload.get("task", ""),
        round=payload.get("round", 0),
    )


def finals(change: ChangeRecord) -> list[str]:
    """The final events that a moment published."""
    ended = [name for name in ("agent.completed", "agent.failed", "agent.cancelled") for _ in change.published(name)]
    return ended + ["agent.escalated" for payload in change.published("agent.escalated") if not payload["resumable"]]


def pauses(change: ChangeRecord) -> list[str]:
    """The classes of the pauses that a moment published."""
    return [payload["class"] for payload in change.published("agent.escalated") if payload["resumable"]]


def offered(story: Story) -> dict[str, ToolOffer]:
    """The tools that the run was started with."""
    started = [change.event for change in entries(story) if isinstance(change.event, RunStarted)]
    return {tool.name: tool for tool in started[0].skills} if started else {}


def paid_by(change: ChangeRecord) -> list[ModelUsage]:
    """What the reply cost that was taken up."""
    return [change.event.usage] if is_entry(change) and isinstance(change.event, ModelReplied) else []


def total(costs: list[float | None]) -> float | None:
    """The sum, added in this order; null as soon as one is not known."""
    start: float | None = 0.0
    return reduce(lambda so_far, cost: None if so_far is None or cost is None else so_far + cost, costs, start)


def given_up(change: ChangeRecord) -> Name | None:
    """The request whose attempt was given up because no answer came."""
    if not isinstance(change.event, TimerFired) or change.before is None:
        return None
    before, at = change.before, change.event.at
    instant, name = min(_instants(before), key=lambda one: one[0], default=(at, None))
    sent = name not in _retries(before)
    return name if sent and instant <= at < before.brief.limits.deadline_at else None


def _instants(run: RunState) -> Iterator[tuple[datetime, Name | None]]:
    """When each attempt is due, with its name; without one when the time of a step is over in which it gathers."""
    if not isinstance(run.waiting, Acting):
        return
    yield from ((one.until, None) for one in run.waiting.graphs if not one.stopped)
    yield from ((one.retry_at or one.deadline_at, one.name) for one in run.waiting.pendings)


def _retries(run: RunState) -> set[Name]:
    return {one.name for one in run.pendings if one.retry_at}


def name_of(result: ToolResult) -> Name:
    """Which request a result says that it answers."""
    return result.step, result.task or "", result.round or 0


def is_retryable(change: ChangeRecord, name: Name) -> bool:
    """Whether a moment lets an attempt of that request be tried again: a timeout, or an error that says so."""
    if not isinstance(change.event, ToolReturned):
        return given_up(change) == name
    if name_of(change.event.result) != name or after(change).ending_class == "protocol_violation":
        return False
    if change.before is None or change.before.final:
        return False
    error = change.event.result.error
    return change.event.result.status == "error" and error is not None and error.retryable


def granted(story: Story) -> Iterator[tuple[ChangeRecord, Limits]]:
    """Each moment with the limits in force after it: those of the wake, as raised since, and longer by every rest."""
    limits, since = woken(story).brief.limits, woken(story).at
    for change in story:
        event, rested = change.event, rests(change.before)
        if not is_entry(change):
            yield change, limits
            continue
        if rested and (goes_on_after_a_rest(change) or is_handed_over(change)) and not limits.deadline_named:
            limits = replace(limits, deadline_at=limits.deadline_at + (event.at - since))
        if rests(after(change)) and (not rested or type(after(change).waiting) is not type(_waiting(change))):
            since = event.at
        if isinstance(event, SignalReceived) and event.signal.constraints:
            limits = _raised(limits, event.signal.constraints)
        if reopened(change) or goes_on_after_its_attempts(change):
            limits = replace(limits, max_attempts_of_run=limits.max_attempts_of_run + limits.max_attempts)
        yield change, limits


def rests(run: RunState | None) -> bool:
    """Whether it is for a person to let the run go on."""
    return run is not None and run.status in (Status.PAUSED, Status.ESCALATED)


def is_handed_over(change: ChangeRecord) -> bool:
    """Whether the run, which rested for a person, now ends in their hands: it keeps the time that it had."""
    paused = change.before is not None and change.before.status is Status.PAUSED
    return paused and after(change).status is Status.ESCALATED


def reopened(change: ChangeRecord) -> bool:
    """Whether an answer set the run going again that was handed to a person."""
    return bool(change.published("agent.reopened"))


def goes_on_after_its_attempts(change: ChangeRecord) -> bool:
    """Whether a person let a run go on that paused for its tool attempts."""
    paused = change.before is not None and change.before.status is Status.PAUSED
    spent = paused and change.before is not None and change.before.ending_class == "budget_attempts"
    return spent and goes_on_after_a_rest(change)


def goes_on_after_a_rest(change: ChangeRecord) -> bool:
    """Whether a person, or their silence, let the run go on: not so if it stays as it is, or ends unasked."""
    before, now = _waiting(change), after(change).waiting
    if isinstance(change.event, SignalReceived):
        return before != now
    asked = change.before.ask if change.before else None
    return isinstance(asked, Approval) and after(change).ending_class != "approval_expired" and before != now


def _waiting(change: ChangeRecord) -> Waiting | None:
    return change.before.waiting if change.before else None


def _raised(limits: Limits, more: Constraints) -> Limits:
    names = ("max_steps", "max_reframes", "max_tokens", "max_cost_usd", "deadline_at")
    both = {name: (getattr(limits, name), getattr(more, name)) for name in names}
    larger: dict[str, Any] = {name: max(pair) for name, pair in both.items() if None not in pair}
    return replace(limits, **larger)
