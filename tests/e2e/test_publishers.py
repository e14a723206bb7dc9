"""Whoever has the nats tool can publish: in any form that leaves no doubt, and told what was refused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import DevStack
from schemas import subjects
from tests.cli.calling import agentic_here
from tests.e2e.bodies import recording, running, to_the_end
from tests.kit.nats_cli import environment, needs_nats_cli, said
from tests.kit.waiting import until

pytestmark = [pytest.mark.natscli, needs_nats_cli]

CE = {"specversion": "1.0", "id": "7", "source": "/shop", "type": subjects.START}
BINARY = [part for name, value in CE.items() for part in ("-H", f"ce-{name}:{value}")]


async def test_a_start_in_any_form_is_a_run_and_one_cloudevent_is_one(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=1)) as made:
        nats = environment(tmp_path, made.nats.url)
        await said("nats", "pub", subjects.START, '{"goal": "bare", "wake_id": "bare"}', environ=nats)
        await said("nats", "pub", subjects.START, json.dumps(CE | {"data": {"goal": "event"}}), environ=nats)
        await said("nats", "pub", subjects.START, '{"goal": "event"}', *BINARY, environ=nats)
        answer = json.loads(await said("nats", "req", "--raw", "agentic-loop.wake", '{"goal": "asked"}', environ=nats))
        assert (await to_the_end(made, answer["run_id"]))["state"] == "done"
        await until(lambda: _ended(made, 3), within_s=60)
        refusal = json.loads(await said("nats", "req", "--raw", "agentic-loop.wake", '{"aim": 1}', environ=nats))
        goals = sorted(run["goal"] for run in await _runs(made))
    assert goals == ["asked", "bare", "event"]
    assert refusal["error"] == {"code": "invalid", "message": "goal: Field required", "field": "goal"}


async def test_a_refused_start_is_told_dealt_with_and_repeated_under_the_id_that_was_told(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=1)) as made:
        nats = environment(tmp_path, made.nats.url)
        heard = ("nats", "sub", "--raw", "--count=1", subjects.REJECTED, "--stream", subjects.STREAM_DEAD_LETTERS)
        listening = asyncio.create_task(said(*heard, "--all", environ=nats))
        first = ("nats", "pub", "-H", "Nats-Msg-Id:agentic:start:order-2", subjects.START)
        await said(*first, '{"goal": " "}', environ=nats)
        told = json.loads((await listening).splitlines()[-1])["payload"]
        assert "must not be blank" in told["reason"]
        again = ("nats", "pub", "-H", f"Nats-Msg-Id:{told['repeat_as']}", subjects.START)
        await said(*again, '{"goal": "record", "dedupe_key": "agentic:start:order-2"}', environ=nats)
        await until(lambda: _ended(made, 1), within_s=60)
        assert (await _runs(made))[0]["wake_id"] == "order-2"
        (letter,) = (await _agentic(made, "dlq", "ls", "--json"))["dead_letters"]
        assert letter["msg_id"] == "agentic:start:order-2"
        assert (await _agentic(made, "dlq", "drop", str(letter["id"]), "--json"))["status"] == "dropped"
        assert (await _agentic(made, "dlq", "ls", "--json"))["dead_letters"] == []


async def _agentic(made: DevStack, *arguments: str) -> Any:
    """The document that a command prints, of those who have nothing but the configuration."""
    called = await asyncio.to_thread(agentic_here, *arguments, "--config", made.config)
    return called.document


async def _runs(made: DevStack) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        found: list[dict[str, Any]] = (await client.get("/v1/runs")).json()["runs"]
        return found


async def _ended(made: DevStack, number: int) -> bool:
    return [run["status"] for run in await _runs(made)] == ["done"] * number
