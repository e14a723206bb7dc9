"""Items: what a run did and waited for, each from when until when.

    accepted · phase (a model call, or the plan that came along) · step > task > attempt · wait · person · ending

`items.Items` opens and closes them; `history.History` says when.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from agent_service.core.events import ModelReplied
from agent_service.core.facts import Decided, Name
from agent_service.core.phases import Phase
from agent_service.history.results import Execution
from agent_service.run.journal import Record
from schemas.events import ToolError

ItemKind = Literal["accepted", "phase", "step", "task", "attempt", "wait", "person", "ending"]
ItemStatus = Literal["ok", "open", "error", "refused", "waiting", "cancelled", "continuation"]
Outcome = Literal["", "ok", "error", "budget", "continuation", "late", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """`retryable`: whether it may be tried again."""

    error_class: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: ToolError | None) -> "Failure | None":
        if error is None:
            return None
        return cls(error_class=error.error_class, message=error.message, retryable=error.retryable)


@dataclass(slots=True, kw_only=True)
class Item:
    """`entry` is the one it began with, `ended_in` the one it ended with. `until`: when a wait, or the time for an
    answer, is over at the latest. Of a phase: the `reply` to its call, and what became of the decision in it.

    Of a step, a task and an attempt: `outcome` is how it ended, `summary` what it brought, `answered_in` the entry of
    the newest answer. A task that was asked for and not sent has no `started_at`.
    """

    id: str
    entry: int
    kind: ItemKind
    title: str
    text: str
    status: ItemStatus
    started_at: datetime | None
    ended_at: datetime | None = None
    ended_in: int = 0
    until: datetime | None = None
    parent: str | None = None
    depth: int = 0
    phase: Phase | None = None
    call: int | None = None
    model: str | None = None
    reply: ModelReplied | None = None
    decided: Decided | None = None
    error: Failure | None = None
    step: int | None = None
    task: str = ""
    round: int = 0
    attempt: int | None = None
    tool: str | None = None
    command: str | None = None
    outcome: Outcome = ""
    summary: str = ""
    execution: Execution | None = None
    query: str = ""
    reason: str = ""
    needs: tuple[str, ...] = ()
    answered_in: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    """Of a step and a task: arguments, route and who allowed it, as its first request was sent. Of a wait: `kind`, and
    `why` a run stopped.
    """
    opened_at: datetime | None = None
    opened_in: int = 0
    """When, and in which entry, it began, or went on after the run was reopened."""
    again: int = 0
    """How often it went on after its end."""

    @property
    def name(self) -> Name:
        return self.step or 0, self.task, self.round


def id_of(name: Name) -> str:
    step, task, asked_in = name
    return f"step:{step}:task:{task}:{asked_in}" if task else f"step:{step}"


def as_tree(items: Iterable[Item]) -> Iterator[Item]:
    """Each item followed by what is a part of it."""
    given = tuple(items)
    known, parts = {item.id for item in given}, defaultdict[str | None, list[Item]](list)
    for item in given:
        parts[item.parent if item.parent in known else None].append(item)

    def below(above: str | None) -> Iterator[Item]:
        for item in parts[above]:
            yield item
            yield from below(item.id)

    return below(None)


def depth_of(task: str) -> int:
    return task.count(".") + 1 if task else 0


class Items:
    """In the order in which they began. `open` has the open ones by what they are."""

    def __init__(self) -> None:
        self.open: dict[str, Item] = {}
        self.closed: list[Item] = []
        """Items as they were closed, until a reader takes them."""
        self.by_id: dict[str, Item] = {}

    def begin(self, what: str, record: Record, item_id: str, *, kind: ItemKind, **told: Any) -> Item:
        self.close(what, record, "cancelled")
        status: ItemStatus = "waiting" if kind == "wait" else "open"
        told |= {"started_at": record.at, "opened_at": record.at}
        item = Item(id=item_id, entry=record.entry.seq, kind=kind, status=status, **told)
        self.by_id.pop(item_id, None)
        self.by_id[item_id] = self.open[what] = item
        return item

    def go_on(self, what: str, record: Record, item_id: str) -> None:
        if item_id in self.by_id and what not in self.open:
            self.open[what] = self.by_id[item_id]
            again = self.open[what].again + 1
            told = {
                "status": "open",
                "ended_at": None,
                "ended_in": 0,
                "error": None,
                "outcome": "",
                "opened_at": record.at,
            }
            self.change(what, again=again, opened_in=record.entry.seq, **told)

    def close(self, what: str, record: Record, status: ItemStatus, **told: Any) -> None:
        if what in self.open:
            self.change(what, status=status, ended_at=record.at, ended_in=record.entry.seq, **told)
            self.closed.append(replace(self.open.pop(what)))

    def change(self, what: str, **told: Any) -> None:
        item = self.open[what]
        for name, value in told.items():
            setattr(item, name, value)
