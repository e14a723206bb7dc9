"""The gateway's status on `ductile-gateway.status`, and the record that everything is stopped.

That record lies under HALT_KEY in the bucket LEASE_BUCKET. The agent writes it; a person may where no agent runs. While
`over` is false nothing is begun: no turn, no model call, no tool.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from schemas import subjects
from schemas.fields import Count, Instant, Round, Task, Text, ToolName, Wire


class Finding(Wire):
    """One thing that was looked at. `wrong`: calls cannot be carried out like this. Where all is well, no `remedy`."""

    name: Text
    mark: Literal["ok", "warning", "wrong"]
    text: Text
    remedy: Text = ""


class WaitingCall(Wire):
    """A call that waits outside of its tool, and why; `until`: then it is given up, unless it has begun."""

    run_id: Text
    step: int
    tool: Text
    attempt: int
    since: Instant
    until: Instant | None = None
    why: Text
    task: Task = None
    round: Round = None
    """Of a sub-request of the step."""


class GatewayStatus(Wire):
    """What was found, most important first. `version` is that of the gateway. `waiting`: the longest first, at most 50
    of those that have waited for more than a moment."""

    version: Text
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    waiting: tuple[WaitingCall, ...] = ()
    executor: ToolName | None = None
    """By this name it offers its tools."""
    gateway: Text = ""
    """Which of several that share a ledger says so; each of them answers. Empty where there can be only one."""
    gateways: Annotated[int, Field(ge=1)] = 1
    """How many there are, as far as it knows."""


class GatewayPruneRequest(Wire):
    """What a gateway is asked on `ductile-gateway.prune`: to have go what it keeps no longer, or only to say what."""

    dry_run: bool = False


class GatewayPruned(Wire):
    """How many of each kind went, or would go; the byte limits and days are settings of the gateway. `trouble`: why
    what is kept no longer is still there."""

    rows: dict[Text, Annotated[int, Field(ge=0)]]
    dry_run: bool = False
    trouble: Text = ""


SUBJECT = f"$KV.{subjects.LEASE_BUCKET}.{subjects.HALT_KEY}"
NOTHING = timedelta(0)
BY_HAND = 2**31
"""The number of a record that a person writes: higher than any that the agent knows, which then makes it its own."""


class Halt(Wire):
    """Somebody stopped everything. `number` counts from 1; `by` and `reason` are for people.

    `until`, `until_by`: when it was let go on, and by whom; null and empty while it was not. `over`: every run has been
    told so, and work goes on.
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
