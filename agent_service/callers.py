"""Those who ask for runs, as quotas know them: by a name, such as `token ci` or `bus user ann of SHOP`."""

from dataclasses import dataclass

from agent_service.core.state import RunState

BUS = "bus"
"""How the names of senders on the bus begin, and the name of those whom NATS does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one caller may ask for; null is no bound. `bytes_per_day` is of what the journal keeps of its wakes."""

    wakes_per_minute: int | None = None
    open_runs: int | None = None
    bytes_per_day: int | None = None
    usd_per_day: float | None = None


UNBOUNDED = Quota()


def opened(before: RunState | None, after: RunState) -> int:
    """By how many the caller of the run has more open runs now. What a run started is nobody's wake."""
    if not after.brief.caller or after.brief.as_step:
        return 0
    was_open = before is not None and not before.final
    return (not after.final) - was_open


def of_token(name: str | None) -> str:
    """The caller that has a token; empty, which has no quota, where the API has none."""
    return f"token {name}" if name else ""
