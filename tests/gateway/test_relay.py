"""The relay in a world in memory: what runs, what is published, and what a second start makes of what was left."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from ductile_gateway.calls.call import Intent, NeverStarted, ToolOutcome, Unacceptable, Unknown, failed
from ductile_gateway.errors import TryAgain
from ductile_gateway.ports import unrecorded
from schemas import keys, subjects
from schemas.catalog import Catalog
from tests.gateway.parts import CATALOG, FETCH, NOON, RUN, FakeRunner, World, a_request, asked_for, outcomes
from tests.kit.waiting import until


def executed(world: World) -> list[str]:
    return [call.key for call in world.runner.executed]


def intent_of(command: str, deadline_at: datetime | None = None) -> Intent:
    asked = asked_for(a_request(command, deadline_at=deadline_at))
    return Intent(asked=asked, may_repeat=command != "save", deadline_at=NOON)


class BrokenRunner(FakeRunner):
    async def run(self, call: Any, begin: Any = unrecorded) -> Any:
        await super().run(call, begin)
        raise ZeroDivisionError


async def test_a_request_runs_its_tool_once_and_its_result_is_published_under_its_key() -> None:
    world = World()
    await world.relay().take(asked_for())
    (call,) = world.runner.executed
    assert (call.plugin, call.command, call.payload) == ("jina-reader", "handle", {"url": "http://example.org"})
    ((subject, key, _, headers),) = world.bus.messages
    assert (subject, key) == (subjects.TOOL_RESULT, keys.result(RUN, 1, 1))
    assert headers["ce-id"] == key
    assert outcomes(world) == ["ok"]


async def test_a_request_that_comes_again_is_answered_again_and_not_run_again() -> None:
    world = World()
    relay = world.relay()
    for _ in range(3):
        await relay.take(asked_for())
    assert len(executed(world)) == 1
    assert len({body for _, _, body, _ in world.bus.messages}) == 1


async def test_the_same_request_twice_at_the_same_time_runs_once() -> None:
    world = World()
    relay = world.relay()
    await asyncio.gather(*(relay.take(asked_for()) for _ in range(5)))
    assert len(executed(world)) == 1
    assert outcomes(world) == ["ok"] * 5


async def test_another_attempt_and_another_step_are_other_calls() -> None:
    world = World()
    relay = world.relay()
    for request in (a_request(), a_request(attempt=2), a_request(step=2)):
        await relay.take(asked_for(request))
    assert len(executed(world)) == 3


async def test_another_request_under_the_same_key_never_runs_and_leaves_the_answer_alone() -> None:
    world = World()
    relay = world.relay()
    await relay.take(asked_for())
    with pytest.raises(Unacceptable, match="protocol violation"):
        await relay.take(asked_for(a_request(payload={"url": "http://other.example"})))
    assert len(executed(world)) == 1
    assert outcomes(world) == ["ok"]


@pytest.mark.parametrize(
    ("request_", "class_"),
    [
        (a_request(tool="shell"), "not_allowed"),
        (a_request("poll"), "not_allowed"),
        (a_request(payload={}), "invalid_arguments"),
        (a_request(payload={"url": "x", "run_id": "other"}), "invalid_arguments"),
        (a_request(deadline_at=NOON), "expired"),
        (a_request("read", {"document": "artifacts/../x"}), "invalid_arguments"),
        (a_request("read", {"document": "artifacts/missing.md"}), "not_found"),
    ],
)
async def test_what_is_refused_does_not_run_and_stays_refused(request_: Any, class_: str) -> None:
    world = World()
    await world.relay().take(asked_for(request_))
    world.artifacts.kept[RUN, "missing.md"] = b"by now it is there", "text/markdown"
    await world.relay().take(asked_for(request_))
    assert executed(world) == []
    assert outcomes(world) == [class_, class_]


async def test_a_request_on_another_route_than_its_tools_is_refused() -> None:
    world = World()
    await world.relay().take(asked_for(route="other-route"))
    assert outcomes(world) == ["not_allowed"]


async def test_a_request_that_expires_while_it_waits_for_its_lane_does_not_run() -> None:
    world = World()
    relay = world.relay(width=1)
    world.runner.gate.clear()
    first = asyncio.create_task(relay.take(asked_for()))
    second = asyncio.create_task(
        relay.take(asked_for(a_request(step=2, deadline_at=world.clock.now().replace(hour=13))))
    )
    await until(lambda: len(executed(world)) == 1)
    world.clock.pass_by(7200)
    world.runner.gate.set()
    await asyncio.gather(first, second)
    assert len(executed(world)) == 1
    assert sorted(outcomes(world)) == ["expired", "ok"]


async def test_a_slow_tool_holds_no_more_requests_than_run_and_wait() -> None:
    world = World()
    relay = world.relay(width=2, room=2)
    world.runner.gate.clear()
    tasks = [asyncio.create_task(relay.take(asked_for(a_request(step=step)))) for step in range(1, 8)]
    await until(lambda: sum(task.done() for task in tasks) == 3)
    world.runner.gate.set()
    await asyncio.wait(tasks)
    assert [type(task.exception()) for task in tasks if task.exception()] == [TryAgain] * 3
    assert len(executed(world)) == 4


async def test_while_the_bus_is_away_the_answer_waits_in_the_ledger() -> None:
    world = World()
    world.bus.down = True
    with pytest.raises(TryAgain):
        await world.relay().take(asked_for())
    world.bus.down = False
    await world.relay().say_again()
    assert len(executed(world)) == 1
    assert outcomes(world) == ["ok"]


async def test_a_start_insists_until_the_bus_takes_what_was_left() -> None:
    world = World()
    world.bus.down = True
    with pytest.raises(TryAgain):
        await world.relay().take(asked_for())
    recovering = asyncio.create_task(world.relay().say_again())
    await until(lambda: world.bus.refused >= 3)
    assert not recovering.done()
    world.bus.down = False
    await recovering
    assert outcomes(world) == ["ok"]


async def test_recent_results_are_published_again_at_a_start_and_older_ones_are_not() -> None:
    world = World()
    relay = world.relay()
    await relay.take(asked_for(a_request(step=1)))
    world.clock.pass_by(61)
    await relay.take(asked_for(a_request(step=2)))
    world.clock.pass_by(59)
    world.bus.messages.clear()
    await world.relay().say_again()
    assert [result.step for result in world.bus.results] == [2]


async def test_what_the_runner_remembers_is_forgotten_once_the_result_is_on_the_bus() -> None:
    world = World()
    world.bus.down = True
    with pytest.raises(TryAgain):
        await world.relay().take(asked_for())
    assert set(world.runner.left) == {asked_for().key}
    world.bus.down = False
    await world.relay().say_again()
    assert world.runner.left == {}


async def test_a_call_that_still_runs_is_waited_for_after_a_restart() -> None:
    world = World()
    world.runner.gate.clear()
    cut = asyncio.create_task(world.relay().take(asked_for(a_request("save"))))
    await until(lambda: len(executed(world)) == 1)
    cut.cancel()
    await asyncio.wait([cut])
    relay = world.relay()
    recovering = asyncio.create_task(relay.recover())
    delivered_again = asyncio.create_task(relay.take(asked_for(a_request("save"))))
    await until(lambda: len(world.runner.resumed) == 1)
    world.runner.gate.set()
    await asyncio.gather(recovering, delivered_again)
    assert len(executed(world)) == 1
    assert set(outcomes(world)) == {"ok"}


@pytest.mark.parametrize(
    ("command", "found", "runs", "class_"),
    [
        ("handle", Unknown("lost"), 1, "ok"),
        ("tag", Unknown("lost"), 1, "ok"),
        ("save", Unknown("lost"), 0, "in_doubt"),
        ("handle", NeverStarted(), 1, "ok"),
        ("save", NeverStarted(), 1, "ok"),
        ("save", ToolOutcome("ok", text="done meanwhile"), 0, "ok"),
        ("save", failed("timeout", "too late", retryable=True), 0, "in_doubt"),
    ],
)
async def test_what_a_start_makes_of_a_call_without_an_answer(command: str, found: Any, runs: int, class_: str) -> None:
    world = World()
    await world.ledger.intend(intent_of(command))
    world.runner.left[asked_for(a_request(command)).key] = found
    await world.relay().recover()
    assert len(executed(world)) == runs
    assert outcomes(world) == [class_]


async def test_a_call_that_never_started_is_not_started_if_its_tool_is_gone_or_its_time_is_over() -> None:
    for class_ in ("not_allowed", "expired"):
        world = World()
        await world.ledger.intend(intent_of("save", deadline_at=NOON.replace(hour=13)))
        catalog = Catalog(revision="0", tools=()) if class_ == "not_allowed" else CATALOG
        world.clock.pass_by(7200 if class_ == "expired" else 0)
        await world.relay(catalog).recover()
        assert executed(world) == []
        assert outcomes(world) == [class_]


@pytest.mark.parametrize(("command", "class_"), [("handle", "transient"), ("save", "in_doubt")])
async def test_a_runner_that_fails_leaves_the_call_unknown_and_the_agent_hears_of_it(
    command: str, class_: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(runner=BrokenRunner())
    await world.relay().take(asked_for(a_request(command)))
    assert outcomes(world) == [class_]
    assert [record.exc_info for record in caplog.records if record.levelno == logging.ERROR] != [None]


async def test_a_read_whose_intent_a_crash_took_is_looked_for_before_it_runs() -> None:
    world = World(runner=FakeRunner())
    world.bus.down = True
    with pytest.raises(TryAgain):
        await world.relay().take(asked_for())
    forgetful = World(runner=world.runner)
    await forgetful.relay().take(asked_for())
    assert len(executed(world)) == 1
    assert outcomes(forgetful) == ["ok"]


async def test_a_call_says_how_long_the_tool_may_take_and_how_long_the_agent_waits() -> None:
    world, waits = World(), NOON + timedelta(hours=1)
    await world.relay().take(asked_for(a_request(deadline_at=waits)))
    (call,) = world.runner.executed
    assert (call.deadline_at, call.wanted_until) == (NOON + timedelta(seconds=FETCH.timeout_s), waits)


def nested(levels: int) -> Any:
    return {"level": nested(levels - 1)} if levels else "the end"


@pytest.mark.parametrize("output", [nested(900), {"number": float("inf")}, {"number": float("nan")}])
async def test_what_no_event_can_carry_is_bad_output_of_a_call_that_has_run(output: dict[str, Any]) -> None:
    world = World(runner=FakeRunner(ToolOutcome("ok", text="done", output=output)))
    await world.relay().take(asked_for())
    (result,) = world.bus.results
    assert result.error is not None
    assert (result.error.error_class, "the tool has run" in result.error.message) == ("bad_output", True)


async def test_a_call_that_cannot_be_resumed_is_logged_and_the_others_are_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Poisoned(FakeRunner):
        async def forget(self, key: str) -> None:
            if key == poison.key:
                raise KeyError(key)

    poison, fine = asked_for(a_request(step=1)), asked_for(a_request(step=2))
    world = World(runner=Poisoned())
    for asked in (poison, fine):
        await world.ledger.intend(Intent(asked=asked, may_repeat=False, deadline_at=NOON + timedelta(minutes=1)))
        world.runner.left[asked.key] = ToolOutcome("ok", text="done before")
    with caplog.at_level(logging.ERROR):
        await world.relay().recover()
    assert {result.step for result in world.bus.results} == {1, 2}
    assert "a call could not be resumed" in caplog.messages


@pytest.mark.parametrize(("command", "seconds"), [("save", 0), ("save", 3), ("handle", 31)])
async def test_what_comes_or_waited_until_its_run_had_ended_is_not_run(command: str, seconds: int) -> None:
    world = World()
    world.runs.ended.add(RUN)
    world.clock.pass_by(seconds)
    await world.relay().take(asked_for(a_request(command)))
    assert (outcomes(world), world.runner.executed) == (["expired"], [])
    assert world.bus.results[0].error.retryable is False


async def test_a_write_that_waited_for_its_tool_is_asked_about_before_it_is_sent_and_again_after_a_restart() -> None:
    class Absent(FakeRunner):
        async def run(self, call: Any, begin: Any = unrecorded) -> Any:
            del call, begin
            raise TryAgain("Ductile is away", 1)

    world, asked = World(runner=Absent()), asked_for(a_request("save"))
    with pytest.raises(TryAgain):
        await world.relay().take(asked)
    world.runner = FakeRunner()
    world.runs.ended.add(RUN)
    await world.relay().take(asked)
    assert (outcomes(world), world.runner.executed) == (["expired"], [])


@pytest.mark.parametrize(("command", "seconds"), [("save", 3), ("handle", 31)])
async def test_what_waits_for_a_tool_that_is_away_is_given_up_once_its_run_has_ended(
    command: str, seconds: int
) -> None:
    class Absent(FakeRunner):
        async def run(self, call: Any, begin: Any = unrecorded) -> Any:
            del call, begin
            raise TryAgain("Ductile is away", 1)

    world, asked = World(runner=Absent()), asked_for(a_request(command))
    relay = world.relay()
    world.clock.pass_by(seconds)
    with pytest.raises(TryAgain):
        await relay.take(asked)
    world.runs.ended.add(RUN)
    await relay.take(asked)
    assert outcomes(world) == ["expired"]


async def test_a_write_waits_for_an_agent_that_is_away_until_its_deadline_and_a_read_does_not() -> None:
    world, deadline = World(), NOON + timedelta(minutes=5)
    world.runs.away = True
    world.clock.pass_by(3)
    asked = asked_for(a_request("save", deadline_at=deadline, executor="us"))
    with pytest.raises(TryAgain, match="no agent"):
        await world.relay().take(asked)
    await world.relay().take(asked_for(a_request(step=2, deadline_at=deadline)))
    assert [call.command for call in world.runner.executed] == ["handle"]
    world.clock.pass_by(600)
    await world.relay().take(asked)
    assert outcomes(world) == ["ok", "expired"]


@pytest.mark.parametrize(("waited_s", "executor"), [(1, "us"), (3, None)])
async def test_a_write_that_was_asked_for_a_moment_ago_or_by_somebody_else_needs_no_agent(
    waited_s: int, executor: str | None
) -> None:
    world = World()
    world.runs.away = True
    world.clock.pass_by(waited_s)
    await world.relay().take(asked_for(a_request("save", executor=executor)))
    assert outcomes(world) == ["ok"]


@pytest.mark.parametrize("seconds", [0, 30])
async def test_nobody_is_asked_about_a_read_that_comes_at_once(seconds: int) -> None:
    world = World()
    world.clock.pass_by(seconds)
    await world.relay().take(asked_for())
    assert (outcomes(world), world.runs.asked_for) == (["ok"], [])


async def test_a_call_that_has_begun_is_resumed_although_its_run_has_ended() -> None:
    world, asked = World(), asked_for(a_request("save"))
    await world.ledger.intend(Intent(asked=asked, may_repeat=False, deadline_at=NOON + timedelta(minutes=1)))
    world.runner.left[asked.key] = ToolOutcome("ok", text="done before")
    world.runs.ended.add(RUN)
    world.clock.pass_by(60)
    await world.relay().recover()
    assert outcomes(world) == ["ok"]
