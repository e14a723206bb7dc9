"""Items: what a run did and waited for, each from when until when.

accepted · phase (a model call, or the plan that came along) · step > task > attempt · wait · person · ending
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PlainSerializer

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.facts import Decided, RunEnded
from agent_service.core.phases import Decision, Phase
from agent_service.core.waiting import RequestName
from agent_service.history.text import clipped
from agent_service.run.journal import JournalRecord
from schemas.events import Execution, ToolError
from schemas.values import dataclass, replace

ItemKind = Literal["accepted", "phase", "step", "task", "attempt", "wait", "person", "ending"]
ItemStatus = Literal["ok", "open", "error", "refused", "waiting", "cancelled", "continuation"]
Outcome = Literal["", "ok", "error", "budget", "continuation", "late", "refused"]
LONGEST_TEXT = 500
NOT_IN_TIMELINE = Field(exclude=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """Why something failed. `retryable`: whether it may be tried again."""

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
    """A decision in a reply, or in what came along with it, and what became of it."""

    reply: ModelReplied
    became: Decided

    @property
    def decision(self) -> Decision:
        plan = self.reply.plan
        return plan if self.became.along and plan is not None else self.reply.decision


@dataclass(slots=True, kw_only=True)
class Item:
    """One bar of the timeline. `entry` is the entry it began with, `ended_in` the one it ended with; `until` is when a
    wait, or the time for an answer, is over at the latest; `parent` is the item that it is a part of, and `depth` how
    many of those there are above it. `task` and `round` are of a sub-request of a step, and of what belongs to it.

    Of a step or task, `attempt` is the newest, `summary` what it brought, and `child_run_id` the run that works on it,
    where it asks an agent; `execution` is how its executor carried it out. An attempt `repeats` its step or task where
    it says no more than that.

    `usage`: of a model call. A plan that came along has none of its own: it is told with the framing or reflection.
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
    """Of a step and a task: arguments, route and who allowed it, as its first request was sent; query, reason and needs
    of a task. Of a wait: `kind`, and `why` a run stopped. Of a phase: `asked_in`, the entry whose state its prompt was
    made of, `asked_at`, when, and `prompt_hash`, the templates; and `refusals` of its claims.
    """
    thought: Annotated[Thought | None, NOT_IN_TIMELINE] = None
    end: Annotated[RunEnded | None, NOT_IN_TIMELINE] = None
    outcome: Annotated[Outcome, NOT_IN_TIMELINE] = ""
    """How a step, task or attempt ended, by the answer in the entry `answered_in`."""
    answered_in: Annotated[int, NOT_IN_TIMELINE] = 0
    again: Annotated[int, NOT_IN_TIMELINE] = 0
    """How often it went on after its end; it began, or went on, at `opened_at` in the entry `opened_in`. An ending: the
    run began, or was opened again.
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


M = TypeVar("M", bound=Callable[..., None])
HEARD: dict[type[Any], Callable[[Any, Any], None]] = {}
"""What each event, and each fact, does to the items."""


def heard(*kinds: type[Any]) -> Callable[[M], M]:
    """The method is what these do to the items."""

    def of(method: M) -> M:
        HEARD.update(dict.fromkeys(kinds, method))
        return method

    return of


class Items:
    """`by_id` has them in the order in which they began; `open` those that are, by id, or by what there is one of at a
    time; `closed` those that the entry in hand, `record`, closed, as they were then.
    """

    record: JournalRecord

    def __init__(self) -> None:
        self.open: dict[str, Item] = {}
        self.closed: list[Item] = []
        self.by_id: dict[str, Item] = {}

    def tree(self) -> list[Item]:
        """All, each followed by what is a part of it."""
        tree = as_tree([*self.by_id.values()])
        for item in tree:
            above = self.by_id.get(item.parent or "")
            if above and item.kind == "attempt":
                both = item.ended_in == above.ended_in
                item.repeats = both and (item.ended_in is not None or item.entry == above.entry)
        return tree

    def of_kind(self, kind: ItemKind) -> list[Item]:
        return [item for item in self.by_id.values() if item.kind == kind]

    def begin(self, item_id: str, what: str = "", **told: Any) -> Item:
        what = what or item_id
        self.close(what, "cancelled")
        at, entry, above = self.record.entry.at, self.record.entry.seq, self.by_id.get(told.get("parent") or "")
        depth = above.depth + 1 if above else 0
        told = {"status": "open", "text": ""} | told
        item = Item(id=item_id, entry=entry, depth=depth, started_at=at, opened_at=at, **told)
        self.by_id[item_id] = self.open[what] = item
        return item

    def go_on(self, item_id: str) -> None:
        """An item that has ended is open again."""
        if item_id in self.by_id and item_id not in self.open:
            item = self.open[item_id] = self.by_id[item_id]
            item.status = "waiting" if item.attempt == 0 else "open"
            item.ended_at, item.ended_in, item.error, item.outcome = None, None, None, ""
            item.again, item.opened_at, item.opened_in = item.again + 1, self.record.entry.at, self.record.entry.seq

    def close(self, what: str, status: ItemStatus, **told: Any) -> None:
        """What is a part of it, and is not over, is cancelled."""
        if item := self.open.pop(what, None):
            for name, value in told.items():
                setattr(item, name, value)
            item.status, item.ended_at, item.ended_in = status, self.record.entry.at, self.record.entry.seq
            self.closed.append(replace(item))
            for part in [name for name, one in self.open.items() if one.parent == item.id]:
                self.close(part, "cancelled")
