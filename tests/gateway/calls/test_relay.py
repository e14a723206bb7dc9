"""The relay in a world in memory: runs, publishes, and resumes after a restart."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from ductile_gateway.bus import ownership
from ductile_gateway.calls.call import (
    Call,
    CallRequest,
    JobFacts,
    ProducedArtifact,
    ToolCall,
    ToolOutcome,
    Verdict,
    failed,
)
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ports import Begin
from groundwork.service.errors import GiveUp, NoRoom, TryAgain
from schemas import keys, subjects
from schemas.catalog import Catalog, ToolCommand
from schemas.continuation import Retrieve, read_continuation
from schemas.events import ToolResult
from schemas.status import Halt
from tests.gateway.parts import (
    ASKS,
    CATALOG,
    DOCUMENT,
    FETCH,
    FORM,
    NOON,
    PAGES,
    RUN,
    FakeRunner,
    World,
    a_request,
    asked_for,
    memory_rows,
    outcomes,
)
from tests.kit.waiting import beside, until

SAVE, ROUTE = asked_for(a_request("save")), "jina-reader"


def nested(levels: int) -> Any:
    return {"level": nested(levels - 1)} if levels else "the end"


def executed(world: World) -> int:
    return len(world.runner.executed)


def error_of(world: World) -> Any:
    (result,) = world.bus.results
    assert result.error is not None
    return result.error


async def result_of(
    outcome: ToolOutcome, asked: CallRequest | None = None, *, catalog: Catalog = CATALOG
) -> tuple[World, ToolResult]:
    world = World(runner=FakeRunner(outcome))
    await world.relay(catalog).take(asked or asked_for())
    (result,) = world.bus.results
    return world, result


async def given_back(world: World, asked: CallRequest, why: str) -> None:
    with pytest.raises(TryAgain, match=why):
        await world.relay().take(asked)


class BrokenRunner(FakeRunner):
    """Fails after it has run a call, or while it is `away` before."""

    away = False

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        if self.away:
            raise TryAgain("nothing answers at http://localhost:1")
        await super().run(call, begin)
        raise ZeroDivisionError


async def test_a_request_that_comes_often_runs_once_until_the_time_of_its_tool_or_request_is_over() -> None:
    world, waits = World(), NOON + timedelta(hours=1)
    relay = world.relay()
    await asyncio.gather(*(relay.take(asked_for(a_request(deadline_at=waits))) for _ in range(5)))
    (call,) = world.runner.executed
    assert (call.plugin, call.command, call.payload) == ("jina-reader", "handle", {"url": "http://example.org"})
    assert call.deadline_at == NOON + timedelta(seconds=FETCH.timeout_s)
    await relay.take(asked_for(a_request(step=2, deadline_at=(soon := NOON + timedelta(seconds=10)))))
    assert world.runner.executed[1].deadline_at == soon
    assert {message[:2] for message in world.bus.messages[:-1]} == {(subjects.TOOL_RESULT, keys.result(RUN, 1, 1))}


async def test_another_request_under_the_same_key_never_runs_and_leaves_the_answer_alone() -> None:
    world = World()
    relay = world.relay()
    await relay.take(asked_for())
    with pytest.raises(GiveUp, match="protocol violation"):
        await relay.take(asked_for(a_request(payload={"url": "http://other.example"})))
    assert (executed(world), outcomes(world)) == (1, ["ok"])


@pytest.mark.parametrize(
    ("request_", "route", "class_"),
    [
        (a_request(tool="shell"), ROUTE, "not_allowed"),
        (a_request(), "other-route", "not_allowed"),
        (a_request("poll"), ROUTE, "not_allowed"),
        (a_request("handle2"), ROUTE, "not_allowed"),
        (a_request(payload={}), ROUTE, "invalid_arguments"),
        (a_request(payload={"url": "x", "run_id": "other"}), ROUTE, "invalid_arguments"),
        (a_request(payload={"url": "x", "Capability": "k2.newer"}), ROUTE, "invalid_arguments"),
        (a_request(deadline_at=NOON), ROUTE, "expired"),
        (a_request("read", {"document": "artifacts/../x"}), ROUTE, "invalid_arguments"),
        (a_request("read", {"document": "artifacts/missing.md"}), ROUTE, "not_found"),
        (a_request("read", {"document": "artifacts/of_another_run.md"}), ROUTE, "not_found"),
    ],
)
async def test_what_is_refused_does_not_run_and_stays_refused(request_: Any, route: str, class_: str) -> None:
    world = World()
    world.artifacts.kept["run_other/of_another_run.md"] = b"secret", "text/markdown"
    await world.relay().take(asked_for(request_, route))
    world.artifacts.kept[f"{RUN}/missing.md"] = b"by now it is there", "text/markdown"
    await world.relay().take(asked_for(request_, route))
    retryable = {result.error.retryable for result in world.bus.results}
    assert (executed(world), outcomes(world), retryable) == (0, [class_, class_], {class_ == "expired"})


@pytest.mark.parametrize(
    ("runner", "command", "class_"),
    [
        (BrokenRunner, "handle", "transient"),
        (BrokenRunner, "save", "in_doubt"),
        (lambda: FakeRunner(ToolOutcome("ok", text=PAGES[-1])), "save", "in_doubt"),
    ],
    ids=["a read", "a write", "a write whose answer cannot be read"],
)
async def test_a_runner_that_fails_leaves_the_call_unknown_and_the_agent_hears_of_it(
    runner: Callable[[], FakeRunner], command: str, class_: str
) -> None:
    world = World(runner=runner())
    await world.relay().take(asked_for(a_request(command)))
    assert outcomes(world) == [class_]


@pytest.mark.parametrize(("command", "seconds"), [("save", 0), ("save", 3), ("handle", 31)])
async def test_what_comes_or_waited_until_its_run_had_ended_is_not_run(command: str, seconds: int) -> None:
    world = World()
    world.ended.add(RUN)
    world.clock.advance(seconds)
    await world.relay().take(asked_for(a_request(command)))
    assert (outcomes(world), executed(world), error_of(world).retryable) == (["expired"], 0, False)


async def test_a_write_waits_for_an_agent_that_is_away_until_its_deadline_and_a_read_does_not() -> None:
    world, deadline = World(), NOON + timedelta(minutes=5)
    world.agent_away = True
    world.clock.advance(3)
    asked = asked_for(a_request("save", deadline_at=deadline, executor="us"))
    await given_back(world, asked, "no agent")
    await world.relay().take(asked_for(a_request(step=2, deadline_at=deadline)))
    assert [call.command for call in world.runner.executed] == ["handle"]
    world.clock.advance(600)
    await world.relay().take(asked)
    assert outcomes(world) == ["ok", "expired"]


async def test_a_call_whose_command_has_become_a_write_while_it_waited_is_checked_as_one() -> None:
    async def check() -> None:
        if (offered := relay.offers.command("fetch", "save")) and offered.command.tier == "write":
            raise GiveUp("it is not signed")

    world = World()
    relay = world.relay(Catalog(tools=(FETCH.model_copy(update={"commands": ()}),)))
    relay.gate.update(Halt(since=NOON))
    taking = asyncio.create_task(relay.take(SAVE, check))
    await asyncio.sleep(0)
    relay.offers.replace(CATALOG)
    relay.gate.update(Halt(since=NOON, until=NOON, over=True))
    with pytest.raises(GiveUp, match="not signed"):
        await taking
    assert (executed(world), relay.slots.in_use("fetch")) == (0, 0)


async def test_a_write_that_was_requested_a_moment_ago_is_made_though_the_agent_that_is_asked_is_silent() -> None:
    async def no_answer(_: str) -> None:
        world.clock.advance(3)

    world, asked = World(), asked_for(a_request("save", deadline_at=NOON + timedelta(minutes=5), executor="us"))
    world.clock.advance(1)
    world.has_ended = no_answer  # type: ignore[method-assign, assignment]
    await world.relay().take(asked)
    assert outcomes(world) == ["ok"]


async def test_a_call_that_waits_is_told_until_it_is_made_or_given_up_with_what_it_has_waited_for() -> None:
    world, due = World(runner=BrokenRunner()), NOON + timedelta(minutes=5)
    first, second = (asked_for(a_request("save", step=step, deadline_at=due)) for step in (1, 2))
    relay = world.relay()
    world.runner.away = True
    for asked in (first, second):
        with pytest.raises(TryAgain):
            await relay.take(asked)
    assert relay.waiting.reported() == ()  # for a moment anything may wait
    world.clock.advance(10)
    call, _ = relay.waiting.reported()
    assert (call.run_id, call.step, call.tool, call.since) == (RUN, 1, "fetch", NOON)
    assert (call.until, call.why) == (due, "nothing answers at http://localhost:1")
    world.runner.away = False
    with relay.waiting.waiting(first, "stopped by \0"):
        assert relay.waiting.reported()[0].why == "stopped by  "
    await relay.take(first)
    assert [call.step for call in relay.waiting.reported()] == [2]
    world.clock.advance(600)
    await relay.take(second)
    assert (outcomes(world), relay.waiting.reported()) == (["in_doubt", "expired"], ())
    assert world.bus.results[1].error.message.endswith("It has waited: nothing answers at http://localhost:1")


@pytest.mark.parametrize("output", [nested(900), {"number": float("inf")}, {"number": float("nan")}])
@pytest.mark.parametrize(("command", "error_class"), [("handle", "bad_output"), ("save", "in_doubt")])
async def test_a_call_has_run_that_brings_what_no_event_can_carry_and_no_write_is_planned_again(
    output: dict[str, Any], command: str, error_class: str
) -> None:
    world, _ = await result_of(ToolOutcome("ok", text="done", output=output), asked_for(a_request(command)))
    assert (error_of(world).error_class, "the tool has run" in error_of(world).message) == (error_class, True)


async def test_what_finds_no_room_ends_the_step_at_once_with_the_remedy_and_the_start_of_its_text() -> None:
    async def full(*_: object, **__: object) -> None:
        raise NoRoom("the stream is full. Make room")

    world = World(runner=FakeRunner(ToolOutcome("ok", artifacts=(ProducedArtifact("a.txt", "text/plain", b"well"),))))
    world.artifacts.put = full
    await world.relay().take(asked_for())
    assert (error_of(world).error_class, error_of(world).retryable) == ("storage_full", False)
    assert error_of(world).message.startswith("the tool has run")
    assert error_of(world).message.endswith("Make room. It brought: well")


@pytest.mark.parametrize("outcome", [ToolOutcome("ok"), failed("tool_error", "no", retryable=False)])
async def test_a_result_brings_back_what_its_request_was_proved_with_and_no_tool_is_told_it_or_says_another(
    outcome: ToolOutcome,
) -> None:
    said: Any = {"capability": "k2.newer", "result": {"capability": "k2.newer"}}
    asked = asked_for(a_request().model_copy(update={"capability": "k1.first"}))
    world, result = await result_of(replace(outcome, output=said), asked)
    assert (result.capability, "k1.first" in str(world.runner.executed[0].payload)) == ("k1.first", False)


RETRIEVE = Retrieve(action="retrieve", query="what may be relaxed?", reason="unsat")


async def test_what_a_tool_needs_is_told_in_the_json_form_whichever_it_was_said_in() -> None:
    for outcome in (ToolOutcome("continuation", text="unsat", continuation=RETRIEVE), ToolOutcome("ok", text=FORM)):
        _, result = await result_of(outcome)
        assert (result.status, result.error, result.result and read_continuation(result.result)) == (
            "continuation",
            None,
            RETRIEVE,
        )
        assert result.result is not None
        assert result.result.model_dump(exclude_none=True) == {"summary": "unsat", "continuation": ASKS}


@pytest.mark.parametrize("declared", [{"output": "untrusted"}, {"continues": False}])
async def test_a_text_that_strangers_may_have_written_is_never_read_as_the_form(declared: dict[str, Any]) -> None:
    catalog = Catalog(tools=(FETCH.model_copy(update=declared),))
    for text in PAGES:
        _, result = await result_of(ToolOutcome("ok", text=text), catalog=catalog)
        assert (result.status, result.result and result.result.model_dump()["summary"]) == ("ok", text)
    _, own_word = await result_of(ToolOutcome("continuation", continuation=RETRIEVE), catalog=catalog)
    assert own_word.status == "continuation"


@pytest.mark.parametrize("tier", ["read", "write"])
async def test_a_tool_gets_the_content_of_an_artifact_in_place_of_its_path_also_when_it_is_resumed(tier: Any) -> None:
    world, asked = World(), asked_for(a_request("read", {"document": "artifacts/page.md", "n": 1}))
    command = ToolCommand(name="read", tier=tier, input_schema=DOCUMENT)
    catalog = Catalog(tools=(FETCH.model_copy(update={"commands": (command,)}),))
    world.artifacts.kept[f"{RUN}/page.md"] = "# é".encode(), "text/markdown"
    world.runner.gate.clear()
    async with beside(world.relay(catalog).take(asked)):
        await until(lambda: bool(world.runner.executed))
    world.runner.gate.set()
    await world.relay(catalog).take(asked)
    given = {"document": {"path": "artifacts/page.md", "content_type": "text/markdown", "text": "# é"}, "n": 1}
    assert [world.runner.executed[0].payload, *world.runner.resumed_with] == [given, given]


async def test_a_runner_forgets_a_call_once_its_result_is_published_also_by_the_next_gateway() -> None:
    world = World()
    world.bus.down = True
    await given_back(world, SAVE, "not connected")
    assert list(world.runner.left) == [SAVE.key]
    world.bus.down = False
    await world.relay().republish()
    assert (outcomes(world), executed(world), world.runner.left) == (["ok"], 1, {})


@pytest.mark.parametrize(("back", "told"), [("here", ["ok"]), ("there", [])])
async def test_a_gateway_that_is_back_goes_on_with_its_own_calls_before_their_requests_come_again(
    back: str, told: list[str]
) -> None:
    world = World()
    world.ledger.rows.by = "here"
    world.runner.gate.clear()
    async with beside(world.relay().take(SAVE)):
        await until(lambda: executed(world) == 1)
    world.ledger.rows.by = back
    await world.relay().go_on()
    assert (outcomes(world), executed(world)) == (told, 1)


@pytest.mark.parametrize(("command", "told", "runs"), [("save", "in_doubt", 1), ("handle", "ok", 2)])
async def test_a_write_that_was_begun_by_another_runner_is_in_doubt_after_the_settings_were_changed(
    command: str, told: str, runs: int
) -> None:
    world, rows = World(), memory_rows()
    world.ledger, asked = Ledger(rows, runner="plugins"), asked_for(a_request(command))
    world.runner.gate.clear()
    async with beside(world.relay().take(asked)):
        await until(lambda: executed(world) == 1)
    before, world.runner, world.ledger = world.runner, FakeRunner(), Ledger(rows, runner="ductile")
    await world.relay().take(asked)
    assert (outcomes(world), len(before.executed) + executed(world)) == ([told], runs)


async def test_a_write_that_a_living_gateway_makes_with_another_runner_is_left_to_it() -> None:
    async def lives(*_: object, **__: object) -> str:
        raise TryAgain("another gateway carries it out")

    world, rows = World(), memory_rows()
    world.ledger = Ledger(rows, runner="plugins")
    world.runner.gate.clear()
    async with beside(world.relay().take(SAVE)):
        await until(lambda: executed(world) == 1)
        world.ledger, world.ownership.lost = Ledger(rows, runner="ductile"), lives
        await given_back(world, SAVE, "another gateway carries it out")


async def test_a_call_that_cannot_be_gone_on_with_ends_no_gateway_that_starts() -> None:
    async def fails(answer: Call, *_: object) -> Call:
        raise RuntimeError(answer.key)

    world = World()
    world.runner.gate.clear()
    async with beside(world.relay().take(SAVE)):
        await until(lambda: executed(world) == 1)
    world.runner.gate.set()
    world.ledger.answer = fails
    await world.relay().go_on()
    assert outcomes(world) == []


async def test_a_call_whose_stored_request_is_not_readable_any_more_is_told_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.runner.gate.clear()
    async with beside(world.relay().take(SAVE)):
        await until(lambda: executed(world) == 1)
    (begun,) = world.ledger.begun_here()
    await world.ledger.rows.change(Call, lambda _: replace(begun, body=b"{}"), begun.key)
    await world.relay().go_on()
    assert (outcomes(world), "left to its request" in caplog.text) == ([], True)


async def test_an_artifact_never_takes_the_place_of_an_earlier_one_also_if_the_ledger_has_forgotten_that() -> None:
    world = World()
    for step in (1, 2, 3):
        if step == 2:
            world.ledger = Ledger(memory_rows())
        page = ProducedArtifact("critique.md", "text/markdown", f"of step {step}".encode())
        world.runner = FakeRunner(ToolOutcome("ok", artifacts=(page,)))
        await world.relay().take(asked_for(a_request(step=step)))
    paths = [result.result.artifact_path for result in world.bus.results if result.result]
    kept = [world.artifacts.kept[str(path).replace("artifacts", RUN, 1)][0] for path in paths]
    assert (paths[0], kept) == ("artifacts/critique.md", [b"of step 1", b"of step 2", b"of step 3"])


async def test_an_end_that_is_seen_after_the_call_was_answered_in_doubt_is_told_once_under_a_key_of_its_own() -> None:
    ended = JobFacts(ended_at=NOON + timedelta(seconds=90))
    saved, well = asked_for(a_request("save", attempt=2)), ToolOutcome("ok", text="written", job=ended)
    world = World()
    assert not await world.relay().report_late(saved.key, well)
    await world.ledger.intend(ToolCall(asked=saved, deadline_at=NOON, payload={}))
    assert not await world.relay().report_late(saved.key, well), "it is not answered yet"
    await world.relay().record(saved, failed("in_doubt", "nobody knows", retryable=False))
    assert await world.relay().report_late(saved.key, failed("bad_output", "no JSON", retryable=False))
    assert not world.bus.messages, "it is as much in doubt as before"
    for seconds in (90, 100):  # it died before it noted that it had told
        world.clock.advance(seconds)
        assert await world.relay().report_late(saved.key, well)
    (subject, key, body, headers), again = world.bus.messages
    assert again == (subject, key, body, headers)
    result, _ = world.bus.results
    assert (subject, key, headers["ce-id"]) == (subjects.TOOL_RESULT, keys.result(RUN, 1, 2) + keys.LATE_SUFFIX, key)
    assert (result.status, result.error, result.step, result.attempt) == ("ok", None, 1, 2)
    assert (result.result.model_dump()["summary"], (result.completed_at - NOON).seconds) == ("written", 90)
    in_time = World()
    await in_time.relay().record(saved, well)
    assert (await in_time.relay().report_late(saved.key, well), in_time.bus.messages) == (True, [])


@pytest.mark.parametrize("lapses", [1, 2])
async def test_no_write_is_begun_while_nobody_can_say_who_owns_the_bus_also_after_the_intent(lapses: int) -> None:
    async def held() -> None:
        if next(asked) == lapses:
            raise TryAgain("lapsed")

    world, asked = World(), count(1)
    world.ownership.lease.ensure_held = held
    await given_back(world, SAVE, "lapsed")
    assert (executed(world), await world.ledger.find(SAVE.key) is not None) == (0, lapses == 2)


async def test_a_write_that_another_gateway_may_have_begun_is_in_doubt_and_a_read_runs() -> None:
    world = World()
    world.ownership.doubt = lambda _: "another may have begun it"
    for step, command in enumerate(("save", "handle"), start=1):
        await world.relay().take(asked_for(a_request(command, step=step)))
    assert (outcomes(world), executed(world)) == (["in_doubt", "ok"], 1)


async def test_one_of_several_gateways_leaves_a_tool_that_it_does_not_have_to_the_others_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, asked = World(), asked_for(a_request(tool="shell"))
    world.ownership.link = object()
    await given_back(world, asked, "another gateway may have the tool")
    monkeypatch.setattr(ownership, "OTHERS_WITHIN_S", 0.0)
    await world.relay().take(asked)
    assert outcomes(world) == ["not_allowed"]
