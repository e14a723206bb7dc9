"""Whether a person has stopped everything, as the bus showed it last. A call that would begin waits in hand."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from ductile_gateway.calls.call import Asked
from groundwork.service.errors import TryAgain
from schemas.gateway_status import Finding
from schemas.halt import Halt

COME_BACK_S = 0.25


class Standstill:
    """Nothing is stopped before `show` says so."""

    def __init__(self) -> None:
        self._halt: Halt | None = None
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def why(self) -> str:
        """By whom and since when everything is stopped; empty while all goes on."""
        return str(self._halt) if self._halt and not self._halt.over else ""

    def show(self, halt: Halt | None) -> None:
        """What the bus shows now. A record that is gone changes nothing: nobody has said that it is over."""
        if halt is not None and halt != self._halt:
            self._halt = halt
            self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def over(self) -> None:
        """Returns when everything goes on. Raises TryAgain where that is waited for no longer."""
        while self.why:
            if self._closed:
                raise TryAgain(self.why, COME_BACK_S)
            await self._changed.wait()

    def check(self) -> None:
        """Raises TryAgain while everything is stopped."""
        if why := self.why:
            raise TryAgain(why, COME_BACK_S)

    def without_it(self, asked: Asked) -> Asked:
        request = asked.request
        stood = self._halt.stood_still(request.requested_at) if self._halt else timedelta(0)
        if request.deadline_at is None or not stood:
            return asked
        return replace(asked, request=request.model_copy(update={"deadline_at": request.deadline_at + stood}))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def look_at_standstill(standstill: Standstill) -> tuple[Finding, ...]:
    if not standstill.why:
        return ()
    remedy = "once that is settled: `agentic go-on`"
    return (Finding(name="gateway halt", mark="wrong", text=f"no call is begun: {standstill.why}", remedy=remedy),)
