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
from tests.core.script import Moment

Story = list[Moment]


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


def after(moment: Moment) -> RunState:
    """The state that the moment led to."""
    assert moment.transition.state is not None
    return moment.transition.state


def is_entry(moment: Moment) -> bool:
    return not moment.transition.ignored


def entries(story: Story) -> list[Moment]:
    return [moment for moment in story if is_entry(moment)]


def commits_of(story: Story) -> list[journal.Commit]:
    """What a store is given, entry by entry."""
    run: journal.Run | None = None
    commits = []
    for moment in entries(story):
        commits.append(journal.commit_of(run, moment.event, moment.transition))
        run = journal.Run(state=commits[-1].state, head=commits[-1].entry.hash)
    return commits


def woken(story: Story) -> Woken:
    event = story[0].event
    assert isinstance(event, Woken)
    return event


def sent(story: Story) -> list[Sent]:
    return [request for place, moment in enumerate(story) for request in requests_of(moment, place)]


def requests_of(moment: Moment, place: int = 0) -> list[Sent]:
    asked = subjects.TOOL_REQUEST
    return [_sent(moment, place, subject, payload) for subject, payload in moment.payloads if subject.startswith(asked)]


def _sent(moment: Moment, place: int, subject: str, payload: dict[str, Any]) -> Sent:
    return Sent(
        place=place,
        at=moment.event.at,
        subject=subject,
        step=payload["step"],
        attempt=payload["attempt"],
        tool=payload["tool"],
        command=payload["tool_command"],
        payload=payload["tool_payload"],
        task=payload.get("task", ""),
        round=payload.get("round", 0),
    )


def finals(moment: Moment) -> list[str]:
    """The final events that a moment published."""
    ended = [name for name in ("agent.completed", "agent.failed", "agent.cancelled") for _ in moment.published(name)]
    return ended + ["agent.escalated" for payload in moment.published("agent.escalated") if not payload["resumable"]]


def pauses(moment: Moment) -> list[str]:
    """The classes of the pauses that a moment published."""
    return [payload["class"] for payload in moment.published("agent.escalated") if payload["resumable"]]


def offered(story: Story) -> dict[str, ToolOffer]:
    """The tools that the run was started with."""
    started = [moment.event for moment in entries(story) if isinstance(moment.event, RunStarted)]
    return {tool.name: tool for tool in started[0].skills} if started else {}


def paid_by(moment: Moment) -> list[ModelUsage]:
    """What the reply cost that was taken up."""
    return [moment.event.usage] if is_entry(moment) and isinstance(moment.event, ModelReplied) else []


def total(costs: list[float | None]) -> float | None:
    """The sum, added in this order; null as soon as one is not known."""
    start: float | None = 0.0
    return reduce(lambda so_far, cost: None if so_far is None or cost is None else so_far + cost, costs, start)


def given_up(moment: Moment) -> Name | None:
    """The request whose attempt was given up because no answer came."""
    if not isinstance(moment.event, TimerFired) or moment.before is None:
        return None
    before, at = moment.before, moment.event.at
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


def is_retryable(moment: Moment, name: Name) -> bool:
    """Whether a moment lets an attempt of that request be tried again: a timeout, or an error that says so."""
    if not isinstance(moment.event, ToolReturned):
        return given_up(moment) == name
    if name_of(moment.event.result) != name or after(moment).ending_class == "protocol_violation":
        return False
    if moment.before is None or moment.before.final:
        return False
    error = moment.event.result.error
    return moment.event.result.status == "error" and error is not None and error.retryable


def granted(story: Story) -> Iterator[tuple[Moment, Limits]]:
    """Each moment with the limits in force after it: those of the wake, as raised since, and longer by every rest."""
    limits, since = woken(story).brief.limits, woken(story).at
    for moment in story:
        event, rested = moment.event, rests(moment.before)
        if not is_entry(moment):
            yield moment, limits
            continue
        if rested and (goes_on_after_a_rest(moment) or is_handed_over(moment)) and not limits.deadline_named:
            limits = replace(limits, deadline_at=limits.deadline_at + (event.at - since))
        if rests(after(moment)) and (not rested or type(after(moment).waiting) is not type(_waiting(moment))):
            since = event.at
        if isinstance(event, SignalReceived) and event.signal.constraints:
            limits = _raised(limits, event.signal.constraints)
        if reopened(moment) or goes_on_after_its_attempts(moment):
            limits = replace(limits, max_attempts_of_run=limits.max_attempts_of_run + limits.max_attempts)
        yield moment, limits


def rests(run: RunState | None) -> bool:
    """Whether it is for a person to let the run go on."""
    return run is not None and run.status in (Status.PAUSED, Status.ESCALATED)


def is_handed_over(moment: Moment) -> bool:
    """Whether the run, which rested for a person, now ends in their hands: it keeps the time that it had."""
    paused = moment.before is not None and moment.before.status is Status.PAUSED
    return paused and after(moment).status is Status.ESCALATED


def reopened(moment: Moment) -> bool:
    """Whether an answer set the run going again that was handed to a person."""
    return bool(moment.published("agent.reopened"))


def goes_on_after_its_attempts(moment: Moment) -> bool:
    """Whether a person let a run go on that paused for its tool attempts."""
    paused = moment.before is not None and moment.before.status is Status.PAUSED
    spent = paused and moment.before is not None and moment.before.ending_class == "budget_attempts"
    return spent and goes_on_after_a_rest(moment)


def goes_on_after_a_rest(moment: Moment) -> bool:
    """Whether a person, or their silence, let the run go on: not so if it stays as it is, or ends unasked."""
    before, now = _waiting(moment), after(moment).waiting
    if isinstance(moment.event, SignalReceived):
        return before != now
    asked = moment.before.ask if moment.before else None
    return isinstance(asked, Approval) and after(moment).ending_class != "approval_expired" and before != now


def _waiting(moment: Moment) -> Waiting | None:
    return moment.before.waiting if moment.before else None


def _raised(limits: Limits, more: Constraints) -> Limits:
    names = ("max_steps", "max_reframes", "max_tokens", "max_cost_usd", "deadline_at")
    both = {name: (getattr(limits, name), getattr(more, name)) for name in names}
    larger: dict[str, Any] = {name: max(pair) for name, pair in both.items() if None not in pair}
    return replace(limits, **larger)
