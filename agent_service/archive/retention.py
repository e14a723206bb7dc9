"""Retention of ended runs: settings, rules and tombstones. Pure."""

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, Field

from agent_service.core.waiting import FINAL, Status
from agent_service.sentences import instant
from groundwork.service.config_file import Section
from schemas.values import dataclass

LISTED = 1000

NonNegative = Annotated[int, Field(ge=0, lt=2**63)]
Kind = Literal["journal", "workspaces", "artifacts"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """`size`: bytes of its journal, about."""

    run_id: str
    status: Status
    version: int
    at: datetime
    size: int = 0


@dataclass(slots=True, kw_only=True)
class PruneReport:
    """Runs, and runs that lost only artifacts, by rule. `listed`: the first LISTED of them. `more`: the pass ran out
    of time. `trouble`: why files of deleted runs are still there."""

    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    listed: list[tuple[EndedRun, str]] = field(default_factory=list)
    more: bool = False
    trouble: str = ""

    def add(self, rule: str, runs: Sequence[EndedRun], *, artifacts_only: bool) -> None:
        if runs:
            counts = self.artifacts if artifacts_only else self.runs
            counts[rule] = counts.get(rule, 0) + len(runs)
            self.listed += [(run, rule) for run in runs[: LISTED - len(self.listed)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Stays of a deleted run, so that a repeated wake id starts no other. `last`: position of its newest entry in the
    journal of all runs. `rule`: the setting that deleted it."""

    run_id: str
    wake_id: str
    wake_digest: str
    status: Status
    last: NonNegative
    ended_at: AwareDatetime
    gone_at: AwareDatetime
    rule: str

    def __str__(self) -> str:
        return (
            f"run {self.run_id} is kept no longer: it ended as {self.status} at {instant(self.ended_at)} and went at "
            f"{instant(self.gone_at)} by {self.rule}, with its journal, its files and its artifacts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactTombstone:
    """Marks that the artifacts of a run were deleted, but not the run. `rule`: the setting that deleted them."""

    run_id: str
    gone_at: AwareDatetime
    rule: str

    def __str__(self) -> str:
        return (
            f"artifacts of run {self.run_id} are kept no longer: they went at {instant(self.gone_at)} by {self.rule}; "
            "its journal and its pages stayed"
        )


Days = Annotated[float, Field(gt=0, le=36_500)]
Gib = Annotated[float, Field(gt=0, le=1 << 20)]


class MaxGibSettings(Section):
    """GiB of a kind, beyond which the oldest ended runs are deleted. Null is no limit."""

    journal: Gib | None = None
    workspaces: Gib | None = None
    artifacts: Gib | None = None


class KeepRunsSettings(Section):
    """Days for which runs are kept after they ended so. Null keeps them for ever."""

    done_days: Days | None = None
    failed_days: Days | None = None
    cancelled_days: Days | None = None
    escalated_days: Days | None = None
    artifacts_days: Days | None = None
    max_gib: MaxGibSettings = MaxGibSettings.model_construct()

    @property
    def by_days(self) -> dict[str, tuple[timedelta, str]]:
        """Time to keep, and name of the rule, by final status or `artifacts`."""
        days = {what: getattr(self, f"{what}_days") for what in (*FINAL, "artifacts")}
        return {what: (timedelta(days=n), f"agent.keep_runs.{what}_days: {n:g}") for what, n in days.items() if n}

    @property
    def by_bytes(self) -> dict[Kind, tuple[int, str]]:
        """Bytes allowed, and name of the rule."""
        most = {kind: getattr(self.max_gib, kind) for kind in KINDS}
        return {kind: (int(n * 2**30), f"agent.keep_runs.max_gib.{kind}: {n:g}") for kind, n in most.items() if n}

    @property
    def delete_runs(self) -> bool:
        return bool(self.by_days or self.by_bytes)
