"""Items: what a run did and waited for, each with its beginning and end.

accepted · phase (a model call, or the plan that came along) · step > task > attempt · wait · person · ending
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.facts import Decided, RunEnded
from agent_service.core.phases import Decision, Phase
from agent_service.core.waiting import RequestName
from agent_service.history.text import clipped
from schemas.events import Execution, ToolError
from schemas.values import dataclass

ItemKind = Literal["accepted", "phase", "step", "task", "attempt", "wait", "person", "ending"]
ItemStatus = Literal["ok", "open", "error", "refused", "waiting", "cancelled", "continuation"]
Outcome = Literal["", "ok", "error", "budget", "continuation", "late", "refused"]
LONGEST_TEXT = 500
NOT_IN_TIMELINE = Field(exclude=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """An error. `retryable` is true where the same may be tried again."""

    error_class: Annotated[str, Field(alias="class")]
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: ToolError | None) -> "ItemError | None":
        if error is None:
            return None
        return cls(error_class=error.error_class, message=error.message, retryable=error.retryable)


@dataclass(frozen=True, slots=True)
class Thought:
    """A decision of a reply, or the plan that came along with it, and its ruling."""

    reply: ModelReplied
    became: Decided

    @property
    def decision(self) -> Decision:
        plan = self.reply.plan
        return plan if self.became.along and plan is not None else self.reply.decision


@dataclass(slots=True, kw_only=True)
class Item:
    """One bar of the timeline, from the entry `entry` to the entry `ended_in`. `until` is the latest end of a wait, or
    the deadline of an answer. `parent` is the enclosing item, `depth` the number of items around it. `task` and `round`
    name a sub-request of a step.

    A step or task has its newest `attempt`, the `summary` of its result, `child_run_id` if another agent works on it,
    and the `execution` that its executor reported. An attempt that `repeats` adds nothing to its step or task.

    `usage` is of a model call. A plan that came along with a framing or reflection counts with that.
    """

    id: str
    entry: int
    kind: ItemKind
    title: str
    text: Annotated[str, PlainSerializer(partial(clipped, limit=LONGEST_TEXT), return_type=str)]
    status: ItemStatus
    phase: Phase | None = None
    step: int | None = None
    task: str | None = None
    round: int | None = None
    attempt: int | None = None
    tool: str | None = None
    command: str | None = None
    call: int | None = None
    model: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    ended_in: int | None = None
    usage: ModelUsage | None = None
    error: ItemError | None = None
    until: datetime | None = None
    parent: str | None = None
    depth: int = 0
    repeats: bool = False
    summary: str = ""
    child_run_id: str | None = None
    execution: Execution | None = None

    about: Annotated[dict[str, Any], NOT_IN_TIMELINE] = field(default_factory=dict)
    """Step and task: arguments, route and approver of the first request; task: query, reason and needs. Wait: `kind`,
    and `why` the run stopped. Phase: `asked_in`, the entry with the state of its prompt, `asked_at`, `prompt_hash` of
    the templates, and `refusals` of its claims.
    """
    thought: Annotated[Thought | None, NOT_IN_TIMELINE] = None
    end: Annotated[RunEnded | None, NOT_IN_TIMELINE] = None
    outcome: Annotated[Outcome, NOT_IN_TIMELINE] = ""
    """Result of a step, task or attempt, from the answer in the entry `answered_in`."""
    answered_in: Annotated[int, NOT_IN_TIMELINE] = 0
    again: Annotated[int, NOT_IN_TIMELINE] = 0
    """Number of reopenings; the newest, or the beginning, is at `opened_at` in the entry `opened_in`. An ending has the
    instant at which its run was accepted or reopened.
    """
    opened_at: Annotated[datetime | None, NOT_IN_TIMELINE] = None
    opened_in: Annotated[int, NOT_IN_TIMELINE] = 0

    @property
    def name(self) -> RequestName:
        return self.step or 0, self.task or "", self.round or 0


def id_of(name: RequestName) -> str:
    step, task, asked_in = name
    return f"step:{step}:task:{task}:{asked_in}" if task else f"step:{step}"


def as_tree(items: Sequence[Item]) -> list[Item]:
    """Each item followed by what is a part of it."""
    known, parts = {item.id for item in items}, defaultdict[str | None, list[Item]](list)
    for item in reversed(items):
        parts[item.parent if item.parent in known else None].append(item)
    tree, left = list[Item](), parts[None]
    while left:
        tree.append(left.pop())
        left += parts[tree[-1].id]
    return tree


@cache
def handler_of(kind: str) -> str:
    """Name of a history's method for events or facts of this class, such as `on_call_asked`."""
    return f"on_{re.sub('(?<=[a-z])(?=[A-Z])', '_', kind).lower()}"
