"""Operations on the service: health, tools, diagnosis, and shutdown."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.api import service
from agent_service.api.http import create_app
from agent_service.api.inspection import WhyCalls
from agent_service.api.service import ServiceCalls
from agent_service.settings import AgentSettings
from agent_service.views.why import MessageLocation
from groundwork.service.errors import TryAgain
from groundwork.telemetry.metrics import Instruments
from schemas import keys, subjects
from schemas.catalog import Catalog, ToolCommand
from schemas.status import Finding
from schemas.values import replace
from tests.http.house import House, Nowhere, no_gateway, no_metrics, service_calls
from tests.kit.runs import NOON, SEARCH, run_id, whole_run


async def test_ready_is_said_of_each_thing_that_is_needed_with_what_is_wrong_and_health_of_each_part(
    client: httpx2.AsyncClient, house: House
) -> None:
    checks = dict.fromkeys(("bus", "store", "skills", "halt"), "ok")
    async with house.client(None) as probe:
        answer = await probe.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"ready": True, "checks": checks, "store": ""})
        for what in ("bus", "store", "skills"):
            house.wrong.clear()
            house.wrong[what] = "it is away"
            answer = await probe.get("/readyz")
            assert (answer.status_code, answer.json()["ready"]) == (503, False)
            assert answer.json()["checks"] == checks | {what: "it is away"}
    told = (await client.get("/v1/health")).json()["checks"]
    assert {(check["part"], check["name"], check["mark"]) for check in told} == {
        ("nats", "bus", "ok"),
        ("store", "store", "ok"),
        ("gateway", "skills", "wrong"),
        ("agent", "halt", "ok"),
    }
    (skills,) = (check for check in told if check["name"] == "skills")
    assert (skills["text"], bool(skills["remedy"])) == ("it is away", True)


async def test_a_part_that_fails_or_hangs_takes_no_other_from_health_and_a_lack_of_room_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("WITHIN_S", "READY_WITHIN_S"):
        monkeypatch.setattr(service, limit, 0.01)

    async def broken() -> Sequence[Finding]:
        raise RuntimeError

    async def hanging() -> Sequence[Finding]:
        await asyncio.Event().wait()
        return ()

    async def ready() -> Mapping[str, str]:
        return {"room": "the disk is full: make room on it"}

    model, slow, room = (await serving(ready, probes={"model": broken, "gateway": hanging}).show_health()).checks
    assert (model.part, model.mark, "RuntimeError" in model.text) == ("model", "warning", True)
    assert (slow.part, slow.mark, "within 0.01 s" in slow.text) == ("gateway", "warning", True)
    assert (await serving(hanging).readyz()).http_status == 503
    assert (room.part, room.mark, "what the text names" in (room.remedy or "")) == ("nats", "wrong", True)


async def test_a_fault_of_ours_says_nothing_of_itself(house: House, tmp_path: Path) -> None:
    async def broken() -> Mapping[str, str]:
        raise RuntimeError(f"secret at {tmp_path}")

    settings = AgentSettings()
    app = create_app((serving(broken), *house.services), settings, Instruments())
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "broken")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


class Offered:
    """Skills of two executors; one is silent."""

    async def catalog(self) -> Catalog:
        pin = ToolCommand(name="pin", tier="write", effect="external", approve="always")
        board = {"name": "board", "executor": "boards", "commands": (pin,), "output": "untrusted"}
        here = SEARCH.model_copy(update={"executor": "ductile-gateway"})
        return Catalog(tools=(here, SEARCH.model_copy(update=board)))

    def present(self) -> frozenset[str]:
        return frozenset({"ductile-gateway"})


def serving(readiness: Any, **more: Any) -> ServiceCalls:
    return service_calls(readiness, skills=Offered(), **more)


async def test_each_tool_says_who_offers_it_and_what_its_commands_take() -> None:
    problems = ["agent.tools names serach, which no executor offers"]
    told = await serving(no_metrics, problems=lambda: problems).list_tools()
    board, search = told.tools
    assert (board.name, board.executor, board.present, board.output) == ("board", "boards", False, "untrusted")
    (pin,) = board.commands
    assert (pin.name, pin.tier, pin.effect, pin.approve) == ("pin", "write", "external", "always")
    assert (search.name, search.present) == ("search", True)
    assert search.commands[0].input_schema["required"] == ["text"]
    assert told.problems == ("agent.tools names serach, which no executor offers",)


async def test_why_a_run_waits_is_asked_of_the_bus_by_its_attempt_and_of_its_own_dead_letters(house: House) -> None:
    async def ready() -> Mapping[str, str]:
        return {"bus": ""}

    run = await house.play(whole_run(1)[:4])
    for one in (run, run_id(2)):
        house.letters.put(b"{}", subject=subjects.TOOL_RESULT, run_id=one, Reason=f"of {one}")
    finder = Nowhere()
    calls = WhyCalls(house.store, finder.locate, house.letters, Offered(), no_gateway, ready)
    view = await calls.show_why(run)
    assert sorted(finder.asked) == [
        (subjects.STREAM_REQUESTS, subjects.tool_request("web-search"), keys.request(run, 1, 1)),
        (subjects.STREAM_RESULTS, subjects.TOOL_RESULT, keys.result(run, 1, 1)),
    ]
    assert [fact.text for fact in view.facts if fact.what == "dead letter"] == [f"1, of agentic.tool_result: of {run}"]

    async def located(stream: str, *_: object) -> MessageLocation:
        if stream == subjects.STREAM_RESULTS:
            raise TryAgain("too many messages")
        return MessageLocation(stream=stream, seq=7, at=NOON, consumers=())

    house.letters.away = TryAgain("no letters")
    facts = {fact.what: fact.text for fact in (await replace(calls, locate=located).show_why(run)).facts}
    assert ("7" in facts["request"], facts["bus"]) == (True, "no letters; too many messages")
