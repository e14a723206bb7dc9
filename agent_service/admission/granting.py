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
    defaults, asked = policy.defaults, constraints
    check_caps(policy, asked, at=at)
    _check_context(policy.cap_context_bytes, context)
    steps = asked.max_loops or asked.max_steps or _steps_in(context, policy.cap_steps) or defaults.max_steps
    return replace(
        defaults,
        max_steps=steps,
        max_reframes=defaults.max_reframes if asked.max_reframes is None else asked.max_reframes,
        max_tokens=asked.max_tokens or _smaller(policy.cap_tokens, defaults.max_tokens),
        max_cost_usd=asked.max_cost_usd or _smaller(policy.cap_cost_usd, defaults.max_cost_usd),
        deadline_at=asked.deadline_at or at + timedelta(seconds=policy.wall_clock_s),
        deadline_named=asked.deadline_at is not None,
    )


def check_caps(policy: LimitPolicy, constraints: Constraints, *, at: datetime) -> None:
    """Raises LimitRefused for a constraint over its cap, or a past deadline."""
    caps = {"max_loops": policy.cap_steps, "max_steps": policy.cap_steps, "max_reframes": policy.cap_reframes}
    for name, cap in (caps | {"max_tokens": policy.cap_tokens, "max_cost_usd": policy.cap_cost_usd}).items():
        _check(getattr(constraints, name), cap, f"constraints.{name}")
    deadline, latest = constraints.deadline_at, at + timedelta(seconds=policy.cap_wall_clock_s)
    if deadline and deadline <= at:
        raise LimitRefused("constraints.deadline_at", f"has passed: it is {at:%Y-%m-%dT%H:%M:%SZ} now")
    if deadline and deadline > latest:
        raise LimitRefused("constraints.deadline_at", f"is after {latest:%Y-%m-%dT%H:%M:%SZ}, the latest granted here")


def _check(asked: float | None, cap: float | None, field: str) -> None:
    if asked is not None and cap is not None and asked > cap:
        raise LimitRefused(field, f"is {asked}, and this service grants at most {cap}")


def _steps_in(context: dict[str, JsonValue], cap: int) -> int | None:
    asked = context.get("max_steps")
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise LimitRefused("context.max_steps", "must be a whole number of at least 1")
    _check(asked, cap, "context.max_steps")
    return asked


def _check_context(cap: int, context: dict[str, JsonValue]) -> None:
    size = len(json.dumps(context, ensure_ascii=False, separators=(",", ":")).encode())
    if size > cap:
        raise LimitRefused("context", f"is {size} bytes as JSON, and this service takes at most {cap}")


def _smaller(cap: N | None, default: N | None) -> N | None:
    return min((most for most in (cap, default) if most is not None), default=None)
