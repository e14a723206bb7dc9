"""The operations as a NATS micro service on a real server; and the caller in the journal, over either transport."""

import json
import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER

from agent_service.api.micro import INFO, serve_on_bus
from agent_service.api.requests import MAX_BODY_BYTES
from agent_service.core.events import CancelRequested, SignalReceived, WakeAccepted
from agent_service.workbench.embedded_nats import EmbeddedNats
from agentic_client import AsyncClient, NotNow
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from schemas.operations import OPERATIONS
from tests.http.house import House, bearer
from tests.kit.bus import server_with
from tests.kit.runs import run_id, whole_run

ENDPOINTS = {one.endpoint: one.subject for one in OPERATIONS if one.endpoint}
WAKE, STATUS, STANDING, CALLBACK, CANCEL, APPROVE, ANSWER, STOP_ALL = (
    ENDPOINTS[name] for name in ("wake", "status", "standing", "callback", "cancel", "approve", "answer", "stop-all")
)
SECRET = os.urandom(8).hex()


@pytest.fixture
async def caller(nats_server: EmbeddedNats, link: NatsLink, house: House) -> AsyncIterator[Client]:
    service = await serve_on_bus(link, house.services)
    caller = await nats.connect(nats_server.url)
    yield caller
    await caller.close()
    await service.stop()


async def ask(caller: Client, subject: str, body: object) -> Msg:
    return await caller.request(subject, body if isinstance(body, bytes) else json.dumps(body).encode(), timeout=5)


def error(answer: Msg) -> tuple[str, str]:
    assert answer.headers is not None
    return answer.headers[ERROR_CODE_HEADER], answer.headers[ERROR_HEADER]


async def who(house: House, run_id: str) -> list[str]:
    events = [entry.decoded() for entry in await house.store.entries(run_id)]
    return [event.by for event in events if isinstance(event, WakeAccepted | CancelRequested | SignalReceived)]


async def test_a_status_in_brief_says_what_the_whole_one_says_of_it(caller: Client) -> None:
    run = json.loads((await ask(caller, WAKE, {"goal": "x"})).data)["run_id"]
    for change in (None, STOP_ALL, CANCEL):
        if change:
            await ask(caller, change, {"run_id": run} if change == CANCEL else {"reason": "a test"})
        whole = json.loads((await ask(caller, STATUS, {"run_id": run})).data)
        brief = json.loads((await ask(caller, STANDING, {"run_id": run})).data)
        of_each = json.loads((await ask(caller, STANDING + subjects.EACH, {"run_id": run})).data)
        assert brief == of_each == {name: whole[name] for name in ("run_id", "status", "stopped")}
        assert bool(brief["stopped"]) is (change == STOP_ALL)


@pytest.mark.parametrize("asked", [STATUS, STANDING])
async def test_how_a_run_stands_is_told_once_this_agent_has_what_others_stored(
    link: NatsLink, house: House, asked: str
) -> None:
    *begun, last = whole_run()

    async def catch_up() -> None:
        await house.play([last])

    run = await house.play(begun)
    service = await serve_on_bus(link, house.services, fresh=catch_up)
    assert json.loads((await ask(link.client, asked, {"run_id": run})).data)["status"] == "done"
    await service.stop()


async def test_the_address_of_a_callback_is_told_to_who_asks_for_it(caller: Client) -> None:
    hook = "https://example.org/hook?token=1"
    run = json.loads((await ask(caller, WAKE, {"goal": "x", "callback": hook})).data)["run_id"]
    assert json.loads((await ask(caller, CALLBACK, {"run_id": run})).data) == {"run_id": run, "callback": hook}
    assert json.loads((await ask(caller, CALLBACK, {"run_id": "run_x"})).data)["callback"] is None
    assert b"token=1" not in (await ask(caller, STATUS, {"run_id": run})).data


REFUSED: list[tuple[str, object, str, str]] = [
    (WAKE, {"goal": "x"}, "500", ""),  # the clock gives it the id of a run that is there
    (WAKE, b"", "422", "goal"),
    (WAKE, b'{"goal": "\\ud800"}', "400", "surrogate"),
    (WAKE, {"goal": "x", "run_id": "y"}, "422", "run_id"),
    (WAKE, b" " * (MAX_BODY_BYTES + 1), "413", "bytes"),
    (WAKE, {"goal": "x", "a\r\nNats-Service-Error-Code: 200\r\n\r\n": 1}, "422", "…"),
    (STATUS, {"run_id": run_id(9)}, "404", "no run"),
    (STATUS, {"run_id": "../x"}, "422", "run_id"),
    (CANCEL, {"run_id": run_id(1)}, "409", "done"),
    (APPROVE, {"run_id": run_id(1), "decision": "reject"}, "409", "took no notice"),
    (ANSWER, {"run_id": run_id(1), "answer": "x"}, "409", "took no notice"),
]


async def test_what_is_not_served_is_an_error_with_the_number_of_http(caller: Client, house: House) -> None:
    await house.play(whole_run())
    for subject, body, code, said in REFUSED:
        answer = await ask(caller, subject, body)
        found, description = error(answer)
        assert (found, said in description) == (code, True), (subject, body, description)
        assert json.loads(answer.data)["error"]["message"] == description
        assert code != "500" or run_id(1) not in description, "a fault of ours says nothing of itself"
    assert await house.how_many() == 1


async def test_what_is_refused_for_now_says_when_to_come_back(caller: Client, nats_server: EmbeddedNats) -> None:
    await ask(caller, STOP_ALL, {})
    async with AsyncClient(nats_server.url, patience_s=0.0) as client:
        with pytest.raises(NotNow) as refused:
            await client.wake("x")
    assert (refused.value.code, refused.value.retry_after_s) == ("stopped", 30.0)


async def test_a_wake_id_for_something_else_names_that_run_to_its_caller_alone(caller: Client, house: House) -> None:
    first = json.loads((await ask(caller, WAKE, {"goal": "x", "wake_id": "w-1"})).data)
    answer = await ask(caller, WAKE, {"goal": "y", "wake_id": "w-1"})
    code, description = error(answer)
    assert (code, first["run_id"] in description) == ("409", True)
    async with house.client() as client:
        over_http = await client.post("/v1/wake", json={"goal": "y", "wake_id": "w-1"})
    assert over_http.json()["error"]["code"] == json.loads(answer.data)["error"]["code"] == "wake_id_taken"
    assert first["run_id"] not in over_http.text


async def test_the_service_can_be_found_and_says_what_it_takes(caller: Client) -> None:
    told = json.loads((await ask(caller, f"$SRV.INFO.{subjects.SERVICE_AGENT}", b"")).data)
    of_each = {
        one.endpoint + subjects.EACH: one.subject + subjects.EACH for one in OPERATIONS if one.is_answered_by_each
    }
    assert {endpoint["name"]: endpoint["subject"] for endpoint in told["endpoints"]} == ENDPOINTS | of_each
    for endpoint in told["endpoints"]:
        for part in ("request", "answer"):
            assert json.loads(endpoint["metadata"][part])["type"] == "object"


async def test_over_the_bus_it_is_whom_nats_names_and_no_header_of_the_callers(
    tmp_path: Path, unused_port: int, house: House
) -> None:
    """A server names users of other accounts if the import says so, and removes such headers of their own."""
    theirs = {"service": {"account": "AGENT", "subject": f"{subjects.SERVICE_AGENT}.>"}}
    accounts = {
        "AGENT": {
            "users": [{"user": "agent", "password": SECRET}],
            "exports": [{"service": f"{subjects.SERVICE_AGENT}.>"}],
        },
        "SHOP": {"users": [{"user": "ann", "password": SECRET}], "imports": [theirs | {"share": True}]},
        "BANK": {"users": [{"user": "ben", "password": SECRET}], "imports": [theirs]},
    }
    forged = {INFO: json.dumps({"acc": "ROOT", "user": "root"})}
    async with (
        server_with(tmp_path, unused_port, {"accounts": accounts}) as address,
        connect(NatsSettings(urls=(f"nats://agent:{SECRET}@{address}",))) as link,
    ):
        await serve_on_bus(link, house.services)
        found = {}
        for user in ("ann", "ben", "agent"):
            caller = await nats.connect(f"nats://{user}:{SECRET}@{address}")
            body = json.dumps({"goal": "x", "by": user}).encode()
            answer = json.loads((await caller.request(WAKE, body, headers=forged, timeout=5)).data)
            (found[user],) = await who(house, answer["run_id"])
            await caller.close()
    assert found == {
        "ann": 'bus user ann of SHOP, says "ann"',
        "ben": 'bus of BANK, says "ben"',
        "agent": 'bus, says "agent"',
    }


async def test_over_http_it_is_the_token_and_the_os_user_and_a_callers_own_word_is_quoted(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    forged = 'ann", token root, "x\nos user root'
    run = (await over_http.post("/v1/wake", json={"goal": "x", "by": forged})).json()["run_id"]
    over_http.headers.update(bearer("controller"))
    await over_http.post(f"/v1/runs/{run}/signals", json={"kind": "message", "message": "hurry"})
    await over_http.post(f"/v1/runs/{run}/cancel", json={})
    me = f"os user {pwd.getpwuid(os.getuid()).pw_name}"
    assert await who(house, run) == [
        f'token admin, {me}, says "ann ; token root; x os user root"',
        *[f"token controller, {me}"] * 2,
    ]
