"""`agentic dlq` over a real server: what was refused is listed, shown, sent again or dropped."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agent_service.archive.tombstones import Tombstone
from agent_service.background import Background
from agent_service.bus.dead_letters import NatsDeadLetters, retry_id
from agent_service.bus.messages import NatsIntake
from agent_service.bus.topology import topology
from agent_service.cli.errors import Exit
from agent_service.cli.services.dead_letters import who
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import Status
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.child_results import ChildResults
from agent_service.run.intake import Intake, NewRuns, Results
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from groundwork.telemetry.metrics import Instruments
from schemas import keys, subjects
from tests.cli.calling import Called, agentic_here
from tests.kit.fakes import MemoryStore
from tests.kit.runs import NOON, run_id
from tests.kit.waiting import until
from tests.shell.world import Offer, World

TOO_MUCH = {"goal": "append", "constraints": {"max_steps": 30}}
Dlq = Callable[..., Coroutine[Any, Any, Called]]


@pytest.fixture
def dlq(nats_server: EmbeddedNats, tmp_path: Path) -> Dlq:
    """The command, as somebody calls it who has nothing but the address of the bus."""
    config = tmp_path / "agentic.yaml"
    config.write_text(json.dumps({"nats": {"urls": [nats_server.url]}}))

    async def called(*arguments: str) -> Called:
        return await asyncio.to_thread(agentic_here, "dlq", *arguments, "--config", config, COLUMNS="200")

    return called


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await create_missing(link, topology(max_gib=1))
    return link


@contextlib.asynccontextmanager
async def an_agent(link: NatsLink, *, cap_steps: int = 20) -> AsyncIterator[World]:
    """The agent's intake on the bus, with a world of its own behind it."""
    world = World()
    policy = LimitPolicy(defaults=Limits(deadline_at=NOON), cap_steps=cap_steps)
    incoming, brought = IncomingMetrics(Instruments()), ChildResults(world.store, world.artifacts)
    intake = Intake(
        world.turns,
        Offer(),
        Results(capabilities=world.capabilities, children=brought),
        NewRuns(policy=policy, fused=True, verify=False, trace_url=None),
        world.intake.admission,
        incoming,
        world.clock,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(NatsIntake(link, intake, Background(group), incoming, slots=4).run())
        try:
            yield world
        finally:
            running.cancel()


async def start(link: NatsLink, payload: object = TOO_MUCH, *, name: str = "order-2", **headers: str) -> None:
    body = {"type": subjects.START, "payload": payload, "dedupe_key": keys.start(name)}
    await link.publish(subjects.START, json.dumps(body).encode(), msg_id=keys.start(name), headers=headers)


async def refused(link: NatsLink, *, letters: int = 1) -> None:
    """The agent was here until so many letters lay there, and what was told of them too."""

    async def there() -> bool:
        state = (await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS, subjects_filter=">")).state
        found = state.subjects or {}
        return found.get(subjects.DEAD_LETTERS_LOOP) == letters == found.get(subjects.REJECTED)

    async with an_agent(link):
        await until(there)


async def only(dlq: Dlq, *options: str) -> Any:
    """The one letter that is listed."""
    (letter,) = (await dlq("ls", "--json", *options)).document["dead_letters"]
    return letter


async def test_a_message_that_was_refused_is_told_to_its_publisher_and_once_mended_sent_again_and_is_a_run(
    bus: NatsLink, dlq: Dlq
) -> None:
    await start(bus, traceparent="00-1-2-01")
    await refused(bus)
    message = await bus.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    told = json.loads(message.data or b"")
    letter = await only(dlq)
    assert told["dedupe_key"] == "agentic:rejected:AGENTIC_STARTS:1"
    assert told["payload"]["repeat_as"] == f"{keys.start('order-2')}#2"
    assert "at most 20" in told["payload"]["reason"]
    wanted = {"subject": subjects.START, "msg_id": keys.start("order-2"), "deliveries": 1, "status": "open"}
    assert {name: letter[name] for name in wanted} | {"reason": letter["reason"]} == wanted | {
        "reason": told["payload"]["reason"]
    }
    drawn = (await dlq("ls")).out
    assert ("agentic.start" in drawn, "at most 20" in drawn) == (True, True)
    sent = (await dlq("retry", str(letter["id"]), "--json")).document
    again = await bus.jetstream.get_msg(sent["stream"], sent["stream_seq"])
    async with an_agent(bus, cap_steps=50) as world:

        async def has_run() -> bool:
            return await world.store.run_of("order-2") is not None

        await until(has_run)
    headers = again.headers or {}
    assert json.loads(again.data or b"")["dedupe_key"] == keys.start("order-2") != headers["Nats-Msg-Id"]
    assert (headers["Agentic-Retried-By"], headers["traceparent"]) == (who(), "00-1-2-01")
    assert (await dlq("ls", "--json")).document["dead_letters"] == []
    assert (await only(dlq, "--all"))["settled"]["by"] == who()


async def test_a_letter_is_sent_again_once_also_when_it_was_not_recorded(bus: NatsLink, dlq: Dlq) -> None:
    await start(bus)
    await refused(bus)
    number = str((await only(dlq))["id"])
    letters = NatsDeadLetters(bus)
    letter = await letters.find(int(number))
    assert letter is not None
    await bus.publish(letter.subject, letter.body, msg_id=retry_id(letter), headers={})  # and then it crashed
    assert (await dlq("retry", number, "--json")).document["stream_seq"] == 2
    again = await dlq("retry", number, "--json")
    assert (again.code, again.error["code"]) == (Exit.REFUSED, "refused")
    assert f"retried by {who()}" in again.error["message"]
    assert (await bus.jetstream.stream_info(subjects.STREAM_STARTS)).state.last_seq == 2


async def test_a_body_too_large_for_its_letter_is_shown_and_sent_from_its_stream(bus: NatsLink, dlq: Dlq) -> None:
    body = b"x" * (bus.max_payload - 300)
    await bus.publish(subjects.TOOL_RESULT, body, msg_id="large", headers={})
    await refused(bus)
    letter = await only(dlq)
    assert letter["bytes"] == 0
    assert (await dlq("show", str(letter["id"]), "--json")).document["body"] == body.decode()
    sent = (await dlq("retry", str(letter["id"]), "--json")).document
    assert (await bus.jetstream.get_msg(sent["stream"], sent["stream_seq"])).data == body


async def test_what_is_shown_steers_no_terminal(bus: NatsLink, dlq: Dlq) -> None:
    await bus.publish(subjects.START, b"\x1b[2J\xff", msg_id="1", headers={"Note": "\x1b[31m\u202e"})
    await refused(bus)
    shown = await dlq("show", str((await only(dlq))["id"]))
    assert "Dead-Letter-Reason: not a valid agentic.start" in shown.out
    assert "␛[2J\\xff" in shown.out
    assert "\x1b" not in shown.out + (await dlq("ls")).out


async def test_a_dropped_letter_is_gone_and_who_dropped_it_is_on_record(bus: NatsLink, dlq: Dlq) -> None:
    await start(bus)
    await refused(bus)
    number = str((await only(dlq))["id"])
    assert (await dlq("drop", number)).out == f"dead letter {number} was dropped\n"
    assert (await dlq("ls", "--json")).document["dead_letters"] == []
    left = await only(dlq, "--all")
    assert (left["status"], left["settled"]["by"], left["subject"]) == ("dropped", who(), subjects.START)
    for command in ("show", "retry", "drop"):
        gone = await dlq(command, number, "--json")
        assert (gone.code, f"dropped by {who()}" in gone.error["message"]) == (Exit.NOT_FOUND, True)
    state = (await bus.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state
    assert state.last_seq > int(number), "the newest message was deleted: the server may forget all ids"
    await bus.jetstream.get_msg(subjects.STREAM_DEAD_LETTERS, state.last_seq)


SAID: list[tuple[dict[str, str], str]] = [
    ({"Dead-Letter-Subject": subjects.COMPLETED}, "told once"),
    ({"Dead-Letter-Subject": "$JS.API.STREAM.DELETE.AGENTIC"}, "told once"),
    ({"Dead-Letter-Subject": subjects.COMPLETED, "Dead-Letter-Target": "callback:x"}, "somebody outside"),
    ({"Dead-Letter-Subject": subjects.START, "Dead-Letter-Body": "left out"}, "no more"),
]


async def test_what_must_not_or_cannot_be_sent_again_is_refused(bus: NatsLink, dlq: Dlq) -> None:
    for number, (said, why) in enumerate(SAID, start=1):
        await bus.publish("agentic.dlq.somebody", b"{}", msg_id=str(number), headers=said)
        answer = await dlq("retry", str(number))
        assert (answer.code, why in answer.err) == (Exit.REFUSED, True), said


async def test_what_comes_late_for_a_run_that_is_kept_no_longer_is_dropped_with_a_word(
    bus: NatsLink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    at = NOON
    gone = Tombstone(
        run_id=run_id(1), wake_id="w", wake_digest="d", status=Status.DONE, last=9,
        ended_at=at, gone_at=at, rule="agent.keep_runs.done_days: 1",
    )  # fmt: skip
    async with an_agent(bus) as world:
        assert isinstance(world.store, MemoryStore)
        world.store.tombstones[gone.run_id] = gone
        for number, subject in enumerate((subjects.TOOL_RESULT, subjects.CANCEL)):
            told = {"run_id": gone.run_id, "step": 1, "tool": "search", "status": "ok", "result": {}, "error": None}
            payload = told | {"completed_at": "2026-11-21T12:00:00Z"} if number == 0 else {"run_id": gone.run_id}
            body = {"type": subject, "payload": payload}
            await bus.publish(subject, json.dumps(body).encode(), msg_id=f"late-{number}", headers={})
        await until(lambda: caplog.text.count("its run is kept no longer") == 2)
    assert await NatsDeadLetters(bus).all() == []


async def test_trouble_with_the_bus_is_told_with_its_exit_code(link: NatsLink, dlq: Dlq, tmp_path: Path) -> None:
    missing = await dlq("ls", "--json")
    assert (missing.code, "agentic setup" in missing.error["message"]) == (Exit.MISCONFIGURED, True)
    nobody = tmp_path / "nobody.yaml"
    nobody.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}}))
    away = await asyncio.to_thread(agentic_here, "dlq", "ls", "--json", "--config", nobody)
    assert (away.code, away.error["code"]) == (Exit.UNREACHABLE, "unreachable")
    await create_missing(link, topology(max_gib=1))
    assert (await dlq("ls")).out == "there are no dead letters that wait for anybody\n"
    assert (await dlq("show", "7")).code == (await dlq("drop", "9" * 30)).code == Exit.NOT_FOUND
