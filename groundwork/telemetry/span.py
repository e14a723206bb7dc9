"""A finished span as data, and the choice of the traces that are kept. Ids are hex digits: 32 of a trace, 16 of a span.

Sampling depends on the lower 64 bits of the trace id, as in the SDK, so that all services decide alike.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Literal

Kind = Literal["internal", "client"]
Value = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, Value]

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class Context:
    """Position in a trace, as a message carries it."""

    trace_id: str
    span_id: str
    sampled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`error` describes a failure; None for success."""

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
    """Id of the span with this unique name: the same whenever it is sent."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def context_of(traceparent: str | None) -> Context | None:
    """Context of a W3C `traceparent`; None if it is invalid, and must be ignored."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if not found:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    unlawful = version == "ff" or (version == "00" and more)
    if unlawful or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return Context(trace_id, parent_id, sampled=bool(int(flags, 16) & _SAMPLED))


Sampler = Callable[[str], bool]
"""True if the trace with this id is kept."""

_SHARES = {"always_on": "1", "always_off": "0"}


def sampler(environ: Mapping[str, str] = os.environ) -> Sampler:
    """Sampler of the environment; keeps every trace if that has none or an invalid one."""
    name = environ.get("OTEL_TRACES_SAMPLER", "always_on").strip().lower().removeprefix("parentbased_")
    said = environ.get("OTEL_TRACES_SAMPLER_ARG", "") if name == "traceidratio" else _SHARES.get(name, "1")
    try:
        share = float(said)
    except ValueError:
        share = 1.0
    bound = round(share * 2**64) if 0 <= share <= 1 else 2**64
    return lru_cache(maxsize=4096)(lambda trace_id: int(trace_id[16:], 16) < bound)
