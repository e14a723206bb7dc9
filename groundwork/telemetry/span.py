"""A span as data, told when it is over; `traces` sends it. Ids are hex digits: 32 of a trace, 16 of a span."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Kind = Literal["internal", "client"]
Value = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, Value]

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class Context:
    """A place in a trace, such as a message brings along."""

    trace_id: str
    span_id: str
    sampled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span that has ended. `error` describes a failure; None is none."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: Kind = "internal"
    started_at: datetime
    ended_at: datetime
    attributes: Attributes = field(default_factory=dict)
    links: tuple[Context, ...] = ()
    error: str | None = None


def span_id(name: str) -> str:
    """The id of the span with this unique readable name: the same whenever it is told."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def context_of(traceparent: str | None) -> Context | None:
    """The place that a `traceparent` names; None for one that is not of the W3C form, which is to be ignored."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if not found:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    unlawful = version == "ff" or (version == "00" and more)
    if unlawful or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return Context(trace_id, parent_id, sampled=bool(int(flags, 16) & _SAMPLED))
