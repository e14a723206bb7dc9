"""The inbox, and decisions of people: approvals, answers, signals, dead letters."""

import asyncio
from typing import Any

import httpx2

from agent_service.core.events import SignalReceived
from agent_service.core.waiting import Approval
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.http.house import House, with_a_letter
from tests.kit.runs import run_id, stopped, whole_run
from tests.projections.people import POSTING

BODY = b'{"type": "agentic.start", "payload": {"goal": "look", "callback": "https://example.org/?token=canary"}}'


async def got(client: httpx2.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(f"/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_the_inbox_has_all_that_waits_for_a_person_by_urgency_until_it_is_dismissed(
    client: httpx2.AsyncClient, house: House
) -> None:
    for commits in (
        stopped(1, "pause"),
        stopped(2),
        stopped(3, error_class="in_doubt"),
        whole_run(4),
        with_a_letter(5),
    ):
        await house.play(commits)
    house.letters.put(BODY, Reason="constraints: too much", Deliveries="6")
    house.letters.put(BODY, Reason="status: Field required", Deliveries="1")
    told = await got(client, "inbox")
    assert [(item["id"], item["kind"], item["class"], item["actions"]) for item in told["items"]] == [
        (f"run:{run_id(5)}", "approval", "approval", ["approve", "reject", "cancel"]),
        (f"run:{run_id(3)}", "in_doubt", "in_doubt", ["answer", "start_again", "dismiss"]),
        (f"run:{run_id(2)}", "escalated", "model_refused", ["answer", "start_again", "dismiss"]),
        (f"run:{run_id(1)}", "paused", "model_refused", ["resume", "cancel"]),
        ("letter:2", "dead_letter", "dead_letter", ["discard", "retry"]),
        ("letter:1", "dead_letter", "dead_letter", ["retry", "discard"]),
    ]
    assert (told["total"], told["trouble"]) == (6, "")
    assert told["items"][0]["asks"] == (await got(client, f"runs/{run_id(5)}"))["asks"]
    assert told["items"][0]["asks"]["arguments"] == POSTING
    assert told["items"][3]["remedy"]["command"] == f"agentic signal {run_id(1)} resume"
    assert (told["items"][5]["seq"], told["items"][5]["text"]) == (1, "constraints: too much")
    house.letters.away = TryAgain("not connected to NATS")
    told = await got(client, "inbox")
    assert (len(told["items"]), told["total"], "not connected to NATS" in told["trouble"]) == (4, 4, True)
    dismissed, again = [await client.post(f"/v1/runs/{run_id(2)}/dismiss", json={"by": by}) for by in ("ann", "bob")]
    assert (dismissed.status_code, dismissed.json()["by"]) == (202, 'token admin, says "ann"')
    assert again.json() == dismissed.json()
    left = [item["run_id"] for item in (await got(client, "inbox"))["items"]]
    assert (left, (await house.state(run_id(2))).status) == ([run_id(5), run_id(3), run_id(1)], "escalated")


async def test_what_is_approved_is_carried_out_once_and_the_journal_says_by_whom(
    client: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(with_a_letter())
    asked = (await house.state(run)).ask
    assert isinstance(asked, Approval)
    body = {"decision": "approve", "arguments_hash": asked.subject_hash, "step": 1, "signal_id": "s-1"}
    answers = await asyncio.gather(*(client.post(f"/v1/runs/{run}/approvals", json=body) for _ in range(5)))
    assert {(answer.status_code, answer.json()["signal_id"]) for answer in answers} == {(202, "s-1")}
    other = await client.post(f"/v1/runs/{run}/approvals", json=body | {"reason": "another"})
    assert (other.status_code, other.json()["code"]) == (409, "signal_id_taken")
    state = await house.state(run)
    assert (state.status, [pending.action.tool for pending in state.pendings]) == ("running", ["post"])
    assert [ruling.by for ruling in state.rulings] == ["token admin"]
    event = (await house.store.entries(run))[-1].decoded()
    assert isinstance(event, SignalReceived)
    assert event.by == "token admin"


async def test_letters_are_listed_page_by_page_with_what_was_refused(client: httpx2.AsyncClient, house: House) -> None:
    for number in range(3):
        house.letters.put(BODY, Reason=f"reason {number}", Stream="AGENTIC", Sequence=str(40 + number))
    first = await got(client, "dead-letters", limit=2)
    rest = await got(client, "dead-letters", limit=2, cursor=first["next_cursor"])
    assert [letter["id"] for page in (first, rest) for letter in page["letters"]] == [1, 2, 3]
    assert rest["next_cursor"] is None
    told = {"subject": subjects.START, "stream": "AGENTIC", "stream_seq": 42, "reason": "reason 2", "settled": None}
    assert {name: rest["letters"][0][name] for name in told} == told


async def test_a_letter_shows_no_secret_of_its_message_and_not_more_than_can_be_read(
    client: httpx2.AsyncClient, house: House
) -> None:
    house.letters.put(BODY)
    house.letters.put(b'{"capability" : "canary\\"canary", "x": "' + "ä".encode() * 100_000 + b'"}')
    house.letters.put(b'{"callback":"canary')
    house.letters.put(b"\xff\x00")
    house.letters.put(
        b'{"payload": {"callback": {"url": "https://canary"}}, "data": "{\\"capability\\": \\"canary\\"}"}'
    )
    house.letters.put(b'{"callb\\u0061ck": "canary", "data_base64": "canary"}')
    house.letters.put(b'{"callback": {"url": "canary"}, "callback": null, "data_base64": "canary", "data_base64": ""}')
    house.letters.put(b'{"x": ' + b"[" * 900 + b"]" * 900 + b', "callback": "canary"}')
    bodies = [letter["body"] for letter in (await got(client, "dead-letters"))["letters"]]
    assert not any("canary" in body for body in bodies)
    assert bodies[0].startswith('{"type": "agentic.start", "payload": {"goal": "look", "callback": "(hidden)"')
    assert len(bodies[1].encode()) in (64 * 1024 - 1, 64 * 1024)
    assert bodies[3] == "\ufffd\0"


async def test_a_letter_that_was_dealt_with_says_by_whom_and_what_cannot_be_sent_again_is_refused(
    client: httpx2.AsyncClient, house: House
) -> None:
    retried, dropped = house.letters.put(BODY), house.letters.put(BODY)
    answer = await client.post(f"/v1/dead-letters/{retried}/retry", json={"by": "ann"})
    assert (answer.status_code, answer.json()["what"]) == (202, "retried")
    assert (await client.post(f"/v1/dead-letters/{dropped}/discard", json={"by": "ann"})).json()["what"] == "dropped"
    settled = [letter["settled"] for letter in (await got(client, "dead-letters"))["letters"]]
    assert [told["deed"] for told in settled] == ["retried", "dropped"]
    assert {told["by"] for told in settled} == {'token admin, says "ann"'}
    assert (await got(client, "dead-letters", open=True))["letters"] == []
    assert (await got(client, "inbox"))["total"] == 0
    house.letters.put(b"{}", subject=subjects.COMPLETED)
    for seq, status, code in ((9, 404, "unknown_letter"), (3, 409, "not_sent_again")):
        answer = await client.post(f"/v1/dead-letters/{seq}/retry", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
