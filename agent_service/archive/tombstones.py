"""What is left of a deleted run, and of deleted artifacts. A repeated wake id names the run, begins no other. Pure."""

from dataclasses import dataclass
from datetime import datetime

from agent_service.core.waiting import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """`last`: position of its newest entry in the journal of all runs. `rule`: the setting that deleted it."""

    run_id: str
    wake_id: str
    wake_digest: str
    status: Status
    last: int
    ended_at: datetime
    gone_at: datetime
    rule: str

    def __str__(self) -> str:
        return (
            f"run {self.run_id} is kept no longer: it ended as {self.status} at {_told(self.ended_at)} and went at "
            f"{_told(self.gone_at)} by {self.rule}, with its journal, its files and its artifacts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactsGone:
    """The artifacts of a run that stays were deleted by the setting `rule`."""

    run_id: str
    gone_at: datetime
    rule: str

    def __str__(self) -> str:
        return (
            f"artifacts of run {self.run_id} are kept no longer: they went at {_told(self.gone_at)} by {self.rule}; "
            "its journal and its pages stayed"
        )


def _told(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
