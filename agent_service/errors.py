"""Errors of the agent, by their remedy. Errors of both services are in groundwork/service/errors.py.

VersionMoved      another turn was faster: load and decide again
WakeConflict      the wake id names another request: choose another id
Damaged           one run's rows cannot be read: leave that run alone, the others go on
NewerVersion      a newer agent has moved the run on: leave it to agents of that version
Tampered          the rows are not what an agent wrote: as Damaged
LimitRefused      the caller asks for more than is granted: ask for less
OverQuota         the caller has to wait, or needs a larger quota
Stopped           an operator stopped everything: retried by itself after the resume
Leaving           this process ends: another one, or its next start, does the work
ArtifactReplaced  an artifact is not what its tool made: do not use it
ModelError        no reply from the model; `remedy` says how the run continues
"""

from typing import Literal

from groundwork.service.errors import TryAgain

Remedy = Literal["try_again", "hold", "shrink", "pause", "fail", "escalate"]
LEFT_ALONE = "is damaged and left alone"


class VersionMoved(Exception): ...


class WakeConflict(Exception):
    def __init__(self, wake_id: str, run_id: str) -> None:
        super().__init__(f"wake_id {wake_id!r} already names run {run_id}, with another request: use a new wake_id")
        self.run_id = run_id


class LimitRefused(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Damaged(ValueError):
    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(
            f"run {run_id} {LEFT_ALONE} ({what}); the others go on. Stop the agent, restore its database "
            "from a backup, and start it again"
        )
        self.run_id = run_id
        self.what = what


class Tampered(Damaged):
    def __str__(self) -> str:
        return f"{super().__str__()}. What was changed says `agentic verify {self.run_id}`"


class NewerVersion(TryAgain):
    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} was moved on by a newer version of the agent and is left alone here; agents of that version "
            "go on with it. Upgrade this one"
        )
        self.run_id = run_id


class Stopped(TryAgain): ...


class Leaving(Stopped): ...


class OverQuota(TryAgain):
    def __init__(self, message: str, which: str, delay_s: float) -> None:
        super().__init__(f"{message}: its quota {which} is used up", delay_s)
        self.which = which


class ArtifactReplaced(Exception):
    def __init__(self, run_id: str, path: str) -> None:
        super().__init__(f"{path} of run {run_id} is not what its tool made, by its SHA-256: somebody has replaced it")


class ModelError(Exception):
    def __init__(self, remedy: Remedy, error_class: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.remedy: Remedy = remedy
        self.error_class = error_class
        self.retry_after_s = retry_after_s
        self.lost: tuple[int, float | None] | None = None
        """Tokens and USD that the failed call may still have cost; None for nothing."""
