"""Results from outside, too large for an event: stored as artifacts, and named as those of our own tools are."""

import hashlib
import json
from typing import Any

import pytest

from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus
from ductile_gateway.ingress.results import MAX_INLINE_BYTES
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.events import ARTIFACT_PATH, ToolResult
from tests.gateway.ingress_house import RESULT, House, an_event, error_of
from tests.gateway.on_nats import a_bus, results
from tests.gateway.parts import RUN

PAGE = "# A page\n" + "A line of it — ü.\n" * 1000
LINKS = [f"https://example.org/{number:04d}" for number in range(1000)]


def a_result(result: Any, **others: Any) -> dict[str, Any]:
    return an_event(payload=RESULT | {"result": result} | others)


def told(house: House) -> dict[str, Any]:
    """What the only event on the bus says of the result."""
    (event,) = house.events()
    result: dict[str, Any] = event["payload"]["result"]
    return result


async def test_a_large_result_is_an_artifact_that_the_event_names() -> None:
    house = House()
    answer = await house.relay(a_result({"summary": "Fetched it", "links": LINKS}))
    assert answer.status_code == 202
    [((run_id, name), (content, content_type))] = house.artifacts.kept.items()
    assert run_id == RUN
    assert json.loads(content) == {"links": LINKS}
    result = told(house)
    assert (result["summary"], result["artifact_path"]) == ("Fetched it", f"artifacts/{name}")
    assert ARTIFACT_PATH.fullmatch(result["artifact_path"])
    assert result["content_type"] == content_type == "application/json"
    assert result["excerpt"].startswith('{\n"links": [\n"https://example.org/0000"')
    assert result["artifacts"] == [
        {
            "path": f"artifacts/{name}",
            "content_type": "application/json",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    ]


async def test_what_an_event_can_carry_is_carried_as_it_is() -> None:
    house = House()
    room = MAX_INLINE_BYTES - len(json.dumps({"text": ""}, separators=(",", ":")))
    await house.relay(a_result({"text": "x" * room}))
    assert told(house) == {"text": "x" * room}
    assert house.artifacts.kept == {}
    house = House()
    await house.relay(a_result({"text": "x" * (room + 1)}))
    assert "text" not in told(house)


async def test_the_same_delivery_again_is_the_same_artifact_whatever_broke_in_between() -> None:
    house = House()
    house.bus.down = True
    assert (await house.relay(a_result(PAGE))).status_code == 503
    house.bus.down = False
    house.clock.pass_by(60)
    for _ in range(2):
        answer = await house.relay(a_result(PAGE), timestamp="2026-11-21T12:01:00Z")
        assert answer.status_code == 202
    assert len(house.artifacts.kept) == 1
    assert len(house.bus.messages) == 1


async def test_another_delivery_for_the_same_step_replaces_nothing_that_the_journal_knows() -> None:
    house = House()
    for number in range(2):
        event = a_result(f"{PAGE}{number}")
        await house.relay(event | {"origin": {"job_id": "job", "event_id": str(number)}})
    for result in house.bus.results:
        assert result.result is not None
        about = result.result.model_dump()["artifacts"][0]
        content, _ = house.artifacts.kept[RUN, about["path"].removeprefix("artifacts/")]
        assert hashlib.sha256(content).hexdigest() == about["sha256"]


@pytest.mark.parametrize("run_id", ["../other", "run/other", "", "x" * 129, 7, None, "run:1"])
async def test_for_what_is_no_name_of_a_run_nothing_is_stored(run_id: Any) -> None:
    house = House()
    answer = await house.relay(a_result(PAGE, run_id=run_id))
    assert answer.status_code == 422
    assert "other" not in error_of(answer)
    assert house.artifacts.kept == {}
    assert house.bus.messages == []


async def test_in_the_bucket_it_is_what_the_event_on_the_bus_says(link: NatsLink) -> None:
    await a_bus(link)
    bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    house = House(bus=NatsBus(link), artifacts=NatsArtifacts(bucket))
    for _ in range(2):
        assert (await house.relay(a_result({"content": PAGE, "links": LINKS}))).status_code == 202
    (result,) = await results(link)
    stored = await bucket.list(f"{RUN}/")
    assert len(stored) == 2
    assert {(one.key, one.size, one.sha256) for one in stored} == {_described(one) for one in _listed(result)}


def _listed(result: ToolResult) -> list[dict[str, Any]]:
    assert result.result is not None
    listed: list[dict[str, Any]] = result.result.model_dump()["artifacts"]
    return listed


def _described(about: dict[str, Any]) -> tuple[str, int, str]:
    return about["path"].replace("artifacts", RUN), about["size"], about["sha256"]
