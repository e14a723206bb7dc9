"""Faulty and hostile requests are refused as a problem (RFC 9457) that names every fault.

Nothing is stored, and the next good request succeeds.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from agent_service.api import requests
from agent_service.api.errors import MEDIA_TYPE, ApiError
from agent_service.api.requests import MAX_BODY_BYTES
from tests.http.house import TOKENS, House, secret, with_a_letter
from tests.kit.runs import run_id, whole_run

GOOD = {"goal": "Find the answer."}
AS_JSON = {"Content-Type": "application/json"}
UNKNOWN = f"/v1/runs/{run_id(9)}"
CANARY = "canary-4f1a"
OTHER = "0" * 32


async def refusal(client: httpx2.AsyncClient, path: str, content: bytes) -> Any:
    answer = await client.post(path, content=content, headers=AS_JSON)
    told = answer.json()
    assert (answer.headers["content-type"], told["status"]) == (MEDIA_TYPE, answer.status_code), answer.text
    assert told["code"] == told["error"]["code"]
    assert len(answer.content) < 900, "the answer repeats what was sent"
    return answer.status_code, told["code"], told["error"].get("field")


async def nothing_came_of_it(house: House) -> None:
    assert await house.how_many() == 0
    async with house.client() as client:
        assert (await client.post("/v1/wake", json=GOOD)).status_code == 202


NOT_JSON = {
    "truncated": b'{"goal": "x"',
    "trailing garbage": b'{"goal": "x"} y',
    "two documents": b'{"goal": "x"}{"goal": "x"}',
    "NaN": b'{"goal": "x", "context": {"a": NaN}}',
    "Infinity": b'{"goal": "x", "context": {"a": Infinity}}',
    "-Infinity": b'{"goal": "x", "context": {"a": -Infinity}}',
    "overflowing float": b'{"goal": "x", "context": {"a": 1e999}}',
    "duplicate key": b'{"goal": "x", "wake_id": "a", "wake_id": "b"}',
    "duplicate key within": b'{"goal": "x", "context": {"a": {"b": 1, "b": 2}}}',
    "duplicate key in disguise": b'{"goal": "x", "wake_id": "a", "wake\\u005fid": "b"}',
    "1000 deep": b"[" * 1000 + b"]" * 1000,
    "200000 deep": b"[" * 200_000,
    "33 deep": b'{"goal": "x", "context": ' + b'{"a":' * 32 + b"1" + b"}" * 33,
    "5000 digits": b'{"goal": "x", "context": {"a": ' + b"9" * 5000 + b"}}",
    "2 to the 70": b'{"goal": "x", "context": {"a": 1180591620717411303424}}',
    "lone surrogate": b'{"goal": "\\ud800"}',
    "lone surrogate in a key": b'{"goal": "x", "context": {"\\udfff": 1}}',
    **{name: json.dumps(GOOD).encode(name) for name in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig")},
    "invalid UTF-8": b'{"goal": "\xff"}',
    "overlong UTF-8": b'{"goal": "\xc0\xaf"}',
    "surrogate in UTF-8": b'{"goal": "\xed\xa0\x80"}',
    "comment": b'{"goal": "x" /* no */}',
    "single quotes": b"{'goal': 'x'}",
}


async def test_what_is_no_strict_json_is_refused(client: httpx2.AsyncClient, house: House) -> None:
    found = {name: await refusal(client, "/v1/wake", body) for name, body in NOT_JSON.items()}
    assert found == dict.fromkeys(NOT_JSON, (400, "not_json", None))
    await nothing_came_of_it(house)


NO_BODIES: tuple[Any, ...] = (None, [], "x", 42)
NO_GOALS: tuple[Any, ...] = ({}, 1, None, "", " \n\t ", "x" * (32 * 1024 + 1), "a\0b")
NO_COUNTS: tuple[Any, ...] = ("10", True, 1.5, -1, 0, 10**9, [])
WAKES: list[tuple[str, Any]] = [
    *(("body", body) for body in NO_BODIES),
    *(("goal", {"goal": goal}) for goal in NO_GOALS),
    ("context", {"context": []}),
    ("context", {"context": {"a": ["b\0"]}}),
    ("context", {"context": {"a\0": 1}}),
    ("context.max_steps", {"context": {"max_steps": "many"}}),
    *(("constraints.max_loops", {"constraints": {"max_loops": n}}) for n in NO_COUNTS),
    ("constraints.max_tokens", {"constraints": {"max_tokens": 2**62}}),
    *(("constraints.max_cost_usd", {"constraints": {"max_cost_usd": cost}}) for cost in ("1", 0)),
    ("constraints.max_reframes", {"constraints": {"max_reframes": -1}}),
    ("constraints.max_loop", {"constraints": {"max_loop": 1}}),
    ("constraints", {"constraints": []}),
    ("surprise", {"surprise": 1}),
    *(("untrusted", {"untrusted": odd}) for odd in (0, "no")),
    ("run_id", {"run_id": "run_00000000000000000000000001"}),
    *(
        ("constraints.deadline_at", {"constraints": {"deadline_at": instant}})
        for instant in ("2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2027-01-01T00:00:00", "")
    ),
    *(("wake_id", {"wake_id": wake_id}) for wake_id in ("", "x" * 129, "../x", "a b", "\uff41", 7)),
    *(
        ("callback", {"callback": callback})
        for callback in ("ftp://example.org/", "//example.org", "http://me@example.org/", "http://a b/", "x" * 5000, 1)
    ),
]
WORDS: list[tuple[str, str, dict[str, Any]]] = [
    ("approvals", "decision", {"decision": "maybe", "arguments_hash": OTHER}),
    ("approvals", "arguments_hash", {"decision": "approve"}),
    ("approvals", "why", {"decision": "reject", "why": "x"}),
    ("answers", "answer", {"answer": "x" * 8193}),
    ("answers", "answer", {}),
    ("answers", "message", {"answer": "x", "message": "y"}),
    ("signals", "kind", {"kind": "explode"}),
    ("signals", "message", {"kind": "answer"}),
    ("signals", "message", {"kind": "message", "message": ""}),
    ("signals", "message", {"kind": "message", "message": "a\0"}),
    ("signals", "arguments_hash", {"kind": "approve"}),
    ("signals", "outcome", {"kind": "message", "message": "x", "outcome": "ran"}),
    ("signals", "step", {"kind": "resume", "step": 1}),
    ("signals", "constraints", {"kind": "raise_budget"}),
    ("signals", "signal_id", {"kind": "resume", "signal_id": "a b"}),
]


async def test_a_field_that_does_not_fit_is_refused_by_its_name(client: httpx2.AsyncClient, house: House) -> None:
    flaws = []
    for field, part in WAKES:
        body = GOOD | part if isinstance(part, dict) else part
        status, code, named = await refusal(client, "/v1/wake", json.dumps(body).encode())
        if (status, named) != (422, field):
            flaws.append((part, status, code, named))
    assert flaws == []
    assert (
        await refusal(client, "/v1/wake", b"") == await refusal(client, "/v1/wake", b"{}") == (422, "invalid", "goal")
    )
    await nothing_came_of_it(house)


async def test_a_word_to_a_run_that_does_not_fit_is_refused_and_changes_nothing(
    client: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(with_a_letter())
    before, flaws = await house.state(run), []
    for part, field, body in WORDS:
        found = await refusal(client, f"/v1/runs/{run}/{part}", json.dumps(body).encode())
        flaws += [] if found == (422, "invalid", field) else [(part, body, found)]
    for kind, more in {"resume": {}, "message": {"message": "x"}, "approve": {"arguments_hash": OTHER}}.items():
        body = {"kind": kind, "constraints": {"max_steps": 9}} | more
        found = await refusal(client, f"/v1/runs/{run}/signals", json.dumps(body).encode())
        flaws += [] if found == (422, "not_granted", "constraints") else [("signals", body, found)]
    assert flaws == []
    assert await house.state(run) == before


LIBRARY_WORDS = ("Input", "input", "datetime", "Value")
QUERIES: list[tuple[str, dict[str, Any]]] = [
    *(("limit", {"limit": limit}) for limit in (10**9, 0, "1; DROP TABLE runs")),
    ("status.0", {"status": "done' OR '1'='1"}),
    *(("cursor", {"cursor": cursor}) for cursor in ("%", "x" * 1000, "", "bogus")),
    *(("cursor", {"cursor": f"run_{ulid}"}) for ulid in ("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01M808MS3MJ9K8CQKG3J135SFI")),
    *(("since", {"since": at}) for at in ("yesterday", "2026-13-01T00:00:00Z")),
    ("limit", {"limit": "9" * 5000}),
    ("until", {"until": "tomorrow"}),
    ("text", {"text": "x" * 201}),
    ("order_by", {"order_by": "goal"}),
    ("stat", {"stat": "done"}),
]


async def test_a_list_takes_no_other_questions(client: httpx2.AsyncClient) -> None:
    for field, query in QUERIES:
        answer = await client.get("/v1/runs", params=query)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field), query
        assert [word for word in LIBRARY_WORDS if word in answer.json()["detail"]] == [], query


PLACES = ("-1", "x", "1.0", "1e3", "1_0", " 1 1", "٣", "0x1", "9" * 30, "7", "1\u2028")


@pytest.mark.parametrize("path", ["/v1/events", f"/v1/runs/{run_id(1)}/events"])
async def test_an_id_that_is_none_of_the_journal_is_refused(
    client: httpx2.AsyncClient, house: House, path: str
) -> None:
    await house.play(whole_run())
    for sent in PLACES:
        answer = await client.get(path, headers=[(b"last-event-id", sent.encode())])
        (flaw,) = answer.json()["errors"]
        told = answer.status_code, flaw["field"], flaw["field"] in flaw["message"]
        assert told == (422, "Last-Event-ID", False), sent


async def test_a_body_may_have_exactly_as_many_bytes_as_it_may(client: httpx2.AsyncClient, house: House) -> None:
    body = json.dumps(GOOD).encode()
    assert await refusal(client, "/v1/wake", body.ljust(MAX_BODY_BYTES + 1)) == (413, "too_large", None)
    await nothing_came_of_it(house)
    answer = await client.post("/v1/wake", content=body.ljust(MAX_BODY_BYTES), headers=AS_JSON)
    assert answer.status_code == 202


async def test_a_refusal_is_a_problem_with_the_error_of_earlier_versions_in_it(client: httpx2.AsyncClient) -> None:
    told = (await client.get(UNKNOWN)).json()
    assert told.pop("instance").startswith("urn:uuid:")
    assert told == {
        "type": "/docs#unknown_run",
        "title": "There is no such run",
        "status": 404,
        "detail": "there is no run of this id",
        "code": "unknown_run",
        "errors": [],
        "error": {"code": "unknown_run", "message": "there is no run of this id"},
    }


async def test_every_field_that_has_to_change_is_named(client: httpx2.AsyncClient) -> None:
    body = {"constraints": {"max_loops": 0, "max_loop": 1}, "surprise": 1, "depth": "deep"}
    told = (await client.post("/v1/wake", json=body)).json()
    assert [(error["field"], error["code"]) for error in told["errors"]] == [
        ("goal", "missing"),
        ("constraints.max_loops", "greater_than_equal"),
        ("constraints.max_loop", "extra_forbidden"),
        ("depth", "int_type"),
        ("surprise", "extra_forbidden"),
    ]
    assert all(f"{error['field']}: {error['message']}" in told["detail"] for error in told["errors"])


async def test_a_misspelt_parameter_is_refused_before_anything_is_done(
    client: httpx2.AsyncClient, house: House
) -> None:
    said = ("/v1/wake", f"{UNKNOWN}/cancel", "/v1/stop-all", "/v1/dead-letters/1/retry")
    asked = (UNKNOWN, f"{UNKNOWN}/events", f"{UNKNOWN}/timeline", "/v1/events", "/v1/counts", "/v1/tools")
    for path in (*said, *asked):
        method, body = ("POST", GOOD if path == "/v1/wake" else {}) if path in said else ("GET", None)
        answer = await client.request(method, path, params={"wiat": 30}, json=body)
        told = answer.json()
        assert (answer.status_code, [error["field"] for error in told["errors"]]) == (422, ["wiat"]), path
    await nothing_came_of_it(house)


WITH_A_CANARY: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("POST", "/v1/wake", json.dumps({"goal": CANARY, "wake_id": "a b"}).encode(), {}),
    ("POST", "/v1/wake", json.dumps({"goal": CANARY, "constraints": {"max_loops": CANARY}}).encode(), {}),
    ("POST", "/v1/wake", f'{{"goal": "{CANARY}"'.encode(), {}),
    ("POST", "/v1/wake", CANARY.encode(), {"Content-Type": "text/plain"}),
    ("POST", "/v1/wake", b"{}", {"Content-Type": CANARY}),
    ("POST", "/v1/wake", b"{}", {"Content-Encoding": CANARY}),
    ("POST", "/v1/wake", b"{}", {"Origin": f"https://{CANARY}"}),
    ("GET", "/v1/runs", b"", {"Host": CANARY}),
    ("GET", "/v1/runs", b"", {"Authorization": f"Bearer {CANARY}"}),
    ("GET", f"/v1/runs?token={CANARY}&status={CANARY}", b"", {}),
    ("GET", f"/v1/runs/{CANARY}", b"", {}),
    ("GET", f"/{CANARY}", b"", {}),
    (CANARY, "/v1/runs", b"", {}),
]


async def test_a_refusal_is_one_line_in_the_log_and_repeats_nothing(
    client: httpx2.AsyncClient, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names its instance and the token."""
    caplog.set_level("INFO", logger="agent_service")
    for method, path, body, headers in WITH_A_CANARY:
        caplog.clear()
        answer = await client.request(method, path, content=body, headers=AS_JSON | headers)
        lines = [record for record in caplog.records if record.name.startswith("agent_service")]
        assert (answer.status_code >= 400, [record.message for record in lines]) == (True, ["refused"]), path
        said = answer.text + str(answer.headers) + "".join(str(vars(record)) for record in lines)
        assert CANARY not in said, (method, path)
        assert not any(secret(token) in said for token in TOKENS)
    caplog.clear()
    async with house.client("reader") as reader:
        instance = (await reader.post("/v1/wake", json=GOOD)).json()["instance"]
    (line,) = (vars(record) for record in caplog.records if record.message == "refused")
    assert (line["instance"], line["status"], line["caller"]) == (instance, 403, "reader")


@pytest.mark.parametrize("context", [{"n": [0] * 120_000}, {"n": [[0]] * 60_000}, {f"k{n}": n for n in range(16_000)}])
def test_a_wake_with_values_without_end_costs_little_more_than_reading_it(context: dict[str, Any]) -> None:
    body = json.dumps({"goal": "x", "context": context}, separators=(",", ":")).encode()

    def refused() -> str:
        with pytest.raises(ApiError) as told:
            requests.read(requests.WakeRequest, body)
        return str(told.value)

    assert "at most 10000 values" in refused()
    reading = min(cpu_of(lambda: json.loads(body)) for _ in range(5))
    assert min(cpu_of(refused) for _ in range(5)) < 12 * reading


def cpu_of(deed: Callable[[], object]) -> float:
    before = time.process_time()
    deed()
    return time.process_time() - before
