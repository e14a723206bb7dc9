"""A sub-request of a step goes through the gateway as the step's own request does, under its own names."""

import json
from typing import Any

import pytest

from ductile_gateway.calls.call import CALL_ID, Unacceptable, read_request
from ductile_gateway.store.ledger import SqliteLedger
from schemas import keys
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from tests.gateway.ingress_house import RESULT, House, an_event
from tests.gateway.parts import RUN, World, a_request, asked_for, message_of, offering
from tests.gateway.stores import opened

SUB = ("task-1", 2)
STRICT = {"type": "object", "properties": {"query": {"type": "string"}}, "additionalProperties": False}
READER = {"type": "object", "properties": {"evidence": {"type": "string"}}}


async def test_a_step_and_its_sub_requests_are_calls_of_their_own() -> None:
    world = World()
    asked = [asked_for(a_request(of=of)) for of in (None, SUB, ("task-1", 3), ("task-2", 2))]
    for one in (*asked, *asked):
        await world.relay().take(one)
    assert len(world.runner.executed) == len({one.key for one in asked}) == 4
    told = [(result.task, result.round) for result in world.bus.results]
    assert told == [(None, None), SUB, ("task-1", 3), ("task-2", 2)] * 2


@pytest.mark.parametrize("half", [{"task": "task-1"}, {"round": 2}])
async def test_a_request_that_names_half_of_a_sub_request_is_refused_and_a_result_is_the_agent_s_to_place(
    half: dict[str, Any],
) -> None:
    subject, body, headers = message_of(a_request())
    message = json.loads(body)
    with pytest.raises(Unacceptable):
        read_request(subject, json.dumps(message | {"payload": message["payload"] | half}).encode(), headers)
    house = House()
    assert (await house.relay(an_event(payload=RESULT | half))).status_code == 202
    assert house.events()[0]["dedupe_key"] == keys.result(RUN, 1, 1)


async def test_a_ledger_that_is_opened_again_knows_of_which_sub_request_an_answer_is(tmp_path: Any) -> None:
    asked = asked_for(a_request(of=SUB))
    async with opened(tmp_path, SqliteLedger) as ledger:
        await World(ledger=ledger).relay().take(asked)
    async with opened(tmp_path, SqliteLedger) as ledger:
        world = World(ledger=ledger)
        await world.relay().take(asked)
    assert (world.runner.executed, world.bus.messages[0][1]) == ([], keys.result(RUN, 1, 1, *SUB))


@pytest.mark.parametrize(
    ("schema", "of", "refused"),
    [
        (STRICT, SUB, False),
        (STRICT, None, True),
        (READER, SUB, True),
    ],
)
def test_evidence_is_held_against_a_schema_that_knows_it_and_is_no_argument_of_any_other(
    schema: dict[str, Any], of: tuple[str, int] | None, refused: bool
) -> None:
    offer = ToolOffer(name="t", route="t", commands=(ToolCommand(name="c", tier="read", input_schema=schema),))
    payload = {"evidence": [{"result": {}}], "continuations": 1, "continuations_left": 2}
    asked = asked_for(a_request("c", payload, tool="t", of=of), "t")
    assert bool(offering(Catalog(tools=(offer,))).flaw(asked)) is refused


@pytest.mark.parametrize(
    ("call_id", "named"),
    [
        (keys.call(RUN, 2, "fetch", 1, *SUB), SUB),
        (keys.call(RUN, 2, "fetch", 1), (None, None)),
        (keys.call("run_of_another", 2, "fetch", 1, *SUB), (None, None)),
        ("anything", (None, None)),
        (7, (None, None)),
    ],
)
async def test_an_event_whose_baggage_has_the_call_id_answers_that_sub_request(call_id: Any, named: Any) -> None:
    house = House()
    baggage = {"run_id": RUN, "step": 2, "tool": "fetch", CALL_ID: call_id}
    answer = await house.relay(an_event("report.done", {"text": "found"}, baggage=baggage))
    assert answer.status_code == 202
    (event,) = house.events()
    assert (event["payload"].get("task"), event["payload"].get("round")) == named
    assert event["dedupe_key"] == keys.result(RUN, 2, 1, *named)
