"""What callers send, and what they prove themselves with, never turns up in a log or in an error."""

import json

import pytest

from tests.http.house import TOKENS, House, secret

CANARY = "canary-4f1a"
REFUSED: list[tuple[str, str, bytes, dict[str, str]]] = [
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


@pytest.mark.parametrize(("method", "path", "body", "headers"), REFUSED)
async def test_a_refusal_is_one_line_in_the_log_and_repeats_nothing(
    house: House,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
) -> None:
    caplog.set_level("INFO", logger="agent_service")
    async with house.client() as client:
        sent = {"Content-Type": "application/json"} | headers
        answer = await client.request(method, path, content=body, headers=sent)
    assert answer.status_code >= 400
    lines = [record for record in caplog.records if record.name.startswith("agent_service")]
    assert [record.message for record in lines] == ["refused"]
    said = answer.text + str(answer.headers) + "".join(str(vars(record)) for record in lines)
    assert CANARY not in said
    assert not any(secret(token) in said for token in TOKENS)


async def test_the_address_of_a_callback_is_not_shown_to_who_reads_the_journal(house: House) -> None:
    async with house.client() as client:
        asked = {"goal": "look", "callback": f"https://example.org/?token={CANARY}"}
        run_id = (await client.post("/v1/wake", json=asked)).json()["run_id"]
        entries = (await client.get(f"/v1/runs/{run_id}/entries")).text
    assert (CANARY in entries, '"callback":"(hidden)"' in entries) == (False, True)
