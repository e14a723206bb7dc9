"""The HTTP calls that stop everything, and let it go on."""

from typing import Annotated

from fastapi import Depends

from agent_service.api.access import Caller
from agent_service.api.body import body_of
from agent_service.api.requests import Nothing, StopRequest
from agent_service.api.switch import Switch, SwitchView


class StoppingCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def stop_all(
        self, caller: Caller, request: Annotated[StopRequest, Depends(body_of(StopRequest))]
    ) -> SwitchView:
        """Stop everything: no run begins, and no turn, model call or tool request, until somebody lets it go on.

        What is under way is not broken off, and its result is recorded. It holds through restarts, and is answered once
        it is durable.
        """
        return await self._switch.stop(request, by=caller)

    async def go_on(self, caller: Caller, request: Annotated[Nothing, Depends(body_of(Nothing))]) -> SwitchView:
        """Let everything go on from where it was. The time that has passed counts against no run."""
        return await self._switch.go_on(request, by=caller)
