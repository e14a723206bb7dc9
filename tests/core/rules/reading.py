"""Readers of a story: events, changes of the run, and published messages."""

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
"""Step, task and round of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A tool request. `place` is its moment in the story."""

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
    """State after the moment."""
    assert change.transition.state is not None
    return change.transition.state


def is_entry(change: ChangeRecord) -> bool:
    return not change.transition.ignored


def entries(story: Story) -> list[ChangeRecord]:
    return [change for change in story if is_entry(change)]


def commits_of(story: Story) -> list[journal.Commit]:
    """Commits, entry by entry."""
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
    """Cost of the accepted reply."""
    return [change.event.usage] if is_entry(change) and isinstance(change.event, ModelReplied) else []


def total(costs: list[float | None]) -> float | None:
    """Sum in this order; null if an amount is unknown."""
    start: float | None = 0.0
    return reduce(lambda so_far, cost: None if so_far is None or cost is None else so_far + cost, costs, start)


def given_up(change: ChangeRecord) -> Name | None:
    """The request whose attempt timed out."""
    if not isinstance(change.event, TimerFired) or change.before is None:
        return None
    before, at = change.before, change.event.at
    instant, name = min(_instants(before), key=lambda one: one[0], default=(at, None))
    sent = name not in _retries(before)
    return name if sent and instant <= at < before.brief.limits.deadline_at else None


def _instants(run: RunState) -> Iterator[tuple[datetime, Name | None]]:
    """Due instants of attempts, by name; nameless for the time of a step with sub-requests."""
    if not isinstance(run.waiting, Acting):
        return
    yield from ((one.until, None) for one in run.waiting.graphs if not one.stopped)
    yield from ((one.retry_at or one.deadline_at, one.name) for one in run.waiting.pendings)


def _retries(run: RunState) -> set[Name]:
    return {one.name for one in run.pendings if one.retry_at}


def name_of(result: ToolResult) -> Name:
    """The request that a result claims to answer."""
    return result.step, result.task or "", result.round or 0


def is_retryable(change: ChangeRecord, name: Name) -> bool:
    """True if a moment allows a retry of that request: a timeout, or a retryable error."""
    if not isinstance(change.event, ToolReturned):
        return given_up(change) == name
    if name_of(change.event.result) != name or after(change).ending_class == "protocol_violation":
        return False
    if change.before is None or change.before.final:
        return False
    error = change.event.result.error
    return change.event.result.status == "error" and error is not None and error.retryable


def granted(story: Story) -> Iterator[tuple[ChangeRecord, Limits]]:
    """Each moment with the limits in force after it, raised and extended so far."""
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
    """True if only a person can continue the run."""
    return run is not None and run.status in (Status.PAUSED, Status.ESCALATED)


def is_handed_over(change: ChangeRecord) -> bool:
    """True if a run that waits for a person escalates: its remaining time is kept."""
    paused = change.before is not None and change.before.status is Status.PAUSED
    return paused and after(change).status is Status.ESCALATED


def reopened(change: ChangeRecord) -> bool:
    """True if an answer reopened an escalated run."""
    return bool(change.published("agent.reopened"))


def goes_on_after_its_attempts(change: ChangeRecord) -> bool:
    """True if a person resumed a run that was out of attempts."""
    paused = change.before is not None and change.before.status is Status.PAUSED
    spent = paused and change.before is not None and change.before.ending_class == "budget_attempts"
    return spent and goes_on_after_a_rest(change)


def goes_on_after_a_rest(change: ChangeRecord) -> bool:
    """True if a person's word, or an expiry, continued the run."""
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
