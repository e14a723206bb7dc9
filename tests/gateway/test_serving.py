"""The gateway on a real bus: requests, results, errors that the operator has to fix; and as a process: started, killed,
taken over and asked for its metrics; and several of one bus."""

import asyncio
import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx2
import pytest
from nats.aio.msg import Msg

from agent_service.api.errors import ApiError, Code
from agent_service.api.micro import serve_on_bus
from agent_service.api.requests import StandingAnswer
from agent_service.bus.gateway import callback_flaw, statuses
from agent_service.bus.topology import topology
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.workbench.embedded_nats import EmbeddedNats
from ductile_gateway.bus.incoming import answer_callbacks, serve_endpoints
from ductile_gateway.bus.outgoing import NatsBus, has_ended
from ductile_gateway.bus.ownership import require_topology
from ductile_gateway.calls.call import Call
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from schemas import subjects
from schemas.events import Envelope, Rejected
from schemas.operations import BY_NAME
from schemas.status import Finding, GatewayStatus
from tests.gateway.ingress.kit import RESULT, Ingress, an_event
from tests.gateway.parts import RUN, World, a_request, ending, message_of
from tests.gateway.served import (
    Gateway,
    a_bus,
    all_acknowledged,
    consuming,
    record,
    requests_of,
    results,
    send,
)
from tests.kit.stack import lines, messages
from tests.kit.waiting import until


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_bus(link)
    return link


async def endings(bus: NatsLink) -> list[str]:
    """Endings of all calls, once they are settled."""
    await until(lambda: all_acknowledged(bus), within_s=30)
    return [ending(result) for result in await results(bus)]


async def test_a_call_outlives_a_stop_a_kill_and_a_take_over_of_its_gateway_and_runs_once(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    gateway = Gateway(tmp_path, nats_server.url, grace_s=0.2)
    await record(bus, tmp_path)
    with gateway.serving() as stopped:
        await until(lambda: lines(tmp_path / "marks" / "ran"), within_s=30)
        await stopped.end()
        assert await stopped.ended() == 0
    with gateway.serving() as killed:
        await until(lambda: gateway.starts() == 2, within_s=30)
        second = await asyncio.to_thread(gateway.run, "serve")
        assert (second.returncode, f"process {killed.pid}" in second.stderr) == (78, True)
        killed.kill()
    with gateway.serving() as blue:
        await until(lambda: gateway.starts() == 3, within_s=30)
        with gateway.serving("--take-over"):
            assert await blue.ended() == 78
            (tmp_path / "marks" / "go").touch()
            assert await endings(bus) == ["ok"]
    assert lines(tmp_path / "marks" / "ran") == 1


async def test_after_its_stream_was_made_anew_it_gives_its_newest_results_again_and_takes_requests(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    await record(bus, tmp_path)
    gateway = Gateway(tmp_path, nats_server.url)
    (tmp_path / "marks" / "go").touch()
    with gateway.serving():
        assert await endings(bus) == ["ok"]
        first = await results(bus)
        await bus.client.jetstream().delete_stream(subjects.STREAM_RESULTS)
        await a_bus(bus)
        await until(lambda: results(bus), lambda again: again == first)
        await record(bus, tmp_path, step=2)
        await until(lambda: results(bus), lambda both: len(both) == 2)
    assert lines(tmp_path / "marks" / "ran") == 2


async def test_a_gateway_at_work_names_no_run_in_its_metrics_and_tells_an_outage_of_the_bus_once(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    async def is_ready(*, ready: bool) -> bool:
        async with httpx2.AsyncClient(base_url=gateway.url, trust_env=False) as client:
            answer = await client.get("/readyz")
        assert (answer.status_code == 200) is answer.json()["ready"]
        return bool(answer.json()["ready"] is ready)

    gateway = Gateway(tmp_path, nats_server.url, runner="in_process", lease_s=60)
    await send(bus, a_request(tool="echo", payload={"a": 1}), "echo")
    with gateway.serving():
        assert await endings(bus) == ["ok"]
        await until(lambda: is_ready(ready=True), within_s=30)
        text = httpx2.get(f"{gateway.url}/metrics", trust_env=False).text
        nats_server.kill()
        await until(lambda: is_ready(ready=False), within_s=30)
        await until(lambda: "NATS is away" in gateway.log.read_text(), within_s=30)
        await nats_server.start()
        await until(lambda: is_ready(ready=True), within_s=30)
    assert ("agentic_ledger_open" in text, RUN in text) == (True, False)
    told = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    outages = [(line["level"], line["event"]) for line in told if "outage" in str(line.get("event"))]
    assert outages == [("WARNING", "outage_began"), ("WARNING", "outage_over")]


CALLS = 12


async def test_all_take_their_part_each_call_is_run_once_and_those_of_a_machine_that_died_are_in_doubt(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats
) -> None:
    def machine(name: str) -> Gateway:
        home, shared = tmp_path / name, {"store": "jetstream", "keys_file": str(tmp_path / "gateway.keys")}
        home.mkdir()
        settings = shared | {"cache": str(home / "copy"), "concurrency": CALLS}
        return Gateway(home, nats_server.url, marks=tmp_path / "marks", **settings)

    async def all_told() -> bool:
        return await all_acknowledged(link) and len(await results(link)) >= CALLS

    def ran() -> list[str]:
        path = tmp_path / "marks" / "ran"
        return path.read_text().splitlines() if path.exists() else []

    await set_up(link, topology(max_gib=1, shared=True))
    gateways = [machine(name) for name in ("one", "two", "three")]
    with ExitStack() as living:
        first, *_ = [living.enter_context(gateway.serving()) for gateway in gateways]
        await until(lambda: all(gateway.starts() for gateway in gateways), within_s=40)
        consumer = partial(link.client.jetstream().consumer_info, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
        await until(consumer, lambda info: (info.num_waiting or 0) >= len(gateways), within_s=40)
        for step in range(1, CALLS + 1):
            await record(link, tmp_path, step=step)
        await until(lambda: len(ran()) == CALLS, within_s=30)
        said = await statuses(link, within_s=10)
        parts = [len(list(gateway.config.parent.glob("copy/*/calls/*/*"))) for gateway in gateways]
        first.kill()
        (tmp_path / "marks" / "go").touch()
        await until(all_told, within_s=40)
        told = [ending(result) for result in await results(link)]
    assert (all(parts), sum(parts), len(set(ran())), len(ran())) == (True, CALLS, CALLS, CALLS)
    assert (told.count("in_doubt"), told.count("ok"), len(told)) == (parts[0], CALLS - parts[0], CALLS)
    assert (len({status.gateway for status in said}), {status.gateways for status in said}) == (3, {3})


def a_world(link: NatsLink) -> World:
    world = World()
    world.bus, world.artifacts = NatsBus(link), ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    return world


async def test_a_request_that_was_published_twice_has_one_result_and_one_that_is_refused_tells_who_asked(
    link: NatsLink,
) -> None:
    await a_bus(link)
    subject, body, headers = message_of(a_request())
    for msg_id in ("one", "two"):
        await link.publish(subject, body, msg_id=msg_id, headers=headers)
    await link.publish(subject, body.replace(b'"tool":"fetch"', b'"tool":"FETCH"'), msg_id="theirs", headers={})
    world = a_world(link)
    async with consuming(link, world.relay()):
        await until(lambda: all_acknowledged(link))
    assert (len(world.runner.executed), len(await results(link))) == (1, 1)
    message = await link.client.jetstream().get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    told = Envelope[Rejected].model_validate_json(message.data or b"").payload
    assert (told.subject, told.run_id, told.step) == (subject, RUN, 1)
    assert (told.msg_id, told.repeat_as, "payload.tool" in told.reason) == ("theirs", "theirs#2", True)


async def test_a_request_for_a_gateway_of_another_name_is_left_to_it(link: NatsLink) -> None:
    await a_bus(link)
    await send(link, a_request(executor="another"))
    world = a_world(link)
    world.ownership.link = link
    async with consuming(link, world.relay()):
        consumer = subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS
        await until(lambda: link.client.jetstream().consumer_info(*consumer), lambda info: info.num_redelivered)


async def test_an_event_from_outside_that_comes_again_is_no_strangers_message_under_our_id(
    link: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_bus(link)
    ingress = Ingress(bus=NatsBus(link))
    timeless = {name: value for name, value in RESULT.items() if name != "completed_at"}
    events = an_event(payload=timeless), an_event("agentic.start", {"goal": "Find it."})
    assert [(await ingress.relay(event)).status_code for event in events] == [202, 202]
    starts = await link.client.jetstream().pull_subscribe_bind(subjects.DURABLE_STARTS, subjects.STREAM_STARTS)
    (start,) = await starts.fetch(1)
    await start.ack_sync()  # the agent has taken it up
    ingress.clock.advance(1)
    monkeypatch.setattr(link.repeats.taken, "add", pytest.fail)
    assert [(await ingress.relay(event)).status_code for event in events] == [202, 202]
    assert len(await results(link)) == 1


async def fine() -> GatewayStatus:
    return GatewayStatus(version="1", findings=(Finding(name="gateway", mark="ok", text="as it should be"),))


async def test_a_server_that_was_not_set_up_is_named_with_the_remedy(link: NatsLink) -> None:
    with pytest.raises(Misconfigured, match=r"stream AGENTIC.*consumer tools.*agentic setup"):
        await require_topology(link)
    await a_bus(link)
    await require_topology(link)


@pytest.mark.parametrize("error", [Broken, Misconfigured])
async def test_trouble_of_its_own_ends_the_gateway_and_buries_no_request(
    link: NatsLink, error: type[Exception]
) -> None:
    async def fails(*_: object) -> Call:
        raise error("the disk failed")

    await a_bus(link)
    await send(link, a_request())
    world = a_world(link)
    world.ledger.answer = fails
    with pytest.raises(ExceptionGroup) as failure:
        await requests_of(link, world.relay()).run()
    assert failure.group_contains(error, match="the disk failed")
    buried = [message async for message in messages(link, subjects.DEAD_LETTERS_TOOLS)]
    assert (buried, await all_acknowledged(link)) == ([], False)


async def test_what_is_no_answer_says_nothing_of_a_run_and_every_agent_is_asked_if_the_first_is_silent(
    link: NatsLink,
) -> None:
    async def silent(_: Msg) -> None: ...

    async def says_it_ended(message: Msg) -> None:
        await message.respond(b'{"status": "cancelled"}')

    async def says_nonsense(message: Msg) -> None:
        await message.respond(nonsense)

    other = await link.subscribe(subjects.RUN_STANDING, says_nonsense)
    for nonsense in (b"hello", b"[]", b"{}", b'{"status": []}', b'{"status": 403}', b"[" * 10**5):
        assert await has_ended(link, RUN) is None, nonsense
    await other.unsubscribe()
    await link.subscribe(subjects.RUN_STANDING, silent)
    assert await has_ended(link, RUN) is None
    await link.subscribe(subjects.RUN_STANDING + subjects.EACH, says_it_ended)
    assert await has_ended(link, RUN) is True


async def test_the_agent_hears_why_a_callback_would_never_be_called_and_nothing_where_nobody_answers(
    link: NatsLink,
) -> None:
    async def flaw_of(url: str) -> str:
        return f"not {url}"

    assert await callback_flaw(link, "https://10.0.0.7") == ""
    async with serve_endpoints(link, fine) as service:
        await answer_callbacks(service, flaw_of)
        assert await callback_flaw(link, "https://10.0.0.7") == "not https://10.0.0.7"


class Standing:
    said: Status | Exception = Status.RUNNING

    async def standing(self, run_id: str) -> StandingAnswer:
        if isinstance(self.said, Exception):
            raise self.said
        return StandingAnswer(run_id=run_id, status=self.said)


STANDINGS: list[tuple[Status | Exception, bool | None]] = [
    (Status.PAUSED, False),
    (Status.CANCELLED, True),
    (ApiError(Code.UNKNOWN_RUN, "there is no run of this id"), False),
    (ApiError(Code.GONE, "it was deleted"), True),
    (TryAgain("the log has no leader"), None),
    (Damaged(RUN, "its state"), None),
    (ValueError("a fault of the agent"), None),
]


async def test_an_agent_that_cannot_tell_whether_a_run_goes_on_says_neither_that_it_does_nor_that_it_has_ended(
    link: NatsLink,
) -> None:
    assert await has_ended(link, RUN) is None
    agent = Standing()
    service = await serve_on_bus(link, [agent], [BY_NAME["standing"]])
    for agent.said, expected in STANDINGS:
        assert await has_ended(link, RUN) is expected, agent.said
    await service.stop()
