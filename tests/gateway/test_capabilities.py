"""What a request is proved with comes back with its result, on every way, and with nothing that others wrote."""

from typing import Any

import pytest

from ductile_gateway.calls.call import CALL_ID, Asked, ToolOutcome, failed
from ductile_gateway.ductile.relay_wire import of_call
from schemas.events import ToolResult
from tests.gateway.ingress_house import RESULT, House, an_event
from tests.gateway.parts import RUN, FakeRunner, World, a_request, asked_for, outcomes

GIVEN, NEWER = "k1.first", "k2.newer"
BAGGAGE = {"run_id": RUN, "step": 2, "tool": "fetch"}


def proved(capability: str | None = GIVEN, command: str = "handle", **more: Any) -> Asked:
    return asked_for(a_request(command, **more).model_copy(update={"capability": capability}))


def brought(world: World) -> list[str | None]:
    return [result.capability for result in world.bus.results]


@pytest.mark.parametrize(
    "outcome",
    [ToolOutcome("ok", text="done"), failed("tool_error", "no", retryable=False), ToolOutcome("ok", text="x" * 99_999)],
    ids=["ok", "error", "large"],
)
async def test_a_result_brings_back_what_its_request_was_proved_with(outcome: ToolOutcome) -> None:
    world = World(runner=FakeRunner(outcome))
    await world.relay().take(proved())
    assert brought(world) == [GIVEN]


async def test_a_tool_is_neither_told_it_nor_can_it_say_another() -> None:
    said: Any = {"capability": NEWER, "result": {"capability": NEWER}}
    world = World(runner=FakeRunner(ToolOutcome("ok", text=NEWER, output=said)))
    await world.relay().take(proved())
    assert GIVEN not in str(world.runner.executed[0].payload)
    assert brought(world) == [GIVEN]


def test_a_call_by_event_carries_it_where_pipelines_find_it_and_arguments_do_not_change_it() -> None:
    event = of_call("t", proved(), {"url": "x", "capability": NEWER, CALL_ID: "call"})
    assert event.payload["capability"] == event.baggage["capability"] == GIVEN
    assert "capability" not in of_call("t", proved(None), {"capability": NEWER}).payload


async def relayed(event: dict[str, Any], **house: Any) -> str | None:
    """What the result on the bus brings back."""
    ingress = House(**house)
    assert (await ingress.relay(event)).status_code == 202
    result = ToolResult.model_validate(ingress.events()[0]["payload"])
    assert "capability" not in (result.result.model_dump() if result.result else {})
    return result.capability


@pytest.mark.attack(47, 98)
@pytest.mark.parametrize(
    ("event", "capability"),
    [
        (an_event("report.done", {"text": "found"}, baggage=BAGGAGE | {"capability": GIVEN}), GIVEN),
        (an_event("report.done", {"capability": NEWER}, baggage=BAGGAGE | {"capability": GIVEN}), GIVEN),
        (an_event("report.done", {"capability": NEWER, "result": {"capability": NEWER}}, baggage=BAGGAGE), None),
        (an_event(payload=RESULT | {"capability": GIVEN}), GIVEN),
        (an_event(payload=RESULT | {"capability": NEWER}, baggage={"capability": GIVEN}), GIVEN),
        (an_event(payload=RESULT | {"result": {"capability": NEWER}}), None),
    ],
    ids=["baggage", "not the payload", "never the payload", "a result's own", "baggage first", "not what it brought"],
)
async def test_an_answer_from_ductile_brings_that_of_its_context(event: dict[str, Any], capability: str | None) -> None:
    assert await relayed(event) == capability


@pytest.mark.attack(47)
async def test_arguments_cannot_be_called_so() -> None:
    world = World()
    await world.relay().take(proved(payload={"url": "http://example.org", "Capability": NEWER}))
    assert (outcomes(world), brought(world)) == (["invalid_arguments"], [GIVEN])
