"""What is left of a run that is kept no longer: that it was, what became of it, and when it went by which rule. Pure.

A tombstone is sealed as the run's row was. It keeps the run's place in the journal of all runs, by which the store is
held against its anchors, and the name that its caller gave it: a wake that is asked again names this run, and begins no
other.
"""

from dataclasses import dataclass
from datetime import datetime

from agent_service.core.waiting import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Of one run. It had `version` entries, of which the newest has the hash `head` (hex); they stood between the
    positions `first` and `last` of the journal of all runs. `rule`: the setting by which it went."""

    run_id: str
    wake_id: str
    wake_digest: str
    status: Status
    version: int
    head: str
    first: int
    last: int
    ended_at: datetime
    gone_at: datetime
    rule: str
    seal: str | None = None

    def parts(self) -> tuple[str, ...]:
        """What its seal is over."""
        numbers = (str(number) for number in (self.version, self.first, self.last))
        instants = (at.isoformat() for at in (self.ended_at, self.gone_at))
        return self.run_id, self.wake_id, self.wake_digest, self.status, self.head, *numbers, *instants, self.rule

    def __str__(self) -> str:
        return (
            f"run {self.run_id} is kept no longer: it ended as {self.status} at {_told(self.ended_at)} and went at "
            f"{_told(self.gone_at)} by {self.rule}, with its journal, its files and its artifacts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactsGone:
    """Of a run that is here: when its artifacts went, and by which setting."""

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
