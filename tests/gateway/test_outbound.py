"""Others are told what becomes of runs: each receiver once, in order, and whatever happens to the others."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile_gateway.outbound.notifications import Arrived, Gone, Never, Notification, NotYet, SendResult
from ductile_gateway.outbound.settings import MILESTONES
from groundwork.service.errors import TryAgain
from tests.gateway.outbound_parts import ENDINGS, HOOK, Town, an_event, down, read
from tests.gateway.parts import RUN
from tests.kit.waiting import until

DAY_S = 86400.0


async def test_ductile_the_callback_and_every_subscriber_are_told_once(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a", "b"), relayed=ENDINGS)
    await town.tells(an_event(callback=HOOK))
    assert sorted(one.target for one in town.sender.tries) == ["callback", "relay", "subscription:a", "subscription:b"]
    assert {one.url for one in town.sender.tries if one.target == "callback"} == {HOOK}


async def test_where_a_run_wants_its_ending_sent_is_asked_of_the_agent(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.addresses[RUN] = HOOK
    await town.tells(an_event(has_callback=True), an_event(run_id="run_unknown", has_callback=True))
    assert [(one.run_id, one.url) for one in town.sender.tries if one.target == "callback"] == [(RUN, HOOK)]
    assert not any(b"callback" in one.body for one in town.sender.tries)


async def test_while_no_agent_says_where_a_callback_goes_the_others_are_told_and_it_is_asked_again(
    tmp_path: Path,
) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.addresses[RUN], town.agent_away = HOOK, True
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


@pytest.mark.parametrize("kind", ["waiting", "reopened"])
async def test_who_is_told_how_a_run_ends_is_told_that_it_waits_for_a_person_and_that_it_goes_on_again(
    tmp_path: Path, kind: str
) -> None:
    town = Town(tmp_path, subscribers=("a",), relayed=frozenset(MILESTONES))
    town.addresses[RUN] = HOOK
    await town.tells(an_event(kind, has_callback=True), an_event(kind, has_callback=True))
    assert sorted(one.target for one in town.sender.tries) == ["callback", "relay", "subscription:a"]
    assert {one.type for one in town.sender.tries} == {f"agent.{kind}"}


async def test_an_event_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    async with town.telling() as outbound:
        for _ in range(3):
            await outbound.take(read(an_event()))
            await town.settled()
    await town.tells(an_event())
    assert len(town.sender.tries) == 1


async def test_a_receiver_that_is_told_of_completions_hears_of_nothing_else(tmp_path: Path) -> None:
    town = Town(tmp_path, relayed=frozenset({"agent.completed"}))
    await town.tells(an_event("failed"), an_event("progress"), an_event("completed"))
    assert [one.type for one in town.sender.tries] == ["agent.completed"]


async def test_a_receiver_that_never_answers_delays_no_other(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("dead", "alive"), relayed=ENDINGS)
    town.sender.hangs.add("subscription:dead")
    async with town.telling() as outbound:
        for number in range(40):
            await outbound.take(read(an_event(run_id=f"run_{number}")))
        await until(lambda: town.outcomes["subscription:alive", "arrived"] == 40)
        await until(lambda: town.outcomes["relay", "arrived"] == 40)
    assert len(town.sender.keys("subscription:dead")) == 4


async def test_callbacks_to_one_server_do_not_delay_those_to_another(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.sender.hangs.add("https://slow.example/")
    async with town.telling() as outbound:
        for number in range(10):
            await outbound.take(read(an_event(run_id=f"run_s{number}", callback="https://slow.example/")))
        await outbound.take(read(an_event(run_id="run_q", callback="https://quick.example/")))
        await until(lambda: town.outcomes["callback", "arrived"] == 1)


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
        await outbound.take(read(an_event(callback=HOOK)))
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
        await outbound.take(read(an_event(callback=HOOK)))
        await until(lambda: town.outcomes["callback", "dead"] == 1)
    assert len(town.sender.tries) == 1


async def test_a_dead_letter_that_the_bus_does_not_take_is_kept_until_it_does(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.sender.answers["callback"] = lambda _: Never("not a public address")
    town.grave.down = True
    async with town.telling() as outbound:
        await outbound.take(read(an_event(callback=HOOK)))
        await town.settled()
        town.grave.down = False
        await town.pass_by(30)
    assert len(town.grave.buried) == 1


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


async def test_what_waits_behind_an_event_whose_receiver_is_gone_is_not_sent_either(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.sender.answers["subscription:a"] = down
    async with town.telling() as outbound:
        await outbound.take(read(an_event("escalated")))
        await outbound.take(read(an_event("completed")))
        await town.settled()
        town.sender.answers["subscription:a"] = lambda _: Gone()
        await town.pass_by(60)
    assert [one.type for one in town.sender.tries] == ["agent.escalated", "agent.escalated"]


async def test_a_receiver_decides_how_long_it_is_left_alone(tmp_path: Path) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.sender.answers["subscription:a"] = lambda _: NotYet("answered 429", 600)
    async with town.telling() as outbound:
        await outbound.take(read(an_event()))
        await town.settled()
        await town.pass_by(599, step_s=599)
        assert len(town.sender.tries) == 1
        await town.pass_by(1)
        assert len(town.sender.tries) == 2


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


async def test_a_relay_that_was_taken_out_of_the_configuration_leaves_dead_letters(tmp_path: Path) -> None:
    town = Town(tmp_path, relayed=ENDINGS)
    town.sender.answers["relay"] = down
    await town.tells(an_event())
    town.clock.pass_by(60)
    async with town.telling(relay=False):
        await until(lambda: town.outcomes["relay", "dead"] == 1)


async def test_the_log_shows_nothing_of_a_callbacks_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    town = Town(tmp_path)
    town.sender.answers["callback"] = down
    with caplog.at_level(logging.DEBUG):
        async with town.telling() as outbound:
            await outbound.take(read(an_event(callback=HOOK)))
            await town.pass_by(DAY_S, step_s=1200)
    assert caplog.records
    assert not [record for record in caplog.records if "token-1" in str(record.__dict__)]


async def test_a_receiver_that_is_away_is_told_once_with_the_reason_and_once_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path, subscribers=("a",))
    town.sender.answers["subscription:a"] = down
    async with town.telling() as outbound:
        for number in range(5):
            await outbound.take(read(an_event(run_id=f"run_{number}")))
        await town.settled()
        town.sender.answers.clear()
        await town.pass_by(60, step_s=10)
        await until(lambda: town.outcomes["subscription:a", "arrived"] == 5)
    told = [(record.levelname, record.message, vars(record)["why"]) for record in caplog.records]
    assert told == [
        ("WARNING", "subscription:a is away", "ConnectError"),
        ("WARNING", "subscription:a is back", "ConnectError"),
    ]
