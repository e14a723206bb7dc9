"""What waits for a person, over HTTP, and what a person does about it."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from agent_service.core.events import ModelUnavailable
from agent_service.run.journal import Commit
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.http.house import House
from tests.kit.runs import NOON, SECOND, accepted, after, run_id, started, whole_run
from tests.projections.journals import commits_of
from tests.projections.people import a_run_that_needs_approval

BODY = b'{"type": "agentic.start", "payload": {"goal": "look", "callback": "https://example.org/?token=canary"}}'


def stopped(number: int, remedy: Any = "escalate", error_class: str = "model_refused") -> Sequence[Commit]:
    begun = started(accepted(number))
    at = NOON + number * SECOND
    away = ModelUnavailable(at=at, call=1, remedy=remedy, error_class=error_class, message="no answer")
    return [accepted(number), begun, after(begun, away)]


async def inbox(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/v1/inbox", params=query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_the_inbox_has_all_that_waits_for_a_person_newest_first(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(stopped(1, "pause"))
    await house.play(stopped(2))
    await house.play(stopped(3, error_class="in_doubt"))
    await house.play(whole_run(4))
    house.letters.put(BODY, Reason="constraints: too much")
    told = await inbox(client)
    assert [(item["id"], item["kind"], item["class"], item["actions"]) for item in told["items"]] == [
        ("letter:1", "dead_letter", "dead_letter", ["retry", "discard"]),
        (f"run:{run_id(3)}", "in_doubt", "in_doubt", ["answer", "start_again", "dismiss"]),
        (f"run:{run_id(2)}", "escalated", "model_refused", ["answer", "start_again", "dismiss"]),
        (f"run:{run_id(1)}", "paused", "model_refused", ["resume", "cancel"]),
    ]
    assert (told["total"], told["trouble"]) == (4, "")
    assert told["items"][3]["remedy"]["command"] == f"agentic signal {run_id(1)} resume"
    assert (told["items"][0]["seq"], told["items"][0]["text"]) == (1, "constraints: too much")


async def test_whoever_is_asked_for_approval_sees_all_that_would_be_sent(
    client: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(commits_of(a_run_that_needs_approval(run_id(1))))
    (item,) = (await inbox(client))["items"]
    assert (item["kind"], item["class"], item["actions"]) == ("approval", "approval", ["approve", "reject", "cancel"])
    assert "post handle" in item["text"]
    asks = item["asks"]
    assert (asks["kind"], asks["step"], asks["tool"], asks["command"]) == ("approval", 1, "post", "handle")
    assert asks["arguments"] == {"to": "ann@example.org", "text": "The page is up."}
    assert asks["arguments_json"] == '{"text":"The page is up.","to":"ann@example.org"}'
    assert asks["arguments_hash"] == (await house.state(run)).waiting.subject_hash  # type: ignore[union-attr]
    assert (await client.get(f"/v1/runs/{run}")).json()["asks"] == asks


async def test_a_dismissed_run_leaves_the_inbox(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(stopped(1))
    dismissed = await client.post(f"/v1/runs/{run}/dismiss", json={})
    again = await client.post(f"/v1/runs/{run}/dismiss")
    assert (dismissed.status_code, dismissed.json()["by"].startswith("token admin")) == (202, True)
    assert again.json() == dismissed.json()
    assert await inbox(client) == {"items": [], "total": 0, "trouble": ""}
    assert (await house.state(run)).status == "escalated"


@pytest.mark.parametrize(
    ("commits", "state"), [(whole_run(1)[:1], "queued"), (whole_run(1), "done"), (stopped(1, "pause"), "paused")]
)
async def test_only_what_ended_in_the_hands_of_a_person_can_be_dismissed(
    client: httpx2.AsyncClient, house: House, commits: Sequence[Commit], state: str
) -> None:
    run = await house.play(commits)
    refused = await client.post(f"/v1/runs/{run}/dismiss", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "nothing_to_dismiss")
    assert state in refused.json()["error"]["message"]


async def test_a_bus_that_is_away_hides_its_letters_and_no_run(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(stopped(1))
    house.letters.away = TryAgain("not connected to NATS")
    told = await inbox(client)
    assert (len(told["items"]), told["total"]) == (1, 1)
    assert "not connected to NATS" in told["trouble"]


async def letters(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/v1/dead-letters", params=query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_letters_are_listed_page_by_page_with_what_was_refused(client: httpx2.AsyncClient, house: House) -> None:
    for number in range(3):
        house.letters.put(BODY, Reason=f"reason {number}", Stream="AGENTIC", Sequence=str(40 + number))
    first = await letters(client, limit=2)
    rest = await letters(client, limit=2, cursor=first["next_cursor"])
    assert [letter["seq"] for page in (first, rest) for letter in page["letters"]] == [1, 2, 3]
    assert rest["next_cursor"] is None
    answer = await client.get("/v1/dead-letters", params={"cursor": 4})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "cursor")
    shown = rest["letters"][0]
    assert (shown["subject"], shown["stream"], shown["original_seq"], shown["reason"], shown["settled"]) == (
        subjects.START,
        "AGENTIC",
        42,
        "reason 2",
        None,
    )


async def test_a_letter_shows_no_secret_of_its_message_and_not_more_than_can_be_read(
    client: httpx2.AsyncClient, house: House
) -> None:
    house.letters.put(BODY)
    house.letters.put(b'{"capability" : "canary\\"canary", "x": "' + "ä".encode() * 100_000 + b'"}')
    house.letters.put(b'{"callback":"canary')
    house.letters.put(b"\xff\x00")
    bodies = [letter["body"] for letter in (await letters(client))["letters"]]
    assert not any("canary" in body for body in bodies)
    assert bodies[0].startswith('{"type": "agentic.start", "payload": {"goal": "look", "callback": "(hidden)"')
    assert len(bodies[1].encode()) in (64 * 1024 - 1, 64 * 1024)
    assert bodies[3] == "\ufffd\0"


async def test_a_letter_that_was_dealt_with_says_by_whom(client: httpx2.AsyncClient, house: House) -> None:
    retried, dropped = house.letters.put(BODY), house.letters.put(BODY)
    answer = await client.post(f"/v1/dead-letters/{retried}/retry", json={})
    assert (answer.status_code, answer.json()["what"]) == (202, "retried")
    assert (await client.post(f"/v1/dead-letters/{dropped}/discard")).json()["what"] == "dropped"
    settled = [letter["settled"] for letter in (await letters(client))["letters"]]
    assert [(told["what"], told["by"].startswith("token admin")) for told in settled] == [
        ("retried", True),
        ("dropped", True),
    ]
    assert (await letters(client, open=True))["letters"] == []
    assert (await inbox(client))["total"] == 0


@pytest.mark.parametrize(("seq", "status", "code"), [(9, 404, "unknown_letter"), (1, 409, "not_sent_again")])
async def test_what_cannot_be_sent_again_is_refused_with_the_reason(
    client: httpx2.AsyncClient, house: House, seq: int, status: int, code: str
) -> None:
    house.letters.put(b"{}", subject=subjects.COMPLETED)
    answer = await client.post(f"/v1/dead-letters/{seq}/retry", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
