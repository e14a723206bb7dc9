"""Calls in a Ductile: of its API, and by signed events; and endings of runs that reach its pipelines."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import CALL_ID, NeverStarted, Verdict
from ductile_gateway.ductile.api import open_relay_ingress
from ductile_gateway.webhooks.notifications import Notification, Try, notifications_of
from ductile_gateway.webhooks.outbound import Outbound
from ductile_gateway.webhooks.sender import WebhookSender, open_sender
from ductile_gateway.webhooks.settings import OutboundSettings, RelaySettings
from groundwork.service.machine import utc_now
from schemas.continuation import Retrieve
from tests.ductile.fake import FakeDuctile
from tests.ductile.running import OF_A_PIPELINE, PIPELINE, QUICK, a_call, gateway, outcome, ran
from tests.ductile.under_test import DuctileUnderTest, finished
from tests.gateway.outbound.kit import Town, an_event, read
from tests.gateway.parts import RUN
from tests.kit.waiting import beside, until
from tests.ledger.kit import embedded

ASKS = {"action": "retrieve", "query": "what may be relaxed?"}
PLUGINS = ("probe", PIPELINE)
ENDINGS: list[tuple[str, str, dict[str, Any], str, str, int]] = [
    ("probe", "look", {"text": "Grüße"}, "ok", "done", 1),
    ("probe", "note", {CALL_ID: "run_of_another:1:probe:1"}, "ok", "done", 1),
    (PIPELINE, "handle", {}, "ok", "done", 1),
    ("probe", "note", {"do": "refuse"}, "invalid_arguments", "as you wish", 1),
    ("probe", "note", {"do": "stumble"}, "tool_error", "as you wish", 4),
    ("probe", "note", {"do": "garbage"}, "bad_output", "", 4),
    ("probe", "note", {"do": "silence"}, "bad_output", "", 4),
    ("probe", "note", {"do": "flood"}, "bad_output", "exceeded max size", 4),
    *((plugin, "handle", {"do": "say", "says": {"continuation": ASKS}}, "continuation", "", 1) for plugin in PLUGINS),
    ("probe", "note", {"do": "say", "says": {"continuation": {"action": "retrieve"}}}, "bad_output", "query is mis", 1),
    (
        *("probe", "note", {"do": "say", "says": {"status": "continuation", "continuation": ASKS}}),
        *("bad_output", "invalid status value", 4),
    ),
    ("probe", "vanish", {}, "configuration", "", 0),
    ("probe", "../x", {}, "configuration", "", 0),
    ("a?b", "note", {}, "configuration", "", 0),
]
"""Plugin, command, payload; status or class of error, text, and number of executions."""


async def test_each_call_ends_as_its_plugin_did_and_is_run_once_with_its_id(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    calls = [a_call(command, plugin=plugin, within_s=60, **payload) for plugin, command, payload, *_ in ENDINGS]
    async with gateway(shared, tmp_path, tools=OF_A_PIPELINE) as runner:
        verdicts = await asyncio.gather(*(runner.run(call) for call in calls))
        forgotten = [await runner.resume(call) for call in calls if not ran(shared, call)]
    for call, verdict, (plugin, _, payload, status, said, times) in zip(calls, verdicts, ENDINGS, strict=True):
        found, executions = outcome(verdict), ran(shared, call)
        assert (found.error_class or found.status) == status, found
        assert said in (found.message or found.text), found
        assert not found.retryable
        assert found.continuation == (Retrieve.model_validate(ASKS) if status == "continuation" else None)
        assert times == len(executions), found
        assert not executions or found.job.job_id == executions[0].job_id
        if times > 0:
            assert (found.job.attempts, found.job.was_rerun) == (times, times > 1), found
        if status == "ok":
            assert found.output == {"payload": {**payload, CALL_ID: call.key}}, plugin
    assert forgotten == [NeverStarted()] * 3


async def test_a_job_that_outlives_its_call_is_told_once_by_the_next_gateway(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call(within_s=1.5, do="hold", until=str(tmp_path / "gate"))
    async with gateway(shared, tmp_path) as runner:
        assert outcome(await runner.run(call)).error_class == "timeout"
        assert len(runner.several.findings()) == 1
    told: list[tuple[str, Verdict]] = []

    async def take(key: str, verdict: Verdict) -> bool:
        told.append((key, verdict))
        return True

    for _ in range(2):
        async with gateway(shared, tmp_path) as runner, beside(runner.several.follow_late(take)):
            (tmp_path / "gate").touch()
            await until(lambda runner=runner: not runner.several.findings())  # type: ignore[misc]
    ((key, verdict),) = told
    assert (key, outcome(verdict).status, len(ran(shared, call))) == (call.key, "ok", 1)


async def test_a_job_that_ductile_ran_again_after_it_was_killed_says_so(
    shared: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call(do="hold", until=str(tmp_path / "gate"))
    async with gateway(shared, tmp_path) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: ran(shared, call))
        await asyncio.to_thread(shared.kill)
        await asyncio.to_thread(shared.start)
        await until(lambda: len(ran(shared, call)) == 2)
        (tmp_path / "gate").touch()
        found = outcome(await running)
    assert (found.status, found.job.attempts) == ("ok", 2)


ROUTE = "keep-note"
SELDOM = replace(QUICK, again_first_s=15)


def by_events(ductile: DuctileUnderTest, kind: str = "probe.asked", **changed: Any) -> dict[str, Any]:
    """Settings of a route that is called by events of this type; the probe listens to `probe.asked`."""
    return ductile.peer.settings() | {"routes": {ROUTE: kind}} | changed


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


def settings(ductile: DuctileUnderTest, **changed: str) -> RelaySettings:
    return RelaySettings.model_validate({"url": ductile.url} | ductile.peer.settings() | changed)


def a_sender(ductile: DuctileUnderTest, **changed: str) -> AbstractAsyncContextManager[WebhookSender]:
    return open_sender(OutboundSettings(relay=settings(ductile, **changed)))


def a_delivery(ductile: DuctileUnderTest, kind: str = "completed") -> Notification:
    told = OutboundSettings(relay=settings(ductile))
    [delivery] = notifications_of(read(an_event(kind)), told, at=utc_now())
    return delivery


async def test_a_type_that_is_not_accepted_is_told_and_what_may_be_mended_in_ductile_is_waited_for(
    ductile: DuctileUnderTest,
) -> None:
    async with a_sender(ductile) as sender:
        assert await sender.send(a_delivery(ductile, "completed")) == Try("arrived")
        refused = await sender.send(a_delivery(ductile, "reopened"))
    assert (refused.outcome, "add agent.reopened to `accept` there" in refused.why) == ("dead", True)
    for changed, why in (
        ({"secret": "another-one-altogether"}, "403: 'forbidden': the peer's secret in Ductile is not the one that is"),
        ({"peer": "stranger"}, "403: 'unknown relay peer'"),
        ({"key_id": "v9"}, "403: 'relay key id mismatch'"),
    ):
        async with a_sender(ductile, **changed) as sender:
            forbidden = await sender.send(a_delivery(ductile))
        assert (forbidden.outcome, why in forbidden.why) == ("put_off", True)


async def test_behind_a_proxy_with_a_path_of_its_own_the_path_is_signed_that_ductile_sees(fake: FakeDuctile) -> None:
    def proxy(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/home/ductile")
        headers = {name: value for name, value in request.headers.items() if name.startswith("x-ductile-")}
        answer = httpx2.post(f"{fake.url}{path}", content=request.content, headers=headers, trust_env=False)
        return httpx2.Response(answer.status_code, content=answer.content)

    us = settings(fake, url="https://home.example/home/ductile")
    transport = httpx2.MockTransport(proxy)
    async with open_relay_ingress(us.url, us, timeout_s=5, transport=transport) as ingress:
        assert await ingress.post(a_delivery(fake, "failed").body) == ""


async def test_each_of_several_ductiles_is_told_by_its_own_secret_and_one_that_is_away_later(
    ductile: DuctileUnderTest, fake: FakeDuctile, tmp_path: Path
) -> None:
    fake.kill()
    told = OutboundSettings(relay=settings(ductile), relays={"work": settings(fake)})
    town = Town(tmp_path)
    async with embedded(tmp_path)() as stores, open_sender(told) as sender:
        outbound = Outbound(told, stores.outbox, sender.send, town.callback_of, town.bury, lambda *_: None, look_s=0.05)
        async with beside(outbound.run()):
            await outbound.take(read(an_event("completed")))
            await until(lambda: len(ductile.executions) == 1)
            fake.start()
            await until(lambda: len(fake.executions) == 1)
    for execution in (*ductile.executions, *fake.executions):
        payload = execution.payload
        assert (payload["run_id"], payload["outcome"], payload["goal"]) == (RUN, "42", "Find the answer — ü.")
