"""The section of the settings that says how long runs are kept that have ended, where several agents share a store."""

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import FINAL, Status

Days = Annotated[float, Field(gt=0, le=36_500)]


class KeepRunsSettings(BaseModel):
    """For how many days runs are kept that have ended so; for ever where that is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    done_days: Days | None = None
    failed_days: Days | None = None
    cancelled_days: Days | None = None
    escalated_days: Days | None = None

    def rules(self) -> dict[Status, timedelta]:
        days = {status: getattr(self, f"{status.value}_days") for status in FINAL}
        return {status: timedelta(days=kept) for status, kept in days.items() if kept is not None}
