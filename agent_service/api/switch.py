"""Stopping everything, and letting it go on, whatever it is asked over. All methods raise TryAgain."""

from agent_service.api.requests import Nothing, StopRequest
from agent_service.audit import by as told_by
from agent_service.halting import Halting
from agent_service.telling.view import View
from schemas.fields import Instant
from schemas.halt import Halt


class SwitchView(View):
    """Whether everything is stopped: by whom, since when and why. Empty, and null, while all goes on."""

    stopped: bool
    by: str
    since: Instant | None
    reason: str


class Switch:
    """`by`: what is known of the caller; what it says itself is added."""

    def __init__(self, halting: Halting) -> None:
        self._halting = halting

    async def stop(self, request: StopRequest, *, by: str) -> SwitchView:
        """Answers once it is durable, and again when it is repeated: the first stop counts."""
        return _view(await self._halting.stop(by=told_by(by, says=request.by), reason=request.reason or ""))

    async def go_on(self, request: Nothing, *, by: str) -> SwitchView:
        """Answers once everything goes on, and where nothing was stopped."""
        return _view(await self._halting.go_on(by=told_by(by, says=request.by)))


def _view(halt: Halt | None) -> SwitchView:
    if halt is None or halt.over:
        return SwitchView(stopped=False, by="", since=None, reason="")
    return SwitchView(stopped=True, by=halt.by, since=halt.since, reason=halt.reason)
