"""Readers of a story: events, changes of the run, and published messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

from agent_service.core.brief import Limits
from agent_service.core.events import ModelReplied, ModelUsage, RunStarted
from agent_service.core.events import WakeAccepted as Woken
from agent_service.core.state import RunState
from schemas import subjects
from schemas.catalog import ToolOffer
from schemas.events import ToolResult
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
    assert change.transition.state is not None
    return change.transition.state


def is_entry(change: ChangeRecord) -> bool:
    return not change.transition.ignored


def entries(story: Story) -> list[ChangeRecord]:
    return [change for change in story if is_entry(change)]


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
    names: dict[str, Any] = {
        name: payload[name] for name in ("step", "attempt", "tool", "task", "round") if name in payload
    }
    names |= {"command": payload["tool_command"], "payload": payload["tool_payload"]}
    return Sent(place=place, at=change.event.at, subject=subject, **names)


def finals(change: ChangeRecord) -> list[str]:
    ended = [name for name in ("agent.completed", "agent.failed", "agent.cancelled") for _ in change.published(name)]
    return ended + ["agent.escalated" for payload in change.published("agent.escalated") if not payload["resumable"]]


def offered(story: Story) -> dict[str, ToolOffer]:
    started = [change.event for change in entries(story) if isinstance(change.event, RunStarted)]
    return {tool.name: tool for tool in started[0].skills} if started else {}


def paid_by(change: ChangeRecord) -> list[ModelUsage]:
    return [change.event.usage] if is_entry(change) and isinstance(change.event, ModelReplied) else []


def total(costs: list[float | None]) -> float | None:
    """Sum in this order; null if an amount is unknown."""
    start: float | None = 0.0
    return reduce(lambda so_far, cost: None if so_far is None or cost is None else so_far + cost, costs, start)


def name_of(result: ToolResult) -> Name:
    """The request that a result claims to answer."""
    return result.step, result.task or "", result.round or 0


def granted(story: Story) -> Iterator[tuple[ChangeRecord, Limits]]:
    """Each moment with the limits in force after it (`spending.limits_grow_only_by_people_or_while_they_are_asked`)."""
    return ((change, after(change).brief.limits) for change in story)


def reopened(change: ChangeRecord) -> bool:
    return bool(change.published("agent.reopened"))
