"""What a run is granted of what its caller asks for: the operator's defaults, within his caps."""

import json
from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import JsonValue

from agent_service.core.brief import Limits
from schemas.events import Constraints
from schemas.values import dataclass, replace

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """The operator's defaults and hard caps. `defaults.deadline_at` is replaced by acceptance + `wall_clock_s`."""

    defaults: Limits
    wall_clock_s: float = 3600.0
    cap_steps: int = 20
    cap_reframes: int = 10
    cap_wall_clock_s: float = 30 * 86400.0
    cap_tokens: int | None = None
    cap_cost_usd: float | None = None
    cap_context_bytes: int = 64 * 1024
    """In bytes, as compact JSON."""


class LimitRefused(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def grant(policy: LimitPolicy, constraints: Constraints, *, context: dict[str, JsonValue], at: datetime) -> Limits:
    """Raises LimitRefused. RFC-103 lets `max_steps` come with the context too; the constraints win."""
    defaults = policy.defaults
    check_caps(policy, constraints, at=at)
    _check_context(policy.cap_context_bytes, context)
    return replace(
        defaults,
        max_steps=_steps(policy, constraints, context) or defaults.max_steps,
        max_reframes=_or(constraints.max_reframes, defaults.max_reframes),
        max_tokens=constraints.max_tokens or _smaller(policy.cap_tokens, defaults.max_tokens),
        max_cost_usd=constraints.max_cost_usd or _smaller(policy.cap_cost_usd, defaults.max_cost_usd),
        deadline_at=constraints.deadline_at or at + timedelta(seconds=policy.wall_clock_s),
        deadline_named=constraints.deadline_at is not None,
    )


def check_caps(policy: LimitPolicy, constraints: Constraints, *, at: datetime) -> None:
    """Raises LimitRefused for a constraint over its cap, or a past deadline."""
    _steps(policy, constraints, {})
    _within(policy.cap_reframes, constraints.max_reframes, "constraints.max_reframes")
    _within(policy.cap_tokens, constraints.max_tokens, "constraints.max_tokens")
    _within(policy.cap_cost_usd, constraints.max_cost_usd, "constraints.max_cost_usd")
    _check_deadline(policy, constraints.deadline_at, at)


def _steps(policy: LimitPolicy, constraints: Constraints, context: dict[str, JsonValue]) -> int | None:
    for field in ("max_loops", "max_steps"):
        asked: int | None = getattr(constraints, field)
        if asked is not None:
            return _within(policy.cap_steps, asked, f"constraints.{field}")
    from_context = context.get("max_steps")
    if from_context is None:
        return None
    if isinstance(from_context, bool) or not isinstance(from_context, int) or from_context < 1:
        raise LimitRefused("context.max_steps", "must be a whole number of at least 1")
    return _within(policy.cap_steps, from_context, "context.max_steps")


def _within(cap: N | None, asked: N | None, field: str) -> N | None:
    if asked is not None and cap is not None and asked > cap:
        raise LimitRefused(field, f"is {asked}, and this service grants at most {cap}")
    return asked


def _or(asked: int | None, default: int) -> int:
    return default if asked is None else asked


def _check_context(cap: int, context: dict[str, JsonValue]) -> None:
    size = len(json.dumps(context, ensure_ascii=False, separators=(",", ":")).encode())
    if size > cap:
        raise LimitRefused("context", f"is {size} bytes as JSON, and this service takes at most {cap}")


def _smaller(cap: N | None, default: N | None) -> N | None:
    return default if cap is None else cap if default is None else min(cap, default)


def _check_deadline(policy: LimitPolicy, asked: datetime | None, at: datetime) -> None:
    if asked is None:
        return
    if asked <= at:
        raise LimitRefused("constraints.deadline_at", f"has passed: it is {at:%Y-%m-%dT%H:%M:%SZ} now")
    latest = at + timedelta(seconds=policy.cap_wall_clock_s)
    if asked > latest:
        raise LimitRefused("constraints.deadline_at", f"is after {latest:%Y-%m-%dT%H:%M:%SZ}, the latest granted here")
