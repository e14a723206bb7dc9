"""The gateway's status on `ductile-gateway.status`, and the kill switch's record.

The record is stored under HALT_KEY in the bucket LEASE_BUCKET. The agent writes it, or a person where no agent runs.
While `over` is false nothing starts: no turn, no model call, no tool.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from schemas import subjects
from schemas.fields import Count, Instant, Round, Task, Text, ToolName, Wire


class Finding(Wire):
    """One check. `wrong`: calls cannot be carried out. `remedy` is empty if all is well."""

    name: Text
    mark: Literal["ok", "warning", "wrong"]
    text: Text
    remedy: Text = ""


def counted(number: int, things: str) -> str:
    """`0 runs`, `1 run`, `1 entry`."""
    one = f"{things[:-3]}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{number} {one if number == 1 else things}"


class WaitingCall(Wire):
    """A call that waits for its tool to start. It is given up at `until`."""

    run_id: Text
    step: int
    tool: Text
    attempt: int
    since: Instant
    until: Instant | None = None
    why: Text
    task: Task = None
    round: Round = None
    """`task` and `round` name a sub-request of the step."""


class GatewayStatus(Wire):
    """Findings, most important first. `version`: that of the gateway. `waiting`: at most 50 calls that have waited for
    more than a moment, longest first."""

    version: Text
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    waiting: tuple[WaitingCall, ...] = ()
    executor: ToolName | None = None
    """The name under which it offers its tools."""
    gateway: Text = ""
    """Id among the gateways that share a ledger: each answers. Empty if there can be only one."""
    gateways: Annotated[int, Field(ge=1)] = 1
    """Number of gateways that it knows of."""


class GatewayPruneRequest(Wire):
    """The request on `ductile-gateway.prune`: deletes expired data, or with `dry_run` only counts it."""

    dry_run: bool = False


class GatewayPruned(Wire):
    """Deleted rows by kind, or those that would be. The gateway's settings set sizes and days. `trouble`: the reason
    why expired data is still there."""

    rows: dict[Text, Annotated[int, Field(ge=0)]]
    dry_run: bool = False
    trouble: Text = ""


SUBJECT = f"$KV.{subjects.LEASE_BUCKET}.{subjects.HALT_KEY}"
NOTHING = timedelta(0)
BY_HAND = 2**31
"""`number` of a record that a person writes: higher than any of the agent's, which then adopts the record."""


class Halt(Wire):
    """A stop of all runs. `number` counts from 1; `by` and `reason` are for people.

    `until`, `until_by`: instant and author of the resumption; null and empty before it. `over`: every run knows of the
    resumption, and work goes on.
    """

    number: Count = BY_HAND
    since: Instant
    by: Text = "somebody"
    reason: str = ""
    until: Instant | None = None
    until_by: str = ""
    over: bool = False

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"everything is stopped by {self.by} since {self.since:%Y-%m-%dT%H:%M:%SZ}{why}"

    def stood_still(self, since: datetime) -> timedelta:
        return max(NOTHING, self.until - max(since, self.since)) if self.over and self.until else NOTHING
