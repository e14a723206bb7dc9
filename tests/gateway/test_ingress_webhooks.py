"""POST /webhooks/NAME: signed as Ductile or GitHub do, and what comes of a delivery by its mapping."""

import hashlib
import hmac
import json
from typing import Any

import httpx2
import pytest

from tests.gateway.ingress_house import House, error_of
from tests.gateway.parts import RUN

OLD, NEW = "the old secret of x", "the new secret of x"
OPENED = {"action": "opened", "issue": {"number": 7, "title": "It leaks", "labels": [{"name": "bug"}]}}
TRIAGE = {
    "to": "agentic.start",
    "goal": "Triage issue {/issue/number}: {/issue/title}",
    "context": {"label": "/issue/labels/0/name", "issue": "/issue"},
}
SPEAK = {"to": "agentic.signal", "run_id": "/run", "kind": "message", "message": "{/who} says {/words}"}
HOOKS: dict[str, Any] = {
    "github": {"scheme": "github", "keys": [{"secret": OLD}, {"secret": NEW}], "events": {"issues.opened": TRIAGE}},
    "chat": {
        "scheme": "ductile",
        "keys": [{"secret": OLD}],
        "signature_header": "X-Signature",
        "delivery_id": "/id",
        "events": {"*": SPEAK, "stop": {"to": "agentic.cancel", "run_id": "/run", "reason": "told to by {/who}"}},
    },
    "plain": {"scheme": "ductile", "keys": [{"secret": OLD}], "events": {"*": {"to": "agentic.start", "goal": "{/g}"}}},
}


def a_house() -> House:
    return House(webhooks=HOOKS)


def hex_of(body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


async def github(
    house: House, event: Any = OPENED, *, secret: str = OLD, delivery: str = "d-1", **headers: str
) -> httpx2.Response:
    body = json.dumps(event).encode()
    sent = {
        "X-Hub-Signature-256": f"sha256={hex_of(body, secret)}",
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": "issues",
    }
    return await house.post("/webhooks/github", body, sent | headers)


async def chat(house: House, event: Any, *, signature: str | None = None) -> httpx2.Response:
    body = json.dumps(event).encode()
    return await house.post("/webhooks/chat", body, {"X-Signature": signature or hex_of(body, OLD)})


async def test_an_issue_of_github_starts_a_run_with_what_was_chosen_of_it() -> None:
    house = a_house()
    answer = await github(house)
    assert (answer.status_code, answer.json()) == (
        202,
        {
            "status": "accepted",
            "event_type": "issues",
            "receiver_event_id": "agentic:start:github:d-1",
            "job_id": "github:d-1",
            "duplicate": False,
        },
    )
    assert house.events() == [
        {
            "type": "agentic.start",
            "payload": {
                "goal": "Triage issue 7: It leaks",
                "context": {"label": "bug", "issue": OPENED["issue"]},
                "constraints": {},
                "untrusted": True,
                "by": "github",
            },
            "dedupe_key": "agentic:start:github:d-1",
        }
    ]


@pytest.mark.parametrize(
    ("mapping", "untrusted"),
    [
        ({"goal": "Write the report of the day."}, False),
        ({"goal": "Look at {/g}."}, True),
        ({"goal": "Write the report of the day.", "context": {"said": "/g"}}, True),
    ],
)
async def test_a_start_is_untrusted_where_it_holds_something_of_the_body(
    mapping: dict[str, Any], untrusted: bool
) -> None:
    house = House(webhooks={"plain": HOOKS["plain"] | {"events": {"*": {"to": "agentic.start"} | mapping}}})
    body = json.dumps({"g": "the leak", "untrusted": False}).encode()
    await house.post("/webhooks/plain", body, {"X-Ductile-Signature-256": hex_of(body, OLD)})
    assert house.events()[0]["payload"].get("untrusted", False) is untrusted


async def test_what_has_no_mapping_is_ignored_with_200() -> None:
    house = a_house()
    closed = await github(house, OPENED | {"action": "closed"})
    ping = await github(house, {"zen": "Keep it simple."}, **{"X-GitHub-Event": "ping"})
    assert [(answer.status_code, answer.json()) for answer in (closed, ping)] == [(200, {"status": "ignored"})] * 2
    assert house.bus.messages == []


ISSUE, PULL, BY = {"number": 7, "title": "x"}, {"title": "x"}, {"sender": {"login": "ann"}, "repository": {}}
PUSH: dict[str, Any] = {
    "ref": "refs/heads/main",
    "before": "0",
    "after": "1",
    "commits": [],
    "head_commit": None,
    "pusher": {},
}


@pytest.mark.attack(28)
@pytest.mark.parametrize(
    ("says", "body"),
    [
        ("issues", {"action": "opened", "pull_request": PULL}),
        ("issues", {"action": "created", "issue": ISSUE, "comment": {}}),
        ("issue_comment", {"action": "opened", "issue": ISSUE}),
        ("push", {"ref": "v1", "ref_type": "tag", "master_branch": "main"}),
        ("create", {"ref": "v1", "ref_type": "tag"}),
        ("deployment", PUSH),
        ("release", {"action": "started"}),
        ("our-own", {"action": "opened", "issue": ISSUE}),
        ("", {"action": "opened", "issue": ISSUE}),
        ("issues", []),
    ],
)
async def test_an_event_of_github_that_was_renamed_on_the_way_is_refused(says: str, body: Any) -> None:
    start = {"to": "agentic.start", "goal": "Do what is done on such an event."}
    house = House(webhooks={"github": HOOKS["github"] | {"events": {"*": start}}})
    answer = await github(house, body | BY if body else body, **{"X-GitHub-Event": says})
    assert (answer.status_code, house.bus.messages) == (422, [])
    assert error_of(answer) == "the header X-GitHub-Event does not say what the body is"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "0" * 64},
        {"X-Hub-Signature-256": hex_of(json.dumps(OPENED).encode(), OLD)},
        {"X-Hub-Signature-256": "sha256=" + hex_of(json.dumps(OPENED).encode(), OLD).upper()},
        {"X-Hub-Signature-256": "sha256=" + hex_of(json.dumps(OPENED).encode(), "")},
        {"X-Hub-Signature-256": "sha256=" + hex_of(json.dumps(OPENED).encode(), "another")},
        {"X-Hub-Signature-256": "sha256=" + hex_of(json.dumps(OPENED).encode() + b" ", OLD)},
        {"X-Hub-Signature-256": "sha1=" + "0" * 40, "X-Hub-Signature": "sha1=" + "0" * 40},
    ],
)
async def test_whatever_is_wrong_with_a_signature_is_answered_alike(headers: dict[str, str]) -> None:
    house = a_house()
    answer = await github(house, **headers)
    assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized"})
    assert house.bus.messages == []


HASH = "0123456789abcdef0123456789abcdef"
ABOUT = {"to": "agentic.signal", "run_id": "/run"}
SAID: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "answer", "message": "{/words}"}, {"message": "the blue one", "untrusted": True}),
    ({"kind": "answer", "message": "{/words}", "trusted": True}, {"message": "the blue one"}),
    ({"kind": "message", "message": "Somebody has seen it."}, {"message": "Somebody has seen it."}),
    (
        {
            "kind": "answer",
            "message": "{/words}",
            "outcome": "/outcome",
            "constraints": {"max_steps": "/steps"},
            "trusted": True,
        },
        {"message": "the blue one", "outcome": "did_not_run", "constraints": {"max_steps": 12}},
    ),
    ({"kind": "approve", "arguments_hash": "/hash"}, {"arguments_hash": HASH}),
    ({"kind": "approve", "arguments_hash": "/hash", "step": "/steps"}, {"arguments_hash": HASH, "step": 12}),
    ({"kind": "reject", "message": "No: {/words}"}, {"message": "No: the blue one", "untrusted": True}),
]


@pytest.mark.parametrize(("mapping", "told"), SAID)
async def test_a_person_answers_allows_and_refuses_through_a_webhook(
    mapping: dict[str, Any], told: dict[str, Any]
) -> None:
    house = House(webhooks={"chat": HOOKS["chat"] | {"events": {"*": ABOUT | mapping}}})
    said = {"words": "the blue one", "outcome": "did_not_run", "steps": 12, "hash": HASH}
    assert (await chat(house, {"id": "m-1", "run": RUN} | said)).status_code == 202
    about = {"run_id": RUN, "signal_id": "chat:m-1", "kind": mapping["kind"], "by": "chat"}
    assert house.events()[0]["payload"] == about | told


@pytest.mark.parametrize("wrong", [{"hash": "all of it"}, {"hash": None}, {}, {"hash": HASH, "at": None}])
async def test_an_approval_that_does_not_name_what_it_allows_is_refused(wrong: dict[str, Any]) -> None:
    mapping = ABOUT | {"kind": "approve", "arguments_hash": "/hash", "step": "/at"}
    wrong = {"at": 2} | wrong
    house = House(webhooks={"chat": HOOKS["chat"] | {"events": {"*": mapping}}})
    assert (await chat(house, {"id": "m-1", "run": RUN} | wrong)).status_code == 422
    assert house.bus.messages == []


@pytest.mark.parametrize("run", [1, None, "", "a b", "run.*.>" * 20, "x" * 129])
async def test_what_is_no_run_id_reaches_no_run(run: Any) -> None:
    house = a_house()
    answer = await chat(house, {"type": "stop", "id": "m-1", "run": run, "who": "Ann"})
    assert answer.status_code == 422
    assert house.bus.messages == []


async def test_a_captured_delivery_under_another_name_is_a_duplicate_too() -> None:
    house = a_house()
    await github(house)
    answer = await github(house, delivery="d-2")
    assert answer.json() | {"status": "duplicate", "receiver_event_id": "agentic:start:github:d-1"} == answer.json()
    assert len(house.bus.messages) == 1


@pytest.mark.attack(35)
async def test_an_old_secret_is_taken_until_its_time_is_over() -> None:
    keys_of_both = [{"secret": OLD, "until": "2026-11-21T12:00:01Z"}, {"secret": NEW}]
    house = House(webhooks={"github": HOOKS["github"] | {"keys": keys_of_both}})
    assert (await github(house)).status_code == 202
    house.clock.pass_by(1)
    assert (await github(house)).status_code == 401
    assert (await github(house, secret=NEW)).status_code == 200, "it is known, and would not be without a signature"


@pytest.mark.attack(20)
@pytest.mark.parametrize("header", ["X-Hub-Signature-256", "X-Signature", "X-Ductile-Signature-256", "X-Other"])
@pytest.mark.parametrize("body", [b"{}", b"x" * 5000], ids=["short", "too long"])
async def test_names_of_webhooks_cannot_be_found_by_asking(header: str, body: bytes) -> None:
    house = House(webhooks=HOOKS, max_body_bytes=1024)
    signature = {header: "sha256=" + hex_of(body, "a secret of nobody")}
    nobodys, *known = [await house.post(f"/webhooks/{name}", body, signature) for name in ("nobody", *HOOKS)]
    assert nobodys.status_code in (401, 413)
    assert {(answer.status_code, answer.content) for answer in known} == {(nobodys.status_code, nobodys.content)}


@pytest.mark.parametrize("secret", [OLD, NEW])
async def test_while_a_secret_is_changed_deliveries_with_either_are_taken(secret: str) -> None:
    assert (await github(a_house(), secret=secret)).status_code == 202
