"""The agentic-wake plugin run as Ductile runs it, against the fake of the wake API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask, responded
from tests.plugins.wake_api import WakeApi, serving

WAKE = SHIPPED / "agentic-wake"
TOKEN = "a-token-of-the-agent-0123456789"  # noqa: S105 - of a fake that lives for one test run
ORDER: dict[str, Any] = {
    "wake_id": "daily-2026-11-22",
    "goal": "Write a critique of the page.\nIn Grüßen 😀.",
    "context": {"tone": "kind", "pages": ["a", 1, None, True]},
    "constraints": {"max_steps": 5, "max_cost_usd": 0.5},
    "callback": "https://hooks.example.org/agent",
}


@pytest.fixture(scope="module")
def served() -> Iterator[WakeApi]:
    with serving() as api:
        yield api


@pytest.fixture
def api(served: WakeApi) -> WakeApi:
    served.received.clear()
    return served


def wake(url: str, payload: Any = None, *, command: str = "wake", seconds: float = 20, **config: Any) -> dict[str, Any]:
    settings = {"url": url, "token": TOKEN} | config
    return ask(WAKE, ORDER if payload is None else payload, command=command, config=settings, seconds=seconds)


def raw(request: bytes) -> dict[str, Any]:
    """The response to these bytes on stdin."""
    return responded(WAKE, request)


def a_request(**changes: Any) -> bytes:
    whole = {"protocol": 2, "job_id": "job-1", "command": "wake", "config": {"url": "http://127.0.0.1:9"}}
    return json.dumps(whole | {"deadline_at": "2099-01-01T00:00:00.123456789Z"} | changes).encode()
