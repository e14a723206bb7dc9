"""The agentic-wake plugin: where it may send its token, that it never tells it, and what it makes of odd requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.wake_api import WakeApi
from tests.plugins.waking import TOKEN, a_request, raw, wake
from tests.plugins.waking import api as api
from tests.plugins.waking import served as served


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (None, "must be the address of the agent"),
        (8700, "must be the address of the agent"),
        ("", "must be the address of the agent"),
        ("127.0.0.1:8700", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("ftp://127.0.0.1/", "http:// or https://"),
        ("http://", "must be the address of the agent"),
        ("http://127.0.0.1:99999", "not a valid address"),
        ("http://[::1", "not a valid address"),
        (f"https://{'x' * 64}.example.org", "not a valid address"),
        ("http://127.0.0.1/\r\nX-Evil: 1", "must be the address of the agent"),
        ("http://me:secret@127.0.0.1", "user name"),
        ("http://127.0.0.1/?next=1", "a query"),
        ("http://127.0.0.1/#part", "a fragment"),
        ("http://192.0.2.1:8700", "without TLS"),
        ("http://agent.example.org", "without TLS"),
        ("http://localhost.example.org", "without TLS"),
        ("http://127.0.0.1.example.org", "without TLS"),
    ],
)
@pytest.mark.parametrize("command", ["wake", "health"])
def test_an_address_that_must_not_be_asked_is_a_fault_of_the_settings(url: Any, told: str, command: str) -> None:
    response = wake(url, {"goal": "look"} if command == "wake" else {}, command=command)
    assert (response["status"], response["retry"], response["error_class"]) == ("error", False, "misconfigured")
    assert told in response["error"]


@pytest.mark.parametrize("config", [{}, {"secret": "of-the-night-shift"}])
def test_the_token_may_come_from_the_vault(api: WakeApi, config: dict[str, str]) -> None:
    secrets = {"agentic-wake-token": TOKEN, "of-the-night-shift": f"{TOKEN}-2\n"}
    raw(a_request(config={"url": api.url} | config, payload={"goal": "look"}, secrets=secrets))
    assert api.received[0].headers["authorization"] == f"Bearer {TOKEN}{'-2' if config else ''}"


@pytest.mark.parametrize("file", [True, False])
def test_the_token_may_come_from_a_file(api: WakeApi, tmp_path: Path, file: bool) -> None:
    place = tmp_path / "wake.token"
    if file:
        place.write_text(f"{TOKEN}\n")
    response = wake(api.url, token=None, token_file=str(place))
    assert (response["status"], [wake.headers["authorization"] for wake in api.received]) == (
        ("ok", [f"Bearer {TOKEN}"]) if file else ("error", [])
    )
    assert file or response["error"] == f"token_file {place} cannot be read as text"


@pytest.mark.parametrize("token", ["two words", "line\r\nX-Evil: 1", "schlüssel", "x" * 513, 7, ["x"], {"a": 1}])
def test_a_token_that_is_none_is_not_sent_nor_told(api: WakeApi, token: Any) -> None:
    response = wake(api.url, token=token)
    assert (response["retry"], response["error_class"], api.received) == (False, "misconfigured", [])
    assert "X-Evil" not in response["error"]


@pytest.mark.parametrize("behaviour", ["tells-token", "runs-as-token", "401", "silent", "hang-up", "moved"])
def test_the_token_is_never_told(api: WakeApi, behaviour: str) -> None:
    response = wake(api.at(behaviour), timeout_seconds=0.3)
    assert response["status"] == "error"
    assert api.received[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in json.dumps(response)


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"no JSON",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        a_request(command=None),
        a_request(job_id=7),
        a_request(deadline_at="soon"),
        a_request(deadline_at="2099-01-01T00:00:00"),
        a_request(config=["url"]),
        a_request(event="agent.completed"),
        a_request(secrets="x"),
    ],
)
def test_what_is_no_request_is_answered_with_one_error(request_: bytes) -> None:
    response = raw(request_)
    assert (response["status"], response["retry"]) == ("error", False)
    assert response["error"] == "what came on stdin is not a request of plugin protocol 2"
