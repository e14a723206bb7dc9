"""The items of a timeline, as the API shows them, and which of them are open."""

from typing import Any, Literal, Self

from pydantic import Field

from agent_service.core.phases import Phase
from agent_service.run.moments import Moment
from agent_service.telling.plain import OfRun, View
from schemas.events import ToolError
from schemas.fields import Instant

ItemKind = Literal["accepted", "phase", "step", "task", "attempt", "wait", "person", "ending"]
ItemStatus = Literal["ok", "open", "error", "refused", "waiting", "cancelled", "continuation"]


class ErrorView(View):
    """Why something failed. `retryable`: whether it may be tried again."""

    error_class: str = Field(alias="class")
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: ToolError | None) -> Self | None:
        if error is None:
            return None
        return cls(error_class=error.error_class, message=error.message, retryable=error.retryable)


class TokensView(View):
    """Of one model call. `cache_read` is the part of the input that came from the provider's cache."""

    input: int
    output: int
    cache_read: int


class TimelineItem(View):
    """One bar of the timeline. `entry` is the entry it began with; `until` is when a wait, or the time for an answer,
    is over at the latest; `parent` is the item that it is a part of, and `depth` how many of those there are above it.
    `task` and `round` are of a sub-request of a step, and of what belongs to it.

    A plan that came along with a framing or a reflection has no cost of its own: the call is told with the first.
    """

    id: str
    entry: int
    kind: ItemKind
    title: str
    text: str
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
    started_at: Instant
    ended_at: Instant | None = None
    tokens: TokensView | None = None
    cost_usd: float | None = None
    error: ErrorView | None = None
    until: Instant | None = None
    parent: str | None = None
    depth: int = 0


class TimelineView(OfRun):
    """`items` are in the order in which they began."""

    items: tuple[TimelineItem, ...]


class Items:
    """In the order in which they began. `open` has the ids of open ones by key."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self._items: dict[str, TimelineItem] = {}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def all(self) -> tuple[TimelineItem, ...]:
        return tuple(self._items.values())

    def begin(self, what: str, moment: Moment, item_id: str, *, kind: ItemKind, **told: Any) -> None:
        self.close(what, moment, "cancelled")
        status: ItemStatus = "waiting" if kind == "wait" else "open"
        entry = moment.entry
        item = TimelineItem(id=item_id, entry=entry.seq, kind=kind, status=status, started_at=entry.at, **told)
        self._items[item_id] = item
        self.open[what] = item_id

    def go_on(self, what: str, item_id: str) -> None:
        if item_id in self._items and what not in self.open:
            self.open[what] = item_id
            self.change(what, status="open", ended_at=None, error=None)

    def close(self, what: str, moment: Moment, status: ItemStatus, **told: Any) -> None:
        if what in self.open:
            self.change(what, status=status, ended_at=moment.entry.at, **told)
            del self.open[what]

    def change(self, what: str, **told: Any) -> None:
        item_id = self.open[what]
        self._items[item_id] = self._items[item_id].model_copy(update=told)
