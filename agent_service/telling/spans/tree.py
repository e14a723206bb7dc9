"""The trace of a run as it grows: a span is handed out once all above it are over."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent_service.telling.spans import attributes
from agent_service.trust.identity import root_span_id, trace_id
from groundwork.telemetry import names
from groundwork.telemetry.span import Context, Event, Kind, Span, Value, span_id

TICK = timedelta(microseconds=1)
"""The root's length: Jaeger distrusts the clock of a shorter span outside its parent, and a span without length."""


@dataclass(slots=True, kw_only=True)
class Open:
    """`above` may be over; None for the root."""

    id: str
    name: str
    at: datetime
    above: "Open | None"
    kind: Kind = "internal"
    attributes: dict[str, Value]
    events: list[Event] = field(default_factory=list)
    links: tuple[Context, ...] = ()
    over: bool = False
    kept: list[Span] = field(default_factory=list)
    """Ended spans below it, which wait for its end."""


class Tree:
    """`everywhere`: attributes of each span."""

    def __init__(self, run_id: str, at: datetime, everywhere: dict[str, Value]) -> None:
        self._run_id = run_id
        self._everywhere = everywhere
        self._out: list[Span] = []
        self.root = Open(id=root_span_id(run_id), name="start_run", at=at, above=None, attributes=dict(everywhere))

    def open(self, what: str, name: str, at: datetime, above: Open | None = None, kind: Kind = "internal") -> Open:
        """`what` is unique in a run. Without `above` it belongs to the root."""
        identity = span_id(f"{self._run_id}:{what}")
        return Open(
            id=identity, name=name, at=at, above=above or self.root, kind=kind, attributes=dict(self._everywhere)
        )

    def close(self, span: Open, at: datetime, error: str | None = None) -> None:
        span.over = True
        if error:
            span.attributes[names.ERROR_TYPE] = error
        above = span.above
        while above and above.over:
            above = above.above
        shortest = span.at + (2 * TICK if span.above else TICK)
        ended = max(at, shortest, *(below.ended_at for below in span.kept))
        (above.kept if above else self._out).extend((self._closed(span, ended, error or None), *span.kept))
        span.kept.clear()

    def publish(self, subject: str, key: str, at: datetime, above: Open) -> None:
        """The span that the message's `traceparent` names."""
        about = self._everywhere | attributes.publish(subject, key, self._run_id)
        sent = Open(id=span_id(key), name=f"publish {subject}", at=at, above=above, kind="producer", attributes=about)
        self.close(sent, at)

    def taken(self) -> list[Span]:
        out, self._out = self._out, []
        return out

    def _closed(self, span: Open, ended: datetime, error: str | None) -> Span:
        return Span(
            trace_id=trace_id(self._run_id),
            span_id=span.id,
            parent_id=span.above.id if span.above else None,
            name=span.name,
            kind=span.kind,
            started_at=span.at,
            ended_at=ended,
            attributes=span.attributes,
            events=tuple(span.events),
            links=span.links,
            error=error,
        )
