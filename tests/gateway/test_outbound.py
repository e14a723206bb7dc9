"""Others are told what becomes of runs: each receiver once, in order, and whatever happens to the others."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile_gateway.outbound.notifications import Arrived, Gone, Never, Notification, NotYet, SendResult
from groundwork.service.errors import TryAgain
from tests.gateway.outbound_parts import ENDINGS, HOOK, Town, an_event, down, read
from tests.kit.waiting import until

DAY_S = 86400.0


async def test_ductile_the_callback_and_every_subscriber_are_told_once(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a", "b"), relayed=ENDINGS)
    await town.tells(an_event(has_callback=True))
    assert sorted(one.target for one in town.sender.tries) == ["callback", "relay", "subscription:a", "subscription:b"]
    assert {one.url for one in town.sender.tries if one.target == "callback"} == {HOOK}


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
    assert [one.target for one in town.sender.tries] == ["subscription:a", "callback"]


async def test_an_event_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    async with town.telling() as outbound:
        for _ in range(3):
            await outbound.take(read(an_event()))
            await town.settled()
    await town.tells(an_event())
    assert len(town.sender.tries) == 1


async def test_events_of_a_run_arrive_in_their_order_and_one_at_a_time(tmp_path: Path) -> None:
    town = Town(tmp_path, relayed=ENDINGS)
    verdicts: Iterator[SendResult] = iter([NotYet("ConnectError"), NotYet("ConnectError")])
    town.sender.answers["relay"] = lambda _: next(verdicts, Arrived())
    async with town.telling() as outbound:
        for number in (1, 2, 3):
            await outbound.take(read(an_event("escalated", number=number)))
        await outbound.take(read(an_event("completed")))
        await town.pass_by(120, step_s=10)
    tried = [key.rpartition(":")[2] for key in town.sender.keys("relay")]
    assert tried == ["escalated", "escalated", "escalated", "2", "3", "completed"]
    assert town.sender.overlaps == 0


async def test_a_callback_is_given_up_after_most_of_a_day_and_is_a_dead_letter_then(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.sender.answers["callback"] = down
    async with town.telling() as outbound:
        await outbound.take(read(an_event(has_callback=True)))
        await town.pass_by(DAY_S, step_s=600)
        await until(lambda: town.outcomes == Counter({("callback", "dead"): 1}))
    assert len(town.sender.tries) == 7
    [(buried, why)] = town.grave.buried
    assert (buried.target, buried.tries) == ("callback", 7)
    assert why == "given up after 7 tries: ConnectError"


async def test_what_can_never_arrive_is_a_dead_letter_at_once(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.sender.answers["callback"] = lambda _: Never("not a public address")
    async with town.telling() as outbound:
        await outbound.take(read(an_event(has_callback=True)))
        await until(lambda: town.outcomes["callback", "dead"] == 1)
    assert len(town.sender.tries) == 1


async def test_a_receiver_that_is_gone_is_told_nothing_more_of_that_run(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.sender.answers["subscription:a"] = lambda one: Gone() if one.run_id == "run_1" else Arrived()
    await town.tells(
        an_event("escalated", run_id="run_1"),
        an_event("completed", run_id="run_1"),
        an_event("completed", run_id="run_2"),
    )
    assert [(one.run_id, one.type) for one in town.sender.tries] == [
        ("run_1", "agent.escalated"),
        ("run_2", "agent.completed"),
    ]
    assert not town.grave.buried


async def test_events_that_nobody_in_ductile_listens_to_are_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path, relayed=ENDINGS)
    town.sender.answers["relay"] = lambda _: Arrived(heard=False)
    async with town.telling() as outbound:
        for number in range(5):
            await outbound.take(read(an_event(run_id=f"run_{number}")))
        await town.settled()
        await until(lambda: outbound.unheard == {("relay", "agent.completed"): 5})
    said = [record.getMessage() for record in caplog.records if "listens" in record.getMessage()]
    assert said == ["nobody in Ductile listens to agent.completed: add a pipeline `on:` it"]


async def test_a_surprise_in_one_delivery_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    town = Town(tmp_path, subscribers=("a", "b"))

    def surprise(_: Notification) -> SendResult:
        raise RuntimeError("surprise")

    town.sender.answers["subscription:a"] = surprise
    with caplog.at_level(logging.CRITICAL):
        async with town.telling() as outbound:
            await outbound.take(read(an_event()))
            await town.settled()
            await until(lambda: town.outcomes == Counter({("subscription:b", "arrived"): 1}))
            del town.sender.answers["subscription:a"]
            await town.pass_by(6)
            await until(lambda: town.outcomes["subscription:a", "arrived"] == 1)
