"""`agentic dlq` over a real server: what was refused is listed, shown, sent again or dropped."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.dead_letters import NatsDeadLetters, retry_id
from agent_service.bus.messages import RESULTS, STARTS
from agent_service.bus.topology import topology
from agent_service.cli.services.dead_letters import who
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.settling import DeadLetters, Delivery
from groundwork.nats.topology import set_up
from groundwork.service.errors import GiveUp
from groundwork.service.exits import Exit
from schemas import subjects
from tests.cli.calling import Called, called
from tests.kit.consuming import consume
from tests.kit.waiting import until

Dlq = Callable[..., Coroutine[Any, Any, Called]]


@pytest.fixture
def dlq(nats_server: EmbeddedNats, tmp_path: Path) -> Dlq:
    """The command, as somebody calls it who has nothing but the address of the bus."""
    config = tmp_path / "agentic.yaml"
    config.write_text(json.dumps({"nats": {"urls": [nats_server.url]}}))

    return lambda *arguments: called("dlq", *arguments, "--config", config, COLUMNS="200")


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await set_up(link, topology(max_gib=1))
    return link


async def refused(link: NatsLink, subject: str, body: bytes = b"{}", *, msg_id: str = "1", **headers: str) -> None:
    """Published, and buried by whoever consumes its stream."""
    at = RESULTS if subject == subjects.TOOL_RESULT else STARTS
    buried = asyncio.Event()

    async def handler(_: Delivery) -> None:
        buried.set()
        raise GiveUp("steps: at most 20")

    await link.publish(subject, body, msg_id=msg_id, headers=headers)
    dead = DeadLetters(at.dead_letters)
    consuming = consume(link, at.stream, at.durable, handler, dead, slots=4)
    running = asyncio.create_task(consuming)
    await buried.wait()

    async def there() -> bool:
        return bool((await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state.messages)

    await until(there)
    running.cancel()


async def only(dlq: Dlq, *options: str) -> Any:
    """The one letter that is listed."""
    (letter,) = (await dlq("ls", "--json", *options)).document["dead_letters"]
    return letter


async def test_a_message_that_was_refused_is_sent_again_as_it_was_and_by_whom_is_kept(bus: NatsLink, dlq: Dlq) -> None:
    await refused(bus, subjects.START, b'{"goal": "x"}', msg_id="agentic:start:order-2", traceparent="00-1-2-01")
    letter = await only(dlq)
    wanted = {"subject": subjects.START, "msg_id": "agentic:start:order-2", "deliveries": 1, "status": "open"}
    assert {name: letter[name] for name in wanted} | {"reason": letter["reason"]} == wanted | {
        "reason": "steps: at most 20"
    }
    drawn = (await dlq("ls")).out
    assert ("agentic.start" in drawn, "at most 20" in drawn) == (True, True)
    sent = (await dlq("retry", str(letter["id"]), "--json")).document
    again = await bus.jetstream.get_msg(sent["stream"], sent["stream_seq"])
    headers = again.headers or {}
    assert (again.data, headers["Nats-Msg-Id"] == "agentic:start:order-2") == (b'{"goal": "x"}', False)
    assert (headers["Agentic-Retried-By"], headers["traceparent"]) == (who(), "00-1-2-01")
    assert (await dlq("ls", "--json")).document["dead_letters"] == []
    assert (await only(dlq, "--all"))["settled"]["by"] == who()


async def test_a_letter_is_sent_again_once_also_when_it_was_not_recorded(bus: NatsLink, dlq: Dlq) -> None:
    await refused(bus, subjects.START)
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
    await refused(bus, subjects.TOOL_RESULT, body)
    letter = await only(dlq)
    assert letter["bytes"] == 0
    assert (await dlq("show", str(letter["id"]), "--json")).document["body"] == body.decode()
    sent = (await dlq("retry", str(letter["id"]), "--json")).document
    assert (await bus.jetstream.get_msg(sent["stream"], sent["stream_seq"])).data == body


async def test_what_is_shown_steers_no_terminal(bus: NatsLink, dlq: Dlq) -> None:
    await refused(bus, subjects.START, b"\x1b[2J\xff", Note="\x1b[31m\u202e")
    shown = await dlq("show", str((await only(dlq))["id"]))
    assert "Dead-Letter-Reason: steps: at most 20" in shown.out
    assert "␛[2J\\xff" in shown.out
    assert "\x1b" not in shown.out + (await dlq("ls")).out


async def test_a_dropped_letter_is_gone_and_who_dropped_it_is_on_record(bus: NatsLink, dlq: Dlq) -> None:
    await refused(bus, subjects.START)
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
    ({"Dead-Letter-Subject": subjects.COMPLETED}, "published once"),
    ({"Dead-Letter-Subject": "$JS.API.STREAM.DELETE.AGENTIC"}, "published once"),
    ({"Dead-Letter-Subject": subjects.COMPLETED, "Dead-Letter-Target": "callback:x"}, "an address outside"),
    ({"Dead-Letter-Subject": subjects.START, "Dead-Letter-Body": "left out"}, "no more"),
]


async def test_what_must_not_or_cannot_be_sent_again_is_refused(bus: NatsLink, dlq: Dlq) -> None:
    for number, (said, why) in enumerate(SAID, start=1):
        await bus.publish("agentic.dlq.somebody", b"{}", msg_id=str(number), headers=said)
        answer = await dlq("retry", str(number))
        assert (answer.code, why in answer.err) == (Exit.REFUSED, True), said


async def test_trouble_with_the_bus_is_told_with_its_exit_code(link: NatsLink, dlq: Dlq, tmp_path: Path) -> None:
    missing = await dlq("ls", "--json")
    assert (missing.code, "agentic setup" in missing.error["message"]) == (Exit.MISCONFIGURED, True)
    nobody = tmp_path / "nobody.yaml"
    nobody.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}}))
    away = await called("dlq", "ls", "--json", "--config", nobody)
    assert (away.code, away.error["code"]) == (Exit.UNREACHABLE, "unreachable")
    await set_up(link, topology(max_gib=1))
    assert (await dlq("ls")).out == "there are no dead letters that wait for anybody\n"
    assert (await dlq("show", "7")).code == (await dlq("drop", "9" * 30)).code == Exit.NOT_FOUND
