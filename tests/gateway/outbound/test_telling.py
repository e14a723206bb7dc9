"""Each receiver is notified once, independently of the others; size of callbacks; retry schedule."""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.webhooks import notifications
from ductile_gateway.webhooks.notifications import LifecycleEvent, Try
from groundwork.service.errors import GiveUp, TryAgain
from tests.gateway.outbound.kit import ENDINGS, HOOK, Town, an_event, read
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until
from tests.ledger.kit import a_delivery

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
