"""Each receiver is notified once, independently of the others; size of callbacks; retry schedule. On a real bus,
undeliverable endings and those that the agent did not sign are dead letters."""

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from ductile_gateway.bus.outgoing import agent_keys
from ductile_gateway.status import findings_of
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks import notifications
from ductile_gateway.webhooks.notifications import LifecycleEvent, Try
from ductile_gateway.webhooks.outbound import serve_outbound
from ductile_gateway.webhooks.settings import OutboundSettings
from groundwork.nats.link import NatsLink
from groundwork.service.errors import GiveUp, TryAgain
from schemas import subjects
from schemas.signing import AgentKeys
from tests.gateway.outbound.kit import ENDINGS, HOOK, SECRET, Town, an_event, read
from tests.gateway.parts import NOON, RUN
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.http_server import WireServer
from tests.kit.stack import messages
from tests.kit.waiting import beside, until
from tests.ledger.kit import a_delivery, embedded

DAY_S = 86400.0


async def test_ductile_the_callback_and_every_subscriber_are_told_once(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a", "b"), relayed=ENDINGS)
    for _ in range(2):  # the event comes again, also after a restart
        await town.tells(*[an_event(has_callback=True)] * 2)
    assert sorted(one.target for one in town.tries) == ["callback", "relay", "subscription:a", "subscription:b"]
    assert {one.url for one in town.tries if one.target == "callback"} == {HOOK}


async def test_what_nothing_in_ductile_listens_to_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path, relayed=ENDINGS)
    town.answers["relay"] = lambda _: Try("unheard")
    await town.tells(an_event(), an_event(run_id="run_another"))
    assert town.outcomes == {("relay", "unheard"): 2}
    assert caplog.text.count("nothing in Ductile listens to agent.completed") == 1


async def test_while_no_agent_says_where_a_callback_goes_the_others_are_told_and_it_is_asked_again(
    tmp_path: Path,
) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.agent_away = True
    event = read(an_event(has_callback=True))
    async with town.telling() as outbound:
        for _ in range(2):
            with pytest.raises(TryAgain):
                await outbound.take(event)
        await until(lambda: town.outcomes["subscription:a", "arrived"] == 1)
        town.agent_away = False
        await outbound.take(event)
        await town.settled()
    assert [one.target for one in town.tries] == ["subscription:a", "callback"]


@pytest.mark.parametrize(
    ("answer", "tries", "why"),
    [
        (Try("put_off", "ConnectError"), 7, "given up after 7 tries: ConnectError"),
        (Try("dead", "not public"), 1, "not public"),
    ],
)
async def test_what_cannot_arrive_in_most_of_a_day_or_never_can_is_a_dead_letter(
    tmp_path: Path, answer: Try, tries: int, why: str
) -> None:
    town = Town(tmp_path)
    town.answers["callback"] = lambda _: answer
    async with town.telling() as outbound:
        await outbound.take(read(an_event(has_callback=True)))
        await town.pass_by(DAY_S, step_s=600)
        await until(lambda: town.outcomes == Counter({("callback", "dead"): 1}))
    assert len(town.tries) == tries
    [(buried, told)] = town.buried
    assert (buried.target, buried.tries, told) == ("callback", tries, why)


async def test_a_try_that_a_kill_cut_off_is_made_again_under_the_same_id_and_with_the_same_body(tmp_path: Path) -> None:
    town, event = Town(tmp_path), an_event(has_callback=True, outcome="o" * 100_000)
    town.hangs.add("callback")
    async with town.telling() as outbound:
        await outbound.take(read(event))
        await until(lambda: bool(town.tries))
    town.hangs.clear()
    async with town.telling() as outbound:
        await outbound.take(read(event, NOON + timedelta(minutes=1)))
        await town.settled()
    first, second = town.tries
    assert (first.key, first.body) == (second.key, second.body) == (first.key, notifications.callback_body(read(event)))


@pytest.mark.parametrize(
    ("target", "tries", "retry_after_s", "least", "most"),
    [
        ("callback", 1, 60, 60, 60),  # a receiver may ask for more time, not for less, nor for days
        ("callback", 3, 60, 1800, 3600),
        ("callback", 1, 1e6, notifications.LONGEST_RETRY_AFTER_S, notifications.LONGEST_RETRY_AFTER_S),
        ("callback", 7, 60, 36_000, 39_600),  # it is given up only when it was tried so often: the gateway may be away
        ("relay", 900, 0, 300, 330),
    ],
)
def test_what_did_not_arrive_is_tried_again_ever_later_and_to_a_ductile_for_a_week(
    target: str, tries: int, retry_after_s: float, least: float, most: float
) -> None:
    delivery = replace(a_delivery(target=target), tries=tries)
    after = [
        notifications.next_try(delivery, now=NOON + timedelta(days=days), retry_after_s=retry_after_s)
        for days in (0, 6, 7)
    ]
    assert [at is not None for at in after] == [True, target == "relay" or tries < 7, tries < 7]
    assert least <= ((after[0] or NOON) - NOON).total_seconds() <= most


def saying(**more: Any) -> LifecycleEvent:
    event = an_event()
    event["payload"] |= {"trace_url": f"https://traces.example/{RUN}"} | more
    return read(event)


def data_of(event: LifecycleEvent) -> dict[str, Any]:
    body = notifications.callback_body(event)
    assert len(body) <= notifications.MOST_BYTES <= 20_000
    content = json.loads(body)
    assert (content["type"], content["timestamp"]) == ("agent.completed", "2026-11-21T12:00:00Z")
    data: dict[str, Any] = content["data"]
    return data


def test_what_a_person_is_asked_to_allow_is_named_also_where_its_arguments_are_cut() -> None:
    asked = {"kind": "approval", "step": 3, "tool": "mail", "command": "send", "arguments_hash": "0123456789abcdef" * 2}
    cut = data_of(saying(**asked, arguments={"text": "x" * 50_000}))
    assert cut | asked | {"truncated": True} == cut
    assert "characters are shown]" in cut["arguments"]
    hostile = dict.fromkeys(("kind", "tool", "command", "arguments_hash", "expires_at", "reason"), "\x01" * 5000)
    assert data_of(saying(**hostile, **{f"field-{number}": number for number in range(5000)}))["run_id"] == RUN


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"type": "agent.failed", "payload": {"run_id": "r"}, "dedupe_key": "k"},
        {"type": "agent.completed", "payload": {"run_id": "r"}},
        {"type": "agent.completed", "payload": {"run_id": "r"}, "dedupe_key": "a\r\nb"},
        {"type": "agent.completed", "payload": {"run_id": "r r"}, "dedupe_key": "k"},
        {"type": "agent.completed", "payload": [], "dedupe_key": "k"},
    ],
)
def test_a_message_that_is_no_event_of_a_run_is_unreadable(message: Any) -> None:
    with pytest.raises(GiveUp, match="needs that type"):
        notifications.read_event("agent.completed", message, at=NOON)


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
        return any(part in finding.text for finding in await findings_of(self.looks))


async def say(link: NatsLink, event: Any, by: Signer | None = AGENT) -> None:
    body = json.dumps(event).encode()
    headers = {"Agentic-Run-Id": event["payload"]["run_id"]} | (by.headers(event["type"], body) if by else {})
    await link.publish(event["type"], body, msg_id=event["dedupe_key"], headers=headers)


async def tell_keys(question: Msg) -> None:
    await question.respond(AgentKeys(keys=(AGENT.announced(),)).model_dump_json().encode())


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
            buried = [message.headers async for message in messages(bus, subjects.DEAD_LETTERS_OUTBOUND)]
            letters = {headers.get("Dead-Letter-Target", ""): headers for headers in buried}
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
