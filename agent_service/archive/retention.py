"""How long ended runs are kept: settings, rules, what is left of them, and the ports that deleting them needs. Pure."""

from dataclasses import field
from datetime import datetime, timedelta
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, Field

from agent_service.core.waiting import FINAL, Status
from groundwork.service.config_file import Section
from schemas.values import dataclass

LISTED = 1000

NonNegative = Annotated[int, Field(ge=0, lt=2**63)]
Kind = Literal["journal", "workspaces", "artifacts"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ExpiryCursor = tuple[datetime, str] | None
"""Where a search goes on: after the run that had its newest entry then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    run_id: str
    status: Status
    version: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What may be left of a deleted run: artifacts by path, and its folder unless only artifacts went."""

    run_id: str
    artifacts: tuple[str, ...]
    folder: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryFilter:
    """Runs that ended so, and had their newest entry before that; one that escalated, also before the other."""

    statuses: frozenset[Status]
    before: datetime
    escalated_before: datetime
    with_artifacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredBatch:
    rule: str
    runs: tuple[EndedRun, ...]
    artifacts: bool = False


@dataclass(slots=True, kw_only=True)
class PruneReport:
    """Runs deleted by rule, and artifacts alone; the first by name. `more`: out of time. `trouble`: why files stay."""

    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    listed: list[tuple[EndedRun, str]] = field(default_factory=list)
    more: bool = False
    trouble: str = ""

    def add(self, going: ExpiredBatch) -> None:
        of = self.artifacts if going.artifacts else self.runs
        of[going.rule] = of.get(going.rule, 0) + len(going.runs)
        self.listed += [(run, going.rule) for run in going.runs[: LISTED - len(self.listed)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is left of a deleted run: a repeated wake id names it, and begins no other.

    `last`: position of its newest entry in the journal of all runs. `rule`: the setting that deleted it.
    """

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
            f"run {self.run_id} is kept no longer: it ended as {self.status} at {_told(self.ended_at)} and went at "
            f"{_told(self.gone_at)} by {self.rule}, with its journal, its files and its artifacts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactTombstone:
    """The artifacts of a run that stays were deleted by the setting `rule`."""

    run_id: str
    gone_at: AwareDatetime
    rule: str

    def __str__(self) -> str:
        return (
            f"artifacts of run {self.run_id} are kept no longer: they went at {_told(self.gone_at)} by {self.rule}; "
            "its journal and its pages stayed"
        )


def _told(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


Days = Annotated[float, Field(gt=0, le=36_500)]
Gib = Annotated[float, Field(gt=0, le=1 << 20)]


class MaxGibSettings(Section):
    """How many GiB there may be of a kind; beyond that the oldest runs go that have ended. Null is no limit."""

    journal: Gib | None = None
    workspaces: Gib | None = None
    artifacts: Gib | None = None


class KeepRunsSettings(Section):
    """For how many days runs are kept that have ended so; for ever where that is null."""

    done_days: Days | None = None
    failed_days: Days | None = None
    cancelled_days: Days | None = None
    escalated_days: Days | None = None
    artifacts_days: Days | None = None
    max_gib: MaxGibSettings = MaxGibSettings.model_construct()

    @property
    def by_days(self) -> dict[str, tuple[timedelta, str]]:
        """By ending of runs, or `artifacts`: how long they are kept, and the name of the rule."""
        days = {what: getattr(self, f"{what}_days") for what in (*FINAL, "artifacts")}
        return {what: (timedelta(days=n), f"agent.keep_runs.{what}_days: {n:g}") for what, n in days.items() if n}

    @property
    def by_bytes(self) -> dict[Kind, tuple[int, str]]:
        """How much there may be of a kind, and the name of the rule."""
        most = {kind: getattr(self.max_gib, kind) for kind in KINDS}
        return {kind: (int(n * 2**30), f"agent.keep_runs.max_gib.{kind}: {n:g}") for kind, n in most.items() if n}

    @property
    def delete_runs(self) -> bool:
        """Whether any run, or its artifacts, are deleted."""
        return bool(self.by_days or self.by_bytes)
