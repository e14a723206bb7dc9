"""What lies between a gateway and the relay ingress of a Ductile, and loses events and answers."""

import asyncio
import json

import httpx2

from tests.ductile.calling import finished
from tests.ductile.under_test import DuctileUnderTest


class LossyWire(httpx2.AsyncBaseTransport):
    """The way to a relay ingress. `sent` is what was to go there.

    swallowed: so many of the first events never arrive. lost: the answers to so many of those that arrive do not come
    back, and not before their jobs have ended where it `waits`.
    """

    def __init__(self, ductile: DuctileUnderTest, *, swallowed: int = 0, lost: int = 0, waits: bool = True) -> None:
        self.sent: list[bytes] = []
        self.arrived = 0
        self._ductile = ductile
        self._swallowed, self._lost, self._waits = swallowed, lost, waits
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(await request.aread())
        if len(self.sent) <= self._swallowed:
            raise httpx2.ReadError("reset")
        answer = await self._network.handle_async_request(request)
        self.arrived += 1
        if self.arrived > self._lost:
            return answer
        job_id = json.loads(await answer.aread())["job_id"]
        if self._waits:
            await asyncio.to_thread(finished, self._ductile, job_id)
        raise httpx2.ReadError("reset")

    async def aclose(self) -> None:
        await self._network.aclose()
