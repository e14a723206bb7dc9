"""What the guide shows for jobs that have failed, under a real Ductile: what follows them has all that it needs.

The binary is not part of this repository: build or bring one and name it in DUCTILE_BIN.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.ductile.conftest import NO_BINARY
from tests.ductile.sample_house import AGENTIC, WAKE_TOKEN, SampleHouse, guide_hooks, in_place
from tests.kit.waiting import wait_until
from tests.plugins.wake_api import WakeApi, serving

pytestmark = [pytest.mark.ductile, pytest.mark.skipif("DUCTILE_BIN" not in os.environ, reason=NO_BINARY)]

BREAKS = """#!/usr/bin/env python3
import sys
sys.stderr.write("/dev/sda1 is full")
sys.stdout.write('{"status": "error", "error": "no space left", "retry": false}')
"""
TELLS = """#!/usr/bin/env python3
import json, sys
json.dump({"status": "ok", "result": json.dumps(json.load(sys.stdin)["event"])}, sys.stdout)
"""
LOOK_TOKEN = "a-token-that-looks-for-tests"  # noqa: S105 - of a server that lives for one test


@pytest.fixture(scope="module")
def api() -> Iterator[WakeApi]:
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, api: WakeApi) -> Iterator[SampleHouse]:
    """The sample, whose agent refuses what its schedule orders, with what the guide adds to it."""
    made = in_place(tmp_path_factory.mktemp("hooks"), agent=api.at("422"))
    made.add_plugin("nightly-backup", BREAKS)
    made.add_plugin("send-alert", TELLS)
    (made.folder / "look.token").write_text(f"{LOOK_TOKEN}\n")
    looks = {"token": LOOK_TOKEN, "scopes": ["jobs:ro"]}
    made.change("people.yaml", lambda content: content["api"]["auth"]["tokens"].append(looks))
    made.change(AGENTIC, lambda content: content["plugins"]["agentic-wake"].update(notify_on_complete=True))
    shown = guide_hooks().replace("http://127.0.0.1:8700", api.url).replace("http://127.0.0.1:8080", made.url)
    made.include("hooks.yaml", shown.replace("/home/me/ductile", str(made.folder)))
    with made.running():
        yield made


def test_a_job_that_has_failed_wakes_one_run_that_looks_for_the_cause(house: SampleHouse, api: WakeApi) -> None:
    job_id = house.ask("POST", "/plugin/nightly-backup/handle", json={"payload": {}}).json()["job_id"]

    def orders() -> list[Any]:
        return [wake for wake in api.received if wake.order.get("wake_id") == job_id]

    wait_until(lambda: bool(orders()), lambda: str(house.jobs("agentic-root-cause")))
    (woken,) = orders()
    assert woken.headers["authorization"] == f"Bearer {WAKE_TOKEN}"
    order = woken.order
    assert (order["goal"], order["untrusted"]) == (settings()["goal"], True)
    context = order["context"]
    told = {
        "event": "job.failed",
        "job_id": job_id,
        "plugin": "nightly-backup",
        "command": "handle",
        "status": "failed",
    }
    assert context | told == context
    assert "no space left" in context["error"]


def settings() -> Any:
    return yaml.safe_load(guide_hooks())["plugins"]["agentic-root-cause"]["config"]
