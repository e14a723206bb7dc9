"""What operators ask of a running agent: how all is, and why a run stands still."""

import getpass
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from schemas import keys, subjects
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


async def test_a_refused_message_waits_for_a_person_until_somebody_has_dealt_with_it(dev: Dev) -> None:
    payload = {"goal": "append", "constraints": {"max_steps": 10_000}, "callback": "https://example.org/?token=canary"}
    body = {"type": subjects.START, "payload": payload, "dedupe_key": keys.start("too-much")}
    link = await connect(NatsSettings(urls=(dev.facts["nats"],)))
    try:
        await link.publish(subjects.START, json.dumps(body).encode(), msg_id=keys.start("too-much"), headers={})
    finally:
        await link.close()

    def letters() -> list[dict[str, Any]]:
        return [item for item in ask(dev, "/v1/inbox")["items"] if item["kind"] == "dead_letter"]

    await until(letters)
    (item,) = letters()
    (shown,) = ask(dev, f"/v1/dead-letters?cursor={item['seq'] - 1}&limit=1")["letters"]
    assert json.loads(shown["body"])["payload"] == payload | {"callback": "(hidden)"}
    assert (shown["reason"], shown["settled"]) == (item["text"], None)
    discarded = httpx2.post(f"{dev.url}/v1/dead-letters/{item['seq']}/discard", json={}, trust_env=False)
    assert (discarded.status_code, discarded.json()["by"]) == (202, f"os user {getpass.getuser()}")
    assert letters() == []
    (settled,) = ask(dev, "/v1/dead-letters")["letters"]
    assert (settled["settled"]["what"], settled["settled"]["by"]) == ("dropped", discarded.json()["by"])
    assert settled["body"] is None  # a start leaves its stream when it is taken, and what is dropped is gone
