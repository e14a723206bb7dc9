"""POST /webhooks/NAME: signatures of Ductile, GitHub and Standard Webhooks, and mapped messages."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from schemas import keys
from tests.gateway.ingress.kit import UNIX_NOW, Ingress, error_of, hex_of, standard
from tests.gateway.parts import RUN

OLD, NEW, KEY = "the old secret of x", "the new secret of x", bytes(range(24))
OPENED = {"action": "opened", "issue": {"number": 7, "title": "It leaks", "labels": [{"name": "bug"}]}}
SENT = json.dumps(OPENED).encode()
TRIAGE = {
    "to": "agentic.start",
    "goal": "Triage issue {/issue/number}: {/issue/title}",
    "context": {"label": "/issue/labels/0/name", "issue": "/issue"},
}
SPEAK = {"to": "agentic.signal", "run_id": "/run", "kind": "message", "message": "{/who} says {/words}"}
STOP = {"to": "agentic.cancel", "run_id": "/run", "reason": "told to by {/who}"}
FOUND = {"status": "/data/outcome", "result": "/data/found", "error": "/data/why"}
SCAN = {"to": "agentic.tool_result", "run_id": "/data/run", "step": "/data/step", "tool": "/data/tool"} | FOUND
DONE = {"type": "scan.done", "data": {"run": RUN, "step": 4, "tool": "scan", "outcome": "ok", "found": {"n": 2}}}
HOOKS: dict[str, Any] = {
    "github": {"scheme": "github", "keys": [{"secret": OLD}, {"secret": NEW}], "events": {"issues.opened": TRIAGE}},
    "chat": {
        "scheme": "ductile",
        "keys": [{"secret": OLD}],
        "signature_header": "X-Signature",
        "delivery_id": "/id",
        "events": {"*": SPEAK, "stop": STOP},
    },
    "scanner": {
        "scheme": "standard",
        "keys": [{"secret": "whsec_" + base64.b64encode(KEY).decode()}],
        "events": {"scan.done": SCAN},
    },
    "plain": {"scheme": "ductile", "keys": [{"secret": OLD}], "events": {"*": {"to": "agentic.start", "goal": "{/g}"}}},
}


def hooked(name: str = "", **changed: Any) -> Ingress:
    """All webhooks, one of them with changed settings."""
    return Ingress(webhooks=HOOKS | ({name: HOOKS[name] | changed} if name else {}))


async def github(
    ingress: Ingress, event: Any = OPENED, *, secret: str = OLD, delivery: str = "d-1", **headers: str
) -> httpx2.Response:
    body = json.dumps(event).encode()
    about = {"X-GitHub-Delivery": delivery, "X-GitHub-Event": "issues"}
    sent = {"X-Hub-Signature-256": f"sha256={hex_of(body, secret)}"} | about | headers
    return await ingress.post("/webhooks/github", body, sent)


async def chat(ingress: Ingress, event: Any) -> httpx2.Response:
    body = json.dumps(event).encode()
    return await ingress.post("/webhooks/chat", body, {"X-Signature": hex_of(body, OLD)})


async def scanned(
    ingress: Ingress, replaced: Mapping[str, str] | None = None, *, key: bytes = KEY, **changed: str
) -> httpx2.Response:
    body = json.dumps(DONE).encode()
    return await ingress.post("/webhooks/scanner", body, standard(body, key=key, **changed) | dict(replaced or {}))


async def test_an_issue_of_github_starts_a_run_with_what_was_chosen_of_it() -> None:
    ingress = hooked()
    answer = await github(ingress)
    wake_id = f"github:{hashlib.sha256(SENT).hexdigest()}"
    ids = {"receiver_event_id": f"agentic:start:{wake_id}", "job_id": wake_id}
    told = {"status": "accepted", "event_type": "issues"} | ids
    assert (answer.status_code, answer.json()) == (202, told)
    start = {"goal": "Triage issue 7: It leaks", "context": {"label": "bug", "issue": OPENED["issue"]}}
    payload = start | {"constraints": {}, "untrusted": True, "by": "github"}
    event = {"type": "agentic.start", "payload": payload, "dedupe_key": f"agentic:start:{wake_id}"}
    assert ingress.events() == [event]


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
    ingress = hooked("plain", events={"*": {"to": "agentic.start"} | mapping})
    body = json.dumps({"g": "the leak", "untrusted": False}).encode()
    await ingress.post("/webhooks/plain", body, {"X-Ductile-Signature-256": hex_of(body, OLD)})
    assert ingress.payload().get("untrusted", False) is untrusted


async def test_a_form_of_github_is_refused_with_what_to_choose_there() -> None:
    ingress, form = hooked(), b"payload=%7B%22action%22%3A%22opened%22%7D"
    headers = {"X-Hub-Signature-256": f"sha256={hex_of(form, OLD)}", "X-GitHub-Event": "issues"}
    answer = await ingress.post("/webhooks/github", form, headers)
    assert (answer.status_code, "content type application/json" in error_of(answer)) == (415, True)


async def test_what_has_no_mapping_is_ignored_with_200() -> None:
    ingress = hooked()
    closed = await github(ingress, OPENED | {"action": "closed"})
    ping = await github(ingress, {"zen": "Keep it simple."}, **{"X-GitHub-Event": "ping"})
    assert [(answer.status_code, answer.json()) for answer in (closed, ping)] == [(200, {"status": "ignored"})] * 2
    assert ingress.bus.messages == []


ISSUE, BY = {"number": 7, "title": "x"}, {"sender": {"login": "ann"}, "repository": {}}
REF: dict[str, Any] = {"ref": "refs/heads/main", "before": "0", "after": "1"}


@pytest.mark.parametrize(
    ("says", "body"),
    [
        ("issues", {"action": "opened", "pull_request": {"title": "x"}}),
        ("issues", {"action": "created", "issue": ISSUE, "comment": {}}),
        ("push", {"ref": "v1", "ref_type": "tag", "master_branch": "main"}),
        ("deployment", REF | {"commits": [], "head_commit": None, "pusher": {}}),
        ("our-own", {"action": "opened", "issue": ISSUE}),
        ("", {"action": "opened", "issue": ISSUE}),
        ("issues", []),
    ],
)
async def test_an_event_of_github_that_was_renamed_on_the_way_is_refused(says: str, body: Any) -> None:
    ingress = hooked("github", events={"*": {"to": "agentic.start", "goal": "Do what is done on such an event."}})
    answer = await github(ingress, body | BY if body else body, **{"X-GitHub-Event": says})
    assert (answer.status_code, ingress.bus.messages) == (422, [])
    assert error_of(answer) == "the header X-GitHub-Event does not say what the body is"


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("check_run", ("check_run", "deployment")),
        ("deployment", ("deployment", "workflow", "workflow_run")),
        ("deployment_review", ("approver", "comment", "reviewers", "since", "workflow_job_run", "workflow_run")),
        ("deployment_protection_rule", ("environment", "event", "deployment", "deployment_callback_url")),
        ("membership", ("member", "scope", "team")),
    ],
)
async def test_an_event_of_github_with_a_part_of_another_is_taken(event: str, fields: tuple[str, ...]) -> None:
    ingress = hooked("github", events={"*": {"to": "agentic.start", "goal": "Do what is done on such an event."}})
    answer = await github(ingress, {"action": "x"} | {field: {} for field in fields}, **{"X-GitHub-Event": event})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "0" * 64},
        {"X-Hub-Signature-256": hex_of(SENT, OLD)},
        {"X-Hub-Signature-256": "sha256=" + hex_of(SENT, OLD).upper()},
        {"X-Hub-Signature-256": "sha256=" + hex_of(SENT, "")},
        {"X-Hub-Signature-256": "sha256=" + hex_of(SENT + b" ", OLD)},
        {"X-Hub-Signature-256": "\u00e9"},
        {"X-Hub-Signature-256": "sha1=" + "0" * 40, "X-Hub-Signature": "sha1=" + "0" * 40},
    ],
)
async def test_whatever_is_wrong_with_a_signature_is_answered_alike(headers: dict[str, str]) -> None:
    ingress = hooked()
    answer = await github(ingress, **headers)
    assert (answer.status_code, answer.json(), ingress.bus.messages) == (401, {"error": "unauthorized"}, [])


HASH = "0123456789abcdef0123456789abcdef"
ABOUT = {"to": "agentic.signal", "run_id": "/run"}
LIMITED = {"message": "{/words}", "outcome": "/outcome", "constraints": {"max_steps": "/steps"}, "trusted": True}


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({"kind": "answer", "message": "{/words}"}, {"message": "the blue one", "untrusted": True}),
        ({"kind": "answer", "message": "{/words}", "trusted": True}, {"message": "the blue one"}),
        ({"kind": "message", "message": "Somebody has seen it."}, {"message": "Somebody has seen it."}),
        (
            {"kind": "answer"} | LIMITED,
            {"message": "the blue one", "outcome": "did_not_run", "constraints": {"max_steps": 12}},
        ),
        ({"kind": "approve", "arguments_hash": "/hash"}, {"arguments_hash": HASH}),
        ({"kind": "approve", "arguments_hash": "/hash", "step": "/steps"}, {"arguments_hash": HASH, "step": 12}),
        ({"kind": "reject", "message": "No: {/words}"}, {"message": "No: the blue one", "untrusted": True}),
    ],
)
async def test_a_person_answers_allows_and_refuses_through_a_webhook(
    mapping: dict[str, Any], told: dict[str, Any]
) -> None:
    ingress = hooked("chat", events={"*": ABOUT | mapping})
    said = {"words": "the blue one", "outcome": "did_not_run", "steps": 12, "hash": HASH}
    assert (await chat(ingress, {"id": "m-1", "run": RUN} | said)).status_code == 202
    about = {"run_id": RUN, "signal_id": "chat:m-1", "kind": mapping["kind"], "by": "chat"}
    assert ingress.payload() == about | told


@pytest.mark.parametrize(
    "event",
    [
        # An approval names what it allows.
        *({"run": RUN, "at": 2} | wrong for wrong in ({"hash": "all of it"}, {"hash": None}, {})),
        {"run": RUN, "hash": HASH, "at": None},
        # A run has a name that is one.
        *({"type": "stop", "run": run, "who": "Ann"} for run in (1, None, "", "a b", "run.*.>" * 20, "x" * 129)),
    ],
    ids=str,
)
async def test_what_allows_nothing_or_names_no_run_reaches_no_run(event: dict[str, Any]) -> None:
    approve = ABOUT | {"kind": "approve", "arguments_hash": "/hash", "step": "/at"}
    ingress = hooked("chat", events={"*": approve, "stop": STOP})
    assert (await chat(ingress, {"id": "m-1"} | event)).status_code == 422
    assert ingress.bus.messages == []


async def test_a_run_is_cancelled_through_a_webhook_by_who_is_named() -> None:
    ingress = hooked()
    assert (await chat(ingress, {"type": "stop", "id": "m-1", "run": RUN, "who": "Ann"})).status_code == 202
    assert ingress.payload() == {"run_id": RUN, "reason": "told to by Ann", "by": "chat"}


async def test_a_captured_delivery_under_another_name_is_the_same_event() -> None:
    ingress = hooked()
    first, again = await github(ingress), await github(ingress, delivery="d-2")
    assert again.json() == first.json()
    assert len(ingress.bus.messages) == 1


async def test_while_a_secret_is_changed_either_is_taken_until_the_time_of_the_old_one_is_over() -> None:
    ingress = hooked("github", keys=[{"secret": OLD, "until": "2026-11-21T12:00:01Z"}, {"secret": NEW}])
    assert [(await github(ingress, secret=secret)).status_code for secret in (OLD, NEW)] == [202, 202]
    ingress.clock.advance(1)
    assert (await github(ingress)).status_code == 401
    assert (await github(ingress, secret=NEW)).status_code == 202


@pytest.mark.parametrize(
    "header", ["X-Hub-Signature-256", "X-Signature", "X-Ductile-Signature-256", "webhook-signature", "X-Other"]
)
@pytest.mark.parametrize("body", [b"{}", b"x" * 5000], ids=["short", "too long"])
async def test_names_of_webhooks_cannot_be_found_by_asking(header: str, body: bytes) -> None:
    ingress = Ingress(webhooks=HOOKS, max_body_bytes=1024)
    signature = {header: "sha256=" + hex_of(body, "a secret of nobody")}
    nobodys, *known = [await ingress.post(f"/webhooks/{name}", body, signature) for name in ("nobody", *HOOKS)]
    assert nobodys.status_code in (401, 413)
    assert {(answer.status_code, answer.content) for answer in known} == {(nobodys.status_code, nobodys.content)}


async def test_a_standard_webhook_answers_a_step_once_whatever_time_it_has() -> None:
    ingress = hooked()
    first, again = await scanned(ingress), await scanned(ingress, at=str(UNIX_NOW + 200))
    assert (first.status_code, first.json()["receiver_event_id"]) == (202, keys.result(RUN, 4, 1))
    assert (again.status_code, again.json()) == (202, first.json())
    payload = ingress.payload()
    assert (payload["step"], payload["status"], payload["result"]) == (4, "ok", {"n": 2})
    assert payload["untrusted"] is True


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        *(({"at": at}, 401) for at in (str(UNIX_NOW - 301), str(UNIX_NOW + 301), "nan", "", "1_795_262_400")),
        ({"replaced": {"webhook-id": "msg_2"}}, 401),
        ({"key": b"the secret of another one"}, 401),
        *(({"name": name}, 401) for name in ("", "a.b", "x" * 257)),
    ],
    ids=str,
)
async def test_a_standard_webhook_is_of_this_time_and_this_sender_and_its_short_id_is_signed(
    changed: dict[str, Any], status: int
) -> None:
    ingress = hooked()
    assert ((await scanned(ingress, **changed)).status_code, ingress.bus.messages) == (status, [])
