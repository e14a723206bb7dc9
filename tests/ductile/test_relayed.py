"""Calls that reach a Ductile as signed events."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import NeverStarted
from tests.ductile.running import QUICK, a_call, gateway, outcome, ran
from tests.ductile.under_test import DuctileUnderTest, finished
from tests.kit.waiting import beside, until

ROUTE = "keep-note"
SELDOM = replace(QUICK, again_first_s=15)


def by_events(ductile: DuctileUnderTest, kind: str = "probe.asked", **changed: Any) -> dict[str, Any]:
    """Settings of a route that is called by events of this type; the probe listens to `probe.asked`."""
    peer = ductile.peer
    known = {"peer": peer.name, "key_id": peer.key_id, "secret": peer.secret, "routes": {ROUTE: kind}}
    return known | changed


class LossyWire(httpx2.AsyncBaseTransport):
    """The network to a Ductile, with faults on the way to its relay ingress. swallowed: number of first events that
    never arrive. lost: number of arrived events whose answers are dropped, after their jobs have ended."""

    def __init__(self, ductile: DuctileUnderTest, *, swallowed: int = 0, lost: int = 0) -> None:
        self.sent: list[bytes] = []
        self.arrived = 0
        self._ductile = ductile
        self._swallowed, self._lost = swallowed, lost
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != self._ductile.peer.path:
            return await self._network.handle_async_request(request)
        self.sent.append(await request.aread())
        if len(self.sent) <= self._swallowed:
            raise httpx2.ReadError("reset")
        answer = await self._network.handle_async_request(request)
        self.arrived += 1
        if self.arrived > self._lost:
            return answer
        job_id = json.loads(await answer.aread())["job_id"]
        await asyncio.to_thread(finished, self._ductile, job_id)
        raise httpx2.ReadError("reset")

    async def aclose(self) -> None:
        await self._network.aclose()


async def test_an_event_carries_the_call_and_is_sent_again_until_its_job_is_known(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    wire, call = LossyWire(shared, lost=1), a_call("handle", plugin=ROUTE, text="Grüße")
    async with gateway(shared, tmp_path, relay=by_events(shared), transport=wire) as runner:
        found = outcome(await runner.run(call))
        assert outcome(await runner.resume(call)).status == "ok"
    run_id, step, tool, attempt = call.key.split(":")
    belongs = {"run_id": run_id, "step": int(step), "tool": tool, "attempt": int(attempt)}
    assert (found.status, found.text) == ("ok", "done")
    assert found.output == {"payload": {"text": "Grüße", "agentic_call_id": call.key} | belongs}
    assert (len(wire.sent), len(set(wire.sent)), len(ran(shared, call))) == (2, 1, 1)


@pytest.mark.parametrize("arrives", [True, False])
async def test_the_next_gateway_sends_the_event_of_one_that_ended_before_the_answer(
    shared: DuctileUnderTest, tmp_path: Path, arrives: bool
) -> None:
    wire = LossyWire(shared, lost=9) if arrives else LossyWire(shared, swallowed=9)
    call = a_call("handle", plugin=ROUTE)
    first = gateway(shared, tmp_path, timing=SELDOM, relay=by_events(shared), transport=wire)
    async with first as runner, beside(runner.run(call)):
        await until(lambda: ran(shared, call) if arrives else wire.sent)
    for one in ran(shared, call):
        await asyncio.to_thread(finished, shared, one.job_id)
    next_wire = LossyWire(shared)
    async with gateway(shared, tmp_path, relay=by_events(shared), transport=next_wire) as runner:
        assert outcome(await runner.resume(call)).status == "ok"
    assert (next_wire.sent, len(ran(shared, call))) == (wire.sent, 1)


REFUSALS: list[tuple[str, dict[str, str], int, str, str]] = [
    ("probe.unheard", {}, 1, "configuration", "no pipeline listens to probe.unheard"),
    ("probe.asked", {"secret": "another-one-altogether"}, 1, "configuration", "403: 'forbidden'"),
    ("probe.asked", {"key_id": "v9"}, 1, "configuration", "403: 'relay key id mismatch'"),
    ("probe.asked", {"peer": "nobody"}, 1, "configuration", "403: 'unknown relay peer'"),
    ("probe.secret", {}, 1, "configuration", "422: 'event type not allowed for peer'"),
    ("probe.asked", {}, 300_000, "invalid_arguments", "413: 'relay payload too large'"),
]


async def test_an_event_that_ductile_refuses_has_not_started_and_says_what_is_wrong(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    for kind, changed, size, error_class, why in REFUSALS:
        call = a_call("handle", plugin=ROUTE, text="x" * size)
        async with gateway(shared, tmp_path, relay=by_events(shared, kind, **changed)) as runner:
            found = outcome(await runner.run(call))
            assert await runner.resume(call) == NeverStarted()
        assert (found.error_class, found.retryable, why in (found.message or "")) == (error_class, False, True), found
        assert not ran(shared, call)
