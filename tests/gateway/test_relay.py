"""The relay in a world in memory: what runs, what is published, and what a second start makes of what was left."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from ductile_gateway.calls.call import Asked, Intent, NeverStarted, ToolCall, ToolOutcome, Unacceptable, Unknown, failed
from ductile_gateway.ports import Begin, unrecorded
from groundwork.service.errors import TryAgain
from schemas import keys, subjects
from tests.gateway.parts import FETCH, NOON, RUN, FakeRunner, World, a_request, asked_for, outcomes
from tests.kit.waiting import until


def nested(levels: int) -> Any:
    return {"level": nested(levels - 1)} if levels else "the end"


def executed(world: World) -> int:
    return len(world.runner.executed)


def intent_of(command: str, *, step: int = 1, deadline_at: datetime | None = None) -> Intent:
    asked = asked_for(a_request(command, step=step, deadline_at=deadline_at))
    return Intent(asked=asked, may_repeat=command != "save", deadline_at=NOON)


async def given_back(world: World, *asked: Any) -> None:
    """Of each request the relay says that it may be tried again."""
    relay = world.relay()
    for one in asked or (asked_for(),):
        with pytest.raises(TryAgain):
            await relay.take(one)


class BrokenRunner(FakeRunner):
    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Any:
        await super().run(call, begin)
        raise ZeroDivisionError


async def test_a_request_runs_its_tool_once_and_its_result_is_published_under_its_key() -> None:
    world = World()
    relay, waits = world.relay(), NOON + timedelta(hours=1)
    await asyncio.gather(*(relay.take(asked_for(a_request(deadline_at=waits))) for _ in range(5)))
    (call,) = world.runner.executed
    assert (call.plugin, call.command, call.payload) == ("jina-reader", "handle", {"url": "http://example.org"})
    assert (call.deadline_at, call.wanted_until) == (NOON + timedelta(seconds=FETCH.timeout_s), waits)
    assert outcomes(world) == ["ok"] * 5
    ((subject, key),) = {(subject, key) for subject, key, _, _ in world.bus.messages}
    assert (subject, key) == (subjects.TOOL_RESULT, keys.result(RUN, 1, 1))
    assert {headers["ce-id"] for *_, headers in world.bus.messages} == {key}
    assert len({body for _, _, body, _ in world.bus.messages}) == 1


async def test_another_request_under_the_same_key_never_runs_and_leaves_the_answer_alone() -> None:
    world = World()
    relay = world.relay()
    await relay.take(asked_for())
    with pytest.raises(Unacceptable, match="protocol violation"):
        await relay.take(asked_for(a_request(payload={"url": "http://other.example"})))
    assert (executed(world), outcomes(world)) == (1, ["ok"])


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
    assert (executed(world), outcomes(world)) == (0, [class_, class_])


async def test_while_the_bus_is_away_the_answer_waits_and_a_start_insists_until_it_is_taken() -> None:
    world = World()
    world.bus.down = True
    await given_back(world)
    assert set(world.runner.left) == {asked_for().key}
    recovering = asyncio.create_task(world.relay().say_again())
    await until(lambda: world.bus.refused >= 3)
    assert not recovering.done()
    world.bus.down = False
    await recovering
    assert (executed(world), outcomes(world)) == (1, ["ok"])
    assert world.runner.left == {}, "what the runner remembers is forgotten once the result is on the bus"


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
    assert (executed(world), outcomes(world)) == (runs, [class_])


@pytest.mark.parametrize(("command", "class_"), [("handle", "transient"), ("save", "in_doubt")])
async def test_a_runner_that_fails_leaves_the_call_unknown_and_the_agent_hears_of_it(
    command: str, class_: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(runner=BrokenRunner())
    await world.relay().take(asked_for(a_request(command)))
    assert outcomes(world) == [class_]
    assert [record.exc_info for record in caplog.records if record.levelno == logging.ERROR] != [None]


async def test_a_read_whose_intent_a_crash_took_is_looked_for_before_it_runs() -> None:
    world = World()
    world.bus.down = True
    await given_back(world)
    forgetful = World(runner=world.runner)
    await forgetful.relay().take(asked_for())
    assert (executed(world), outcomes(forgetful)) == (1, ["ok"])


@pytest.mark.parametrize(("command", "seconds"), [("save", 0), ("save", 3), ("handle", 31)])
async def test_what_comes_or_waited_until_its_run_had_ended_is_not_run(command: str, seconds: int) -> None:
    world = World()
    world.runs.ended.add(RUN)
    world.clock.pass_by(seconds)
    await world.relay().take(asked_for(a_request(command)))
    assert (outcomes(world), executed(world)) == (["expired"], 0)
    assert world.bus.results[0].error.retryable is False


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


class Contested:
    """A bus that another gateway may have by now, or had before."""

    def __init__(self, trouble: Exception | None = None, doubt: str = "") -> None:
        self.trouble, self.told = trouble, doubt

    async def held(self) -> None:
        if self.trouble:
            raise self.trouble

    def doubt(self, asked: Asked) -> str:
        del asked
        return self.told


@pytest.mark.parametrize("command", ["handle", "save"])
async def test_nothing_is_begun_while_nobody_can_say_who_owns_the_bus(command: str) -> None:
    world, asked = World(), asked_for(a_request(command))
    world.ownership = Contested(TryAgain("the lease has lapsed"))
    await given_back(world, asked)
    assert (executed(world), await world.ledger.find(asked.key)) == (0, None)


async def test_a_write_that_another_gateway_may_have_begun_is_in_doubt_and_a_read_runs() -> None:
    world = World()
    world.ownership = Contested(doubt="another may have begun it")
    for step, command in enumerate(("save", "handle"), start=1):
        await world.relay().take(asked_for(a_request(command, step=step)))
    assert (outcomes(world), executed(world)) == (["in_doubt", "ok"], 1)


@pytest.mark.parametrize("output", [nested(900), {"number": float("inf")}, {"number": float("nan")}])
async def test_what_no_event_can_carry_is_bad_output_of_a_call_that_has_run(output: dict[str, Any]) -> None:
    world = World(runner=FakeRunner(ToolOutcome("ok", text="done", output=output)))
    await world.relay().take(asked_for())
    (result,) = world.bus.results
    assert result.error is not None
    assert (result.error.error_class, "the tool has run" in result.error.message) == ("bad_output", True)
