"""The timeline of a run, as the API shows it."""

from typing import Self

from pydantic import Field

from agent_service.core.events import ModelUsage
from agent_service.core.phases import Phase
from agent_service.history.history import History
from agent_service.history.items import Failure, Item, ItemKind, ItemStatus
from agent_service.history.plain import OfRun, View, clipped
from schemas.fields import Instant


class ErrorView(View):
    """Why something failed. `retryable`: whether it may be tried again."""

    error_class: str = Field(alias="class")
    message: str
    retryable: bool

    @classmethod
    def of(cls, failure: Failure | None) -> Self | None:
        return cls.model_validate(failure, from_attributes=True) if failure else None


class TokensView(View):
    """Of one model call. `cache_read` is the part of the input that came from the provider's cache."""

    input: int
    output: int
    cache_read: int

    @classmethod
    def of(cls, usage: ModelUsage | None) -> Self | None:
        if usage is None:
            return None
        return cls(input=usage.input_tokens, output=usage.output_tokens, cache_read=usage.cache_read_tokens)


class TimelineItem(View):
    """One bar of the timeline. `entry` is the entry it began with, `ended_in` the one it ended with; `until` is when a
    wait, or the time for an answer, is over at the latest; `parent` is the item that it is a part of, and `depth` how
    many of those there are above it. `task` and `round` are of a sub-request of a step, and of what belongs to it. An
    attempt `repeats` its step or task where it says no more than that.

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
    ended_in: int | None = None
    tokens: TokensView | None = None
    cost_usd: float | None = None
    error: ErrorView | None = None
    until: Instant | None = None
    parent: str | None = None
    depth: int = 0
    repeats: bool = False


class TimelineView(OfRun):
    """Each of the `items` is followed by its parts, else they are in the order in which they began."""

    items: tuple[TimelineItem, ...]


LONGEST_TEXT = 500
_PLAIN = ("id", "entry", "kind", "title", "phase", "step", "tool", "command", "call", "model")
_TIMES = ("started_at", "ended_at", "until", "parent", "depth")


def timeline_view(run_id: str, history: History) -> TimelineView:
    items = tuple(_item(item, repeats=history.repeats(item)) for item in history.tree())
    return TimelineView(run_id=run_id, status=history.status, items=items)


def _item(item: Item, *, repeats: bool) -> TimelineItem:
    told = {name: getattr(item, name) for name in (*_PLAIN, *_TIMES)}
    paid = item.reply.usage if item.reply and item.decided and not item.decided.along else None
    return TimelineItem(
        **told,
        text=clipped(item.text, LONGEST_TEXT),
        status="open" if item.status == "waiting" and item.kind != "wait" else item.status,
        task=item.task or None,
        round=item.round or None,
        attempt=item.attempt if item.kind in ("attempt", "wait") else None,
        tokens=TokensView.of(paid),
        cost_usd=paid.cost_usd if paid else None,
        error=ErrorView.of(item.error) if item.status not in ("ok", "open", "continuation") else None,
        ended_in=item.ended_in or None,
        repeats=repeats,
    )
