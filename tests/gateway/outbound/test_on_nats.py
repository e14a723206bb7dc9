"""Endings of runs on a real bus: undeliverable ones and those that the agent did not sign are dead letters."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from ductile_gateway.bus.outgoing import agent_keys
from ductile_gateway.status import findings_of
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks.outbound import serve_outbound
from ductile_gateway.webhooks.settings import OutboundSettings
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.signing import AgentKeys
from tests.gateway.outbound.kit import SECRET, an_event
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.http_server import WireServer
from tests.kit.stack import messages
from tests.kit.waiting import beside, until
from tests.ledger.kit import embedded


class Telling:
    """A gateway with one subscription, to the site."""

    def __init__(self, folder: Path, link: NatsLink, site: WireServer, *, lets_callbacks_in: bool = False) -> None:
        network = {"allow_private": True, "allow_http": True, "ports": [site.port]}
        one = {"url": f"{site.url}/", "secret": SECRET, "network": network}
        told = {
            "subscriptions": {"one": one},
            "callbacks": {"secret": SECRET, "network": network if lets_callbacks_in else {}},
        }
        self.settings = OutboundSettings.model_validate(told)
        self.folder = folder
        self.link = link
        self.looks: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with embedded(self.folder)() as stores:
            trust = Trust(stores.pins, partial(agent_keys, self.link), given=self.settings.agent_keys)
            self.looks = {"agent's word": trust.findings, "outbound": stores.outbox.findings}
            serving = serve_outbound(
                self.settings,
                self.link,
                stores.outbox,
                trust=trust,
                count=lambda *_: None,
                permits=None,
            )
            async with beside(serving):
                yield

    async def says(self, part: str) -> bool:
        """True if a finding has this text."""
        return any(part in finding.text for finding in await findings_of(self.looks))


async def say(link: NatsLink, event: Any, by: Signer | None = AGENT) -> None:
    body = json.dumps(event).encode()
    headers = {"Agentic-Run-Id": event["payload"]["run_id"]} | (by.headers(event["type"], body) if by else {})
    await link.publish(event["type"], body, msg_id=event["dedupe_key"], headers=headers)


async def tell_keys(question: Msg) -> None:
    await question.respond(AgentKeys(keys=(AGENT.announced(),)).model_dump_json().encode())


async def dead_letters(link: NatsLink) -> dict[str, Mapping[str, str]]:
    """Headers of dead letters, by target."""
    letters = [message.headers async for message in messages(link, subjects.DEAD_LETTERS_OUTBOUND)]
    return {letter.get("Dead-Letter-Target", ""): letter for letter in letters}


async def test_who_may_publish_endings_has_none_of_its_own_sent_on_and_no_callback_goes_into_the_house(
    tmp_path: Path, bus: NatsLink
) -> None:
    async def tell_callback(question: Msg) -> None:
        await question.respond(json.dumps({"callback": "https://127.0.0.1/secret-token"}).encode())

    with WireServer(lambda _: (200, {}, b"")) as site:
        telling = Telling(tmp_path, bus, site)
        async with telling.at_work():
            await say(bus, an_event(run_id="run_1", has_callback=True), by=None)
            await until(lambda: telling.says("no agent has told the keys that it signs with"))
            await bus.subscribe(subjects.AGENT_KEYS, tell_keys)
            await bus.subscribe(subjects.RUN_CALLBACK, tell_callback)
            await say(bus, an_event(run_id="run_2", has_callback=True), by=STRANGER)
            await say(bus, an_event(run_id="run_3", has_callback=True))
            await until(lambda: len(site.calls) >= 1)
            await until(lambda: telling.says("2 messages since the start were not the agent's word"))
            await until(lambda: telling.says("1 deliveries were given up in the last 15 days"))
            letters = await dead_letters(bus)
            rejected = await bus.client.jetstream().get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    assert [json.loads(request.raw)["data"]["run_id"] for request in site.calls] == ["run_3"]
    assert "not said by the agent" in letters[""]["Dead-Letter-Reason"]
    assert "127.0.0.1 is not a public address" in letters["callback"]["Dead-Letter-Reason"]
    assert "secret-token" not in json.dumps(letters)
    assert json.loads(rejected.data or b"")["payload"]["subject"] == "agent.completed"


async def test_a_callback_hears_of_a_run_in_order_also_where_the_agent_is_late_to_say_where_it_goes(
    tmp_path: Path, bus: NatsLink
) -> None:
    asked = 0

    async def tell_callback(question: Msg) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            await question.respond(json.dumps({"callback": f"{site.url}/callback"}).encode())

    await bus.subscribe(subjects.AGENT_KEYS, tell_keys)
    await bus.subscribe(subjects.RUN_CALLBACK, tell_callback)
    with WireServer(lambda _: (200, {}, b"")) as site:
        for kind in ("waiting", "reopened", "completed"):
            await say(bus, an_event(kind, has_callback=True))
        async with Telling(tmp_path, bus, site, lets_callbacks_in=True).at_work():
            await until(lambda: len(site.calls) == 6)
    called = [json.loads(call.raw)["type"] for call in site.calls if call.path == "/callback"]
    assert called == ["agent.waiting", "agent.reopened", "agent.completed"]
