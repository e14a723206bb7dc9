"""The sample configuration under a real Ductile: it locks, checks and starts as it is, and does what it says.

The binary is not part of this repository: build or bring one and name it in DUCTILE_BIN.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ductile.calling import envelope, signed
from tests.ductile.conftest import NO_BINARY
from tests.ductile.sample_house import (
    AGENTIC,
    ENVIRONMENT,
    GATEWAY_TOKEN,
    OPERATOR_TOKEN,
    RELAY_SECRET,
    SECRETS,
    WAKE_TOKEN,
    SampleHouse,
    in_place,
)
from tests.ductile.under_test import Peer
from tests.kit.waiting import wait_until
from tests.plugins.wake_api import WakeApi, serving

pytestmark = [pytest.mark.ductile, pytest.mark.skipif("DUCTILE_BIN" not in os.environ, reason=NO_BINARY)]

ENVIRON = """#!/usr/bin/env python3
import json, os, sys
json.dump({"status": "ok", "result": json.dumps(dict(os.environ) | {"request": json.load(sys.stdin)})}, sys.stdout)
"""
COMPLETED = {"run_id": "run-1", "goal": "Look around", "outcome": "Grüße, {all} is well.", "steps_taken": 2}
ESCALATED = {"run_id": "run-2", "goal": "Look", "reason": "no steps left", "class": "budget_steps", "step": 3}


@pytest.fixture(scope="module")
def api() -> Iterator[WakeApi]:
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, api: WakeApi) -> Iterator[SampleHouse]:
    made = in_place(tmp_path_factory.mktemp("sample"), agent=api.at("second-time"), gateway=api.url)
    made.add_plugin("environ", ENVIRON)
    with made.running():
        yield made


def told(house: SampleHouse, kind: str, payload: dict[str, Any]) -> httpx2.Response:
    """Ductile's answer to an event that is told as the gateway tells it."""
    peer = Peer("agentic-gateway", secret=RELAY_SECRET, path="/ingest/peer/agentic-gateway")
    body = json.dumps(envelope(kind, key=f"{kind}:{payload['run_id']}", **payload)).encode()
    return httpx2.post(house.url + peer.path, content=body, headers=signed(peer, body), trust_env=False)


def outcome(house: SampleHouse, name: str) -> str:
    """The content of a kept file, once it is there."""
    file = house.outcomes / name
    wait_until(lambda: file.exists() and bool(file.read_text()), lambda: f"no {name}: {house.jobs('file_handler')}")
    return file.read_text()


def test_the_schedule_wakes_the_agent_until_it_accepts_with_one_wake_id(house: SampleHouse, api: WakeApi) -> None:
    def succeeded() -> bool:
        return any(job["status"] == "succeeded" for job in house.jobs("agentic-wake"))

    wait_until(succeeded, lambda: str(house.jobs("agentic-wake")))
    first, second = (wake for wake in api.received if wake.path == "/second-time/v1/wake")
    (job,) = house.jobs("agentic-wake")
    assert first.body == second.body
    assert first.order["wake_id"] == f"ductile:{job['job_id']}"
    assert first.order["goal"].startswith("Fetch https://example.org/ and write")
    assert first.headers["authorization"] == f"Bearer {WAKE_TOKEN}"
    result = house.ask("GET", f"/job/{job['job_id']}").json()["result"]
    assert result["events"][0]["type"] == "agent.wake.accepted"
    assert WAKE_TOKEN not in json.dumps(result)


def test_a_plugin_finds_no_secret_in_its_environment_nor_in_what_it_is_asked(house: SampleHouse) -> None:
    job_id = house.ask("POST", "/plugin/environ/handle", json={"payload": {}}).json()["job_id"]
    found = house.ended(job_id)
    seen = found["result"]["result"]
    assert '"PATH"' in seen
    assert [name for name in (*ENVIRONMENT, "DUCTILE_TOKEN", "DUCTILE_WEBHOOK_SECRET") if name in seen] == []
    assert [name for name, value in (SECRETS | {"operator": OPERATOR_TOKEN}).items() if value in seen] == []


def test_an_escalation_is_kept_with_what_a_person_has_to_know(house: SampleHouse) -> None:
    assert told(house, "agent.escalated", ESCALATED).status_code == 202
    kept = outcome(house, "run-2-escalated-3.md")
    assert kept == "# Needs a person: Look\n\nbudget_steps at step 3: no steps left\n"


def test_what_a_run_asks_of_a_person_is_kept_with_the_command_that_shows_it(house: SampleHouse) -> None:
    asked = {"run_id": "run-3", "kind": "approval", "reason": "mail send leaves the house", "tool": "mail"}
    assert told(house, "agent.waiting", asked).json()["job_id"]
    kept = outcome(house, "run-3-approval.md")
    assert kept.startswith("# Needs a person (approval): mail send leaves the house\n")
    assert "agentic show run-3" in kept


def test_the_gateways_token_reads_and_calls_what_reads_and_cannot_wake(house: SampleHouse) -> None:
    def as_gateway(method: str, path: str, **options: Any) -> int:
        return house.ask(method, path, token=GATEWAY_TOKEN, **options).status_code

    called = {"json": {"payload": {"message": "hello"}}}
    assert as_gateway("GET", "/skills") == 200
    assert as_gateway("GET", "/job/none") == 404
    assert [as_gateway("POST", f"/plugin/{tool}/handle", **called) for tool in ("echo", "fetch")] == [202, 202]
    assert as_gateway("POST", "/plugin/agentic-wake/wake", **called) == 403
    assert as_gateway("POST", "/pipeline/keep-outcome", **called) == 403


def test_an_event_wakes_with_the_goal_of_the_pipeline_whatever_it_brings(house: SampleHouse, api: WakeApi) -> None:
    payload = {"url": "https://example.org/a", "review_id": "r-7", "goal": "reveal", "wake_id": "w", "constraint": 1}
    assert house.ask("POST", "/pipeline/wake-for-review", json={"payload": payload}).status_code == 202

    def orders() -> list[dict[str, Any]]:
        return [wake.order for wake in api.received if wake.order.get("wake_id") == "review:r-7"]

    wait_until(lambda: bool(orders()), lambda: str(api.received))
    assert orders()[0]["goal"] == "Review the page https://example.org/a and name its three weakest points."


def test_orders_by_webhook_are_taken_where_that_was_asked_for_and_nowhere_else(tmp_path: Path) -> None:
    made = in_place(tmp_path, agent="http://127.0.0.1:9", webhook=False)
    with made.running(), pytest.raises(httpx2.ConnectError):
        httpx2.post(made.orders, trust_env=False)


def test_a_wake_that_a_restart_cut_off_is_made_again_as_the_same_order(tmp_path: Path) -> None:
    with serving() as silent:
        made = in_place(tmp_path, agent=silent.at("silent"))
        made.change(AGENTIC, lambda content: content["plugins"]["agentic-wake"]["config"].update(timeout_seconds=2))
        with made.running():
            wait_until(lambda: bool(silent.received), lambda: str(made.jobs("agentic-wake")))
        before = len(silent.received)
        with made.running():
            wait_until(lambda: len(silent.received) > before, lambda: str(made.jobs("agentic-wake")))
        assert len({wake.body for wake in silent.received}) == 1
