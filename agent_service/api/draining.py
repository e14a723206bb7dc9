"""The HTTP call that drains this process."""

from typing import Annotated

from fastapi import Depends

from agent_service.api.access import Caller
from agent_service.api.body import body_of
from agent_service.api.requests import DrainRequest
from agent_service.audit import by as told_by
from agent_service.draining import Draining
from agent_service.telling.view import View


class DrainView(View):
    """What is still in hand: model calls that are under way, of what may take `within_s`, in seconds."""

    draining: bool
    model_calls: int
    within_s: float


class DrainCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining

    async def drain(
        self, caller: Caller, request: Annotated[DrainRequest, Depends(body_of(DrainRequest))]
    ) -> DrainView:
        """Have this process end in good order: it takes nothing new, ends what it has in hand, and then itself.

        Model calls that are under way are waited for. What follows from them is left to another agent that shares the
        store, or to the next start.
        """
        self._draining.begin(request.within_s, by=told_by(caller, says=request.by))
        return self._view()

    async def show_drain(self) -> DrainView:
        """Whether this process is being drained, and what it still has in hand."""
        return self._view()

    def _view(self) -> DrainView:
        now = self._draining
        return DrainView(draining=now.begun, model_calls=now.thinking(), within_s=now.within_s)
