"""The section of the settings that says how long runs are kept that have ended."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import FINAL, Status
from agent_service.retention import Kind, LetterRules, Rules

Days = Annotated[float, Field(gt=0, le=36_500)]
Gib = Annotated[float, Field(gt=0, le=1 << 20)]


class MaxGibSettings(BaseModel):
    """How many GiB there may be of a kind; beyond that the oldest runs go that have ended. Null is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    journal: Gib | None = None
    """The database, as far as it holds something."""
    workspaces: Gib | None = None
    artifacts: Gib | None = None
    """In their bucket on the bus."""
    dead_letters: Gib | None = None
    """Beyond that the oldest letters go, and no run."""

    def most(self) -> Mapping[Kind, int]:
        gib: dict[Kind, float | None] = {
            "journal": self.journal,
            "workspaces": self.workspaces,
            "artifacts": self.artifacts,
        }
        return {kind: int(most * 2**30) for kind, most in gib.items() if most is not None}


class KeepRunsSettings(BaseModel):
    """For how many days runs are kept that have ended so; for ever where that is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    done_days: Days | None = None
    failed_days: Days | None = None
    cancelled_days: Days | None = None
    escalated_days: Days | None = None
    artifacts_days: Days | None = None
    """For how many days the artifacts are kept of a run that has ended."""
    dead_letters_days: Days | None = None
    """For how many days dead letters are kept; their stream keeps none for longer than 30."""
    max_gib: MaxGibSettings = MaxGibSettings()

    def rules(self) -> dict[Status, timedelta]:
        days = {status: getattr(self, f"{status.value}_days") for status in FINAL}
        return {status: timedelta(days=kept) for status, kept in days.items() if kept is not None}

    def retention(self, *, reopen_days: float) -> Rules:
        artifacts = timedelta(days=self.artifacts_days) if self.artifacts_days is not None else None
        return Rules(
            days=self.rules(), artifacts=artifacts, most=self.max_gib.most(), reopens=timedelta(days=reopen_days)
        )

    def letters(self) -> LetterRules:
        days, gib = self.dead_letters_days, self.max_gib.dead_letters
        kept = timedelta(days=days) if days is not None else None
        return LetterRules(kept=kept, most=int(gib * 2**30) if gib is not None else None)
