"""Limits granted to a run: the request of its caller, within the operator's caps and over his defaults."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta

from pydantic import JsonValue

from agent_service.core.brief import Limits
from schemas.events import Constraints
from schemas.values import dataclass, replace

LATEST = timedelta(days=30)
"""Latest deadline, counted from acceptance."""
CAPS: Mapping[str, float] = {"max_loops": 20, "max_steps": 20, "max_reframes": 10}
"""Default caps, by constraint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """The deadline of `defaults` is replaced by acceptance + `wall_clock_s`. `cap_context_bytes`: as compact JSON."""

    defaults: Limits
    wall_clock_s: float = 3600.0
    caps: Mapping[str, float] = field(default_factory=lambda: CAPS)
    cap_context_bytes: int = 64 * 1024


class LimitRefused(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def grant(policy: LimitPolicy, constraints: Constraints, *, context: dict[str, JsonValue], at: datetime) -> Limits:
    """Raises LimitRefused. RFC-103 allows `max_steps` in the context too; the constraints win."""
    check_caps(policy, constraints, at=at)
    size = len(json.dumps(context, ensure_ascii=False, separators=(",", ":")).encode())
    if size > policy.cap_context_bytes:
        raise LimitRefused("context", f"is {size} bytes as JSON; at most {policy.cap_context_bytes} are taken")
    asked = constraints.model_dump(include={"max_reframes", "max_tokens", "max_cost_usd"}, exclude_none=True)
    if steps := constraints.steps or _steps_in(context, policy.caps):
        asked["max_steps"] = steps
    deadline = constraints.deadline_at
    return replace(
        policy.defaults,
        **asked,
        deadline_at=deadline or at + timedelta(seconds=policy.wall_clock_s),
        deadline_named=deadline is not None,
    )


def check_caps(policy: LimitPolicy, constraints: Constraints, *, at: datetime) -> None:
    """Raises LimitRefused for a constraint above its cap, or a past deadline."""
    for name, cap in policy.caps.items():
        if (asked := getattr(constraints, name)) is not None and asked > cap:
            raise LimitRefused(f"constraints.{name}", f"is {asked}, and this service grants at most {cap}")
    deadline, latest = constraints.deadline_at, at + LATEST
    if deadline and deadline <= at:
        raise LimitRefused("constraints.deadline_at", f"has passed: it is {at:%Y-%m-%dT%H:%M:%SZ} now")
    if deadline and deadline > latest:
        raise LimitRefused("constraints.deadline_at", f"is after {latest:%Y-%m-%dT%H:%M:%SZ}, the latest granted here")


def _steps_in(context: dict[str, JsonValue], caps: Mapping[str, float]) -> int | None:
    asked = context.get("max_steps")
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise LimitRefused("context.max_steps", "must be a whole number of at least 1")
    if asked > caps["max_steps"]:
        raise LimitRefused("context.max_steps", f"is {asked}, and this service grants at most {caps['max_steps']}")
    return asked
