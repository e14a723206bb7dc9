"""Whether everything stands still: the record that the agent and the gateway of a bus share.

It lies under HALT_KEY in the bucket LEASE_BUCKET. The agent writes it, and keeps its own copy in its store; a person
may write one where no agent runs. Who finds `over` false begins nothing: no turn, no model call, no tool.
"""

from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict

from schemas import subjects
from schemas.fields import Count, Instant, Text

SUBJECT = f"$KV.{subjects.LEASE_BUCKET}.{subjects.HALT_KEY}"
NOTHING = timedelta(0)
BY_HAND = 2**31
"""The number of a record that a person writes: higher than any that the agent knows, which then makes it its own."""


class Halt(BaseModel):
    """Somebody stopped everything. `number` counts from 1; `by` and `reason` are for people.

    `until`, `until_by`: when it was let go on, and by whom; null and empty while it was not. `over`: every run has been
    told so, and work goes on.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

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
