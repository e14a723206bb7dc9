"""One request to a Ductile that was to start a call, as it turned out: for whoever looks on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ductile_gateway.calls.call import ToolCall
from ductile_gateway.ductile.answers import DuctileRefused, Lost, NotSent
from ductile_gateway.ductile.starts import Starts
from ductile_gateway.ports import Clock

ACCEPTED = 202
Fate = Literal["accepted", "refused", "not_sent", "lost"]
"""`lost`: it was sent, and no answer says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`path`: that of the URL. `status`: of Ductile's answer, where it gave one of its own."""

    path: str
    began_at: datetime
    ended_at: datetime
    fate: Fate
    status: int | None = None
    job_id: str | None = None


ToldOfSent = Callable[[ToolCall, Sent], None]
"""Returns at once and raises nothing."""


def untold(call: ToolCall, sent: Sent) -> None:
    """Nobody looks on."""


async def start_told(starts: Starts, call: ToolCall, *, told: ToldOfSent, clock: Clock) -> str:
    """Start the call; the id of its job. `told` is told how that went. Raises as Starts.start."""
    began_at = clock.now()

    def tell(fate: Fate, *, status: int | None = None, job_id: str | None = None) -> None:
        ended_at, path = clock.now(), starts.path(call)
        told(call, Sent(path=path, began_at=began_at, ended_at=ended_at, fate=fate, status=status, job_id=job_id))

    try:
        job_id = await starts.start(call)
    except NotSent:
        tell("not_sent")
        raise
    except DuctileRefused as refusal:
        tell("refused", status=refusal.status or None)
        raise
    except Lost:
        tell("lost")
        raise
    tell("accepted", status=ACCEPTED, job_id=job_id)
    return job_id
