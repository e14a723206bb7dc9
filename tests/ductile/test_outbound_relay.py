"""Endings of runs reach Ductile's pipelines through its relay ingress."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2

from ductile_gateway.ductile.relay import open_relay_ingress
from ductile_gateway.webhooks.notifications import Notification, Try, notifications_of
from ductile_gateway.webhooks.outbound import Outbound
from ductile_gateway.webhooks.sender import WebhookSender, open_sender
from ductile_gateway.webhooks.settings import OutboundSettings, RelaySettings
from groundwork.service.machine import utc_now
from tests.ductile.fake import FakeDuctile
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.outbound.kit import Town, an_event, read
from tests.gateway.parts import RUN
from tests.kit.waiting import beside, until
from tests.ledger.kit import embedded


def settings(ductile: DuctileUnderTest, **changed: str) -> RelaySettings:
    peer = ductile.peer
    ours = {"url": ductile.url, "peer": peer.name, "key_id": peer.key_id, "secret": peer.secret}
    return RelaySettings.model_validate(ours | changed)


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
        assert await ingress.post(a_delivery(fake).body) == ""


async def test_each_of_several_ductiles_is_told_by_its_own_secret_and_one_that_is_away_later(
    ductile: DuctileUnderTest, fake: FakeDuctile, tmp_path: Path
) -> None:
    fake.pipeline("endings", on="agent.completed", plugin="probe")
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
