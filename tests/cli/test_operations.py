"""A run whose gateway stands still says who holds its request."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.cli.dev_stack import Dev
from tests.kit.waiting import until


def ask(dev: Dev, path: str) -> dict[str, Any]:
    answer = httpx2.get(f"{dev.url}{path}", timeout=20, trust_env=False)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@contextmanager
def without_a_gateway(dev: Dev) -> Iterator[None]:
    """It is stopped in the middle of whatever it does, and goes on afterwards."""
    gateway = dev.facts["pids"]["gateway"]
    os.kill(gateway, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway, signal.SIGCONT)


def marks(dev: Dev) -> dict[str, str]:
    return {f"{check['part']} {check['name']}": check["mark"] for check in ask(dev, "/v1/health")["checks"]}


async def test_of_a_run_whose_gateway_stands_still_it_is_said_who_holds_its_request(dev: Dev) -> None:
    with without_a_gateway(dev):
        run_id = dev("wake", "--json", "say it back").document["run_id"]

        async def waits_for_its_tool() -> bool:
            waits = ask(dev, f"/v1/runs/{run_id}")["waiting_for"]
            return bool(waits) and waits["kind"] == "tool"

        await until(waits_for_its_tool)
        why = ask(dev, f"/v1/runs/{run_id}/why")
        gateway = marks(dev)["gateway gateway"]
    facts = {fact["what"]: fact["text"] for fact in why["facts"]}
    assert why["waiting_for"]["what"].startswith("the result of step 1")
    assert "of AGENTIC_REQUESTS, stored" in facts["request"]
    assert "consumer tools" in facts["request"]
    assert facts["executor"] == "ductile-gateway does not answer"
    assert why["verdict"].startswith("nobody works on step 1")
    assert why["remedy"]["command"] == "ductile-gateway serve"
    assert gateway == "wrong"

    async def is_done() -> bool:
        return bool(ask(dev, f"/v1/runs/{run_id}")["state"] == "done")

    await until(is_done)
    assert ask(dev, f"/v1/runs/{run_id}/why")["verdict"].startswith("it has ended: done")
