"""What is sent to POST /v1/wake by the careless and the hostile: refused with a reason, and nothing is stored."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import Request
from starlette.applications import Starlette
from starlette.types import Message

from agent_service.api.body import body_of
from agent_service.api.refusals import MEDIA_TYPE, Refusal
from agent_service.api.requests import MAX_BODY_BYTES, WakeRequest
from groundwork.http.bodies import Bodies
from tests.http.house import House

GOOD = {"goal": "Find the answer."}
AS_JSON = {"Content-Type": "application/json"}


async def refused(
    house: House, content: bytes | AsyncIterator[bytes], headers: dict[str, str] = AS_JSON
) -> httpx2.Response:
    """The answer; afterwards nothing is stored, and the next good request succeeds."""
    async with house.client() as client:
        answer = await client.post("/v1/wake", content=content, headers=headers)
        assert await house.how_many() == 0
        assert (await client.post("/v1/wake", json=GOOD)).status_code == 202
    return answer


def error(answer: httpx2.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.headers["content-type"], body["status"]) == (MEDIA_TYPE, answer.status_code)
    assert body["code"] == body["error"]["code"]
    return dict(body["error"])


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[]", b'"x"', b"42"])
async def test_what_is_no_wake_is_refused(house: House, body: bytes) -> None:
    answer = await refused(house, body)
    assert answer.status_code == 422
    assert error(answer)["field"] in {"body", "goal"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"goal": "x"', id="truncated"),
        pytest.param(b'{"goal": "x"} y', id="trailing garbage"),
        pytest.param(b'{"goal": "x"}{"goal": "x"}', id="two documents"),
        pytest.param(b'{"goal": "x", "context": {"a": NaN}}', id="NaN"),
        pytest.param(b'{"goal": "x", "context": {"a": Infinity}}', id="Infinity"),
        pytest.param(b'{"goal": "x", "context": {"a": -Infinity}}', id="-Infinity"),
        pytest.param(b'{"goal": "x", "context": {"a": 1e999}}', id="overflowing float"),
        pytest.param(b'{"goal": "x", "wake_id": "a", "wake_id": "b"}', id="duplicate key"),
        pytest.param(b'{"goal": "x", "context": {"a": {"b": 1, "b": 2}}}', id="duplicate key within"),
        pytest.param(b'{"goal": "x", "wake_id": "a", "wake\\u005fid": "b"}', id="duplicate key in disguise"),
        pytest.param(b"[" * 1000 + b"]" * 1000, id="1000 deep"),
        pytest.param(b"[" * 200_000, id="200000 deep"),
        pytest.param(b'{"goal": "x", "context": ' + b'{"a":' * 32 + b"1" + b"}" * 33, id="33 deep"),
        pytest.param(b'{"goal": "x", "context": {"a": ' + b"9" * 5000 + b"}}", id="5000 digits"),
        pytest.param(b'{"goal": "x", "context": {"a": 1180591620717411303424}}', id="2 to the 70"),
        pytest.param(b'{"goal": "\\ud800"}', id="lone surrogate"),
        pytest.param(b'{"goal": "x", "context": {"\\udfff": 1}}', id="lone surrogate in a key"),
        pytest.param(json.dumps(GOOD).encode("utf-16"), id="UTF-16"),
        pytest.param(json.dumps(GOOD).encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param(json.dumps(GOOD).encode("utf-32"), id="UTF-32"),
        pytest.param(json.dumps(GOOD).encode("utf-8-sig"), id="byte order mark"),
        pytest.param(b'{"goal": "\xff"}', id="invalid UTF-8"),
        pytest.param(b'{"goal": "\xc0\xaf"}', id="overlong UTF-8"),
        pytest.param(b'{"goal": "\xed\xa0\x80"}', id="surrogate in UTF-8"),
        pytest.param(b'{"goal": "x" /* no */}', id="comment"),
        pytest.param(b"{'goal': 'x'}", id="single quotes"),
    ],
)
async def test_what_is_no_strict_json_is_refused(house: House, body: bytes) -> None:
    answer = await refused(house, body)
    assert answer.status_code == 400
    assert error(answer)["code"] == "not_json"


NO_COUNTS: list[Any] = ["10", True, 1.5, -1, 0, 10**9, []]

MISFITS: list[tuple[str, dict[str, Any]]] = [
    ("goal", {"goal": {}}),
    ("goal", {"goal": 1}),
    ("goal", {"goal": None}),
    ("goal", {"goal": ""}),
    ("goal", {"goal": " \n\t "}),
    ("goal", {"goal": "x" * (32 * 1024 + 1)}),
    ("goal", {"goal": "a\0b"}),
    ("context", {"context": []}),
    ("context", {"context": {"a": ["b\0"]}}),
    ("context", {"context": {"a\0": 1}}),
    ("context.max_steps", {"context": {"max_steps": "many"}}),
    *(("constraints.max_loops", {"constraints": {"max_loops": n}}) for n in NO_COUNTS),
    ("constraints.max_tokens", {"constraints": {"max_tokens": 2**62}}),
    ("constraints.max_cost_usd", {"constraints": {"max_cost_usd": "1"}}),
    ("constraints.max_cost_usd", {"constraints": {"max_cost_usd": 0}}),
    ("constraints.max_reframes", {"constraints": {"max_reframes": -1}}),
    ("constraints.max_loop", {"constraints": {"max_loop": 1}}),
    ("constraints", {"constraints": []}),
    ("surprise", {"surprise": 1}),
    ("query", {"query": 1}),
    ("run_id", {"run_id": "run_00000000000000000000000001"}),
    *(
        ("constraints.deadline_at", {"constraints": {"deadline_at": instant}})
        for instant in (
            "2020-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "2027-01-01T00:00:00",
            "",
        )
    ),
    *(
        ("wake_id", {"wake_id": wake_id})
        for wake_id in (
            "",
            "x" * 129,
            "../x",
            "a b",
            "\uff41",
            7,
        )
    ),
    *(
        ("callback", {"callback": callback})
        for callback in ("ftp://example.org/", "//example.org", "http://me@example.org/", "http://a b/", "x" * 5000, 1)
    ),
]


@pytest.mark.parametrize(("field", "part"), MISFITS)
async def test_a_field_that_does_not_fit_is_refused_by_its_name(house: House, field: str, part: dict[str, Any]) -> None:
    answer = await refused(house, json.dumps(GOOD | part).encode())
    assert answer.status_code == 422
    assert error(answer)["field"] == field
    assert len(answer.content) < 800, "the answer repeats what was sent"


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/json", ""],
)
async def test_what_does_not_say_that_it_is_json_is_refused(house: House, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await refused(house, json.dumps(GOOD).encode(), headers)
    assert (answer.status_code, error(answer)["code"]) == (415, "not_json")


async def test_a_body_may_have_exactly_as_many_bytes_as_it_may(client: httpx2.AsyncClient) -> None:
    body = json.dumps(GOOD).encode().ljust(MAX_BODY_BYTES)
    assert (await client.post("/v1/wake", content=body, headers=AS_JSON)).status_code == 202


async def test_one_byte_more_is_too_large(house: House) -> None:
    answer = await refused(house, json.dumps(GOOD).encode().ljust(MAX_BODY_BYTES + 1))
    assert (answer.status_code, error(answer)["code"]) == (413, "too_large")


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    app = Starlette()
    app.state.bodies = Bodies(MAX_BODY_BYTES, within_s=0.01)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
    request = Request({"type": "http", "method": "POST", "headers": headers, "app": app, "client": None}, never)
    request.state.token = None
    with pytest.raises(Refusal) as refusal:
        await body_of(WakeRequest)(request)
    assert refusal.value.status == 408
