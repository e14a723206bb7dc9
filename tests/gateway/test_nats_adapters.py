"""The gateway on a real bus: requests in, results out, the catalog told, and trouble called by its name."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.gateway import NatsCallbacks
from ductile_gateway.bus.micro_service import serve_questions
from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus, NatsRuns
from ductile_gateway.bus.prerequisites import ack_wait, require
from ductile_gateway.bus.requests import NatsRequests
from ductile_gateway.calls.call import Answer, ProducedArtifact, ToolOutcome
from ductile_gateway.ports import CannotKeep, unrecorded
from ductile_gateway.store.ledger import SqliteLedger
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from schemas import keys, subjects
from schemas.catalog import Catalog
from schemas.events import Envelope, Rejected
from schemas.gateway_status import Finding, GatewayStatus
from tests.gateway.on_nats import a_bus, all_acknowledged, consuming, dead_letters, results, send
from tests.gateway.parts import CATALOG, RUN, TRACE, FakeRunner, MemoryLedger, World, a_request, message_of, offering
from tests.gateway.stores import opened
from tests.kit.bus import server_with
from tests.kit.waiting import until


def a_world(link: NatsLink, **parts: Any) -> World:
    return World(bus=NatsBus(link), artifacts=NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET)), **parts)


async def test_a_result_is_stored_under_its_key_with_the_trace_of_its_request(link: NatsLink) -> None:
    await a_bus(link)
    await send(link, a_request(attempt=2))
    async with consuming(link, a_world(link).relay()):
        await until(lambda: all_acknowledged(link))
    message = await link.jetstream.get_last_msg(subjects.STREAM_RESULTS, subjects.TOOL_RESULT)
    assert message.headers is not None
    assert message.headers["Nats-Msg-Id"] == keys.result(RUN, 1, 2)
    assert message.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert message.headers["Agentic-Run-Id"] == RUN


async def test_a_request_that_was_published_twice_has_one_result(link: NatsLink) -> None:
    await a_bus(link)
    subject, body, headers = message_of(a_request())
    for msg_id in ("one", "two"):
        await link.publish(subject, body, msg_id=msg_id, headers=headers)
    world = a_world(link)
    async with consuming(link, world.relay()):
        await until(lambda: all_acknowledged(link))
    assert len(world.runner.executed) == 1
    assert len(await results(link)) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe{", b"[" * 10_000, json.dumps({"type": "agentic.start", "payload": {"goal": "x"}}).encode()],
)
async def test_a_message_that_is_no_request_is_buried_and_holds_up_nobody(link: NatsLink, body: bytes) -> None:
    await a_bus(link)
    await link.publish(subjects.tool_request("jina-reader"), body, msg_id="bad", headers={})
    await send(link, a_request())
    async with consuming(link, a_world(link).relay()):
        await until(lambda: all_acknowledged(link))
    assert await dead_letters(link) == [body]
    assert [result.status for result in await results(link)] == ["ok"]


async def test_who_asked_is_told_that_the_request_was_refused_and_how_to_correct_it(link: NatsLink) -> None:
    await a_bus(link)
    subject, body, _ = message_of(a_request())
    broken = body.replace(b'"tool":"fetch"', b'"tool":"FETCH"')
    await link.publish(subject, broken, msg_id="theirs", headers={})
    async with consuming(link, a_world(link).relay()):
        await until(lambda: all_acknowledged(link))
    message = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    told = Envelope[Rejected].model_validate_json(message.data or b"").payload
    assert (told.subject, told.run_id, told.step) == (subject, RUN, 1)
    assert (told.msg_id, told.repeat_as) == ("theirs", "theirs#2")
    assert "payload.tool" in told.reason


async def test_another_request_under_a_key_that_is_taken_is_buried(link: NatsLink) -> None:
    await a_bus(link)
    await send(link, a_request())
    subject, body, headers = message_of(a_request(payload={"url": "http://other.example"}))
    await link.publish(subject, body, msg_id="forged", headers=headers)
    async with consuming(link, a_world(link).relay()):
        await until(lambda: all_acknowledged(link))
    assert await dead_letters(link) == [body]
    assert len(await results(link)) == 1


async def test_results_of_any_size_reach_the_agent(link: NatsLink, tmp_path: Path) -> None:
    await a_bus(link)
    page = ProducedArtifact("page.html", "text/html", b"<p>x</p>" * 500_000)
    outcome = ToolOutcome("ok", text="é" * 50_000, output={"rows": ["x" * 100] * 5000}, artifacts=(page,))
    await send(link, a_request())
    async with opened(tmp_path, SqliteLedger) as ledger:
        world = a_world(link, ledger=ledger, runner=FakeRunner(outcome))
        async with consuming(link, world.relay()):
            await until(lambda: all_acknowledged(link))
    (result,) = await results(link)
    assert result.result is not None
    paths = [one["path"] for one in result.result.model_dump()["artifacts"]]
    assert paths == ["artifacts/fetch-01.html", "artifacts/fetch-01.txt", "artifacts/fetch-01.json"]
    assert len(await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).get(f"{RUN}/fetch-01.html")) == 4_000_000


async def test_a_slow_tool_does_not_keep_a_fast_one_waiting(link: NatsLink) -> None:
    await a_bus(link)
    fast = CATALOG.tools[0].model_copy(update={"name": "fast", "route": "fast"})
    world = a_world(link)
    world.runner = _SlowFetch()
    for step in range(1, 31):
        await send(link, a_request(step=step))
    await send(link, a_request(step=99, tool="fast"), "fast")
    offers = offering(Catalog(revision="1", tools=(*CATALOG.tools, fast)))
    async with consuming(link, world.relay(offers.catalog, offers=offers, width=2, room=4), offers):
        await until(lambda: _answered(link, "fast"))
        assert not await _answered(link, "fetch")
        world.runner.gate.set()


class _SlowFetch(FakeRunner):
    def __init__(self) -> None:
        super().__init__()
        self.gate.clear()

    async def run(self, call: Any, begin: Any = unrecorded) -> Any:
        return self.verdict if call.plugin == "fast" else await super().run(call, begin)


async def _answered(link: NatsLink, tool: str) -> bool:
    return any(result.tool == tool for result in await results(link))


async def test_an_artifact_from_the_bus_is_found_by_run_and_name_only(link: NatsLink) -> None:
    await a_bus(link)
    artifacts = NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))
    await artifacts.put(RUN, "a.md", b"# A", "text/markdown")
    await artifacts.put(RUN, "a.md", b"# A again", "text/markdown")
    assert await artifacts.get(RUN, "a.md") == b"# A again"
    assert await artifacts.get(RUN, "b.md") is None
    assert await artifacts.get("run:1", "a.md") is None
    with pytest.raises(CannotKeep):
        await artifacts.put("run:1", "a.md", b"", "text/markdown")


async def fine() -> GatewayStatus:
    return GatewayStatus(version="1", findings=(Finding(name="gateway", mark="ok", text="as it should be"),))


async def test_the_catalog_and_how_the_gateway_is_are_told_to_whoever_asks(link: NatsLink) -> None:
    async with serve_questions(link, fine) as questions:
        await questions.answer_catalog(lambda: CATALOG, executor="hands")
        assert Catalog.model_validate_json(await link.request(subjects.CATALOG, b"")) == CATALOG
        assert GatewayStatus.model_validate_json(await link.request(subjects.STATUS, b"")) == await fine()
        service = json.loads(await link.request("$SRV.INFO.ductile-gateway", b""))
        assert {endpoint["subject"] for endpoint in service["endpoints"]} == {subjects.CATALOG, subjects.STATUS}


async def test_a_gateway_that_does_not_know_its_tools_yet_tells_how_it_is_and_no_catalog(link: NatsLink) -> None:
    async with serve_questions(link, fine):
        assert await link.request(subjects.STATUS, b"")
        with pytest.raises(TryAgain):
            await link.request(subjects.CATALOG, b"")


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        (b'{"status": "cancelled"}', True),
        (b'{"status": "escalated"}', True),
        (b'{"status": "running"}', False),
        (b'{"status": "paused"}', False),
        (b"", False),
        (b"[]", False),
        (None, None),
    ],
)
async def test_a_run_has_ended_when_the_agent_says_so(link: NatsLink, answer: bytes | None, ended: bool | None) -> None:
    asked: list[bytes] = []

    async def tell(message: Any) -> None:
        asked.append(message.data)
        await message.respond(answer)

    if answer is not None:
        await link.subscribe(subjects.RUN_STATUS, tell)
    assert await NatsRuns(link).has_ended(RUN) is ended
    assert [json.loads(question) for question in asked] == [{"run_id": RUN, "brief": True}] * (answer is not None)


async def test_a_server_that_was_not_set_up_is_named_with_the_remedy(link: NatsLink) -> None:
    with pytest.raises(Misconfigured, match=r"stream AGENTIC.*consumer tools.*agentic setup"):
        await require(link)
    await a_bus(link)
    await require(link)
    assert await ack_wait(link) == 5


async def test_a_server_for_small_messages_only_is_refused(tmp_path: Path, unused_port: int) -> None:
    config = {"max_payload": 65536, "jetstream": {"store_dir": str(tmp_path / "store")}}
    async with server_with(tmp_path, unused_port, config) as address:
        link = await connect(NatsSettings(urls=(f"nats://{address}",)))
        with pytest.raises(Misconfigured, match="max_payload"):
            await require(link)
        await link.close()


@pytest.mark.parametrize("error", [Broken, Misconfigured])
async def test_trouble_of_its_own_ends_the_gateway_and_buries_no_request(
    link: NatsLink, error: type[Exception]
) -> None:
    class Failing(MemoryLedger):
        async def answer(self, _: object) -> Answer:
            raise error("the disk failed")

    await a_bus(link)
    await send(link, a_request())
    relay = a_world(link, ledger=Failing()).relay()
    requests = NatsRequests(link, relay, offering(CATALOG), slots=8, in_progress_s=1, grace_s=1)
    with pytest.raises(ExceptionGroup) as failure:
        await requests.run()
    assert failure.group_contains(error, match="the disk failed")
    assert await dead_letters(link) == []
    assert not await all_acknowledged(link)


async def test_without_a_stream_a_result_waits_for_one_and_says_what_to_do(link: NatsLink) -> None:
    with pytest.raises(TryAgain, match="agentic setup"):
        await NatsBus(link).publish(subjects.TOOL_RESULT, b"{}", key="key", headers={})


async def test_a_connection_that_was_closed_is_not_to_be_tried_again(link: NatsLink) -> None:
    await link.close()
    with pytest.raises((Broken, TryAgain)):
        await NatsBus(link).publish(subjects.TOOL_RESULT, b"{}", key="key", headers={})


async def test_the_agent_hears_why_a_callback_would_never_be_called_and_nothing_where_nobody_answers(
    link: NatsLink,
) -> None:
    callbacks = NatsCallbacks(link)
    assert await callbacks.flaw("https://10.0.0.7") == ""
    async with serve_questions(link, fine) as questions:

        async def flaw_of(url: str) -> str:
            return f"not {url}"

        await questions.answer_callbacks(flaw_of)
        assert await callbacks.flaw("https://10.0.0.7") == "not https://10.0.0.7"
