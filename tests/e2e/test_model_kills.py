"""kill -9 of the agent while Claude thinks, with the real SDK over HTTP: at most the call in hand is made again, no
finished one ever, and what the run says it spent is the sum of its journal."""

import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import DevStack
from tests.e2e.bodies import running, to_the_end, view, wake
from tests.e2e.minds import RecordingMind, asking
from tests.kit.waiting import until
from tests.models.fake_anthropic import FakeAnthropic

STEPS = 2
CALLS = STEPS + 2
"""A framing with the first plan, a reflection for each step, and a verification of the claim to be done."""


@pytest.fixture
def api() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    yield fake
    fake.close()


@asynccontextmanager
async def _stack(folder: Path, api: FakeAnthropic, mind: RecordingMind) -> AsyncIterator[DevStack]:
    api.policy = mind
    unused, marks = {"name": "unused", "rules": [_UNUSED]}, [folder / "marks"]
    async with running(folder / "stack", unused, agent=asking(api.base_url), marks=marks) as made:
        yield made


_UNUSED = {"phase": "frame", "unusable": "the script is not asked"}


@pytest.mark.parametrize("call", range(1, CALLS + 1))
async def test_a_call_cut_by_a_kill_is_the_only_one_made_again(tmp_path: Path, api: FakeAnthropic, call: int) -> None:
    mind = RecordingMind(tmp_path / "marks" / "lines", steps=STEPS)
    held = mind.hold(call)
    async with _stack(tmp_path, api, mind) as made:
        run_id = await wake(made)
        await until(held.reached.is_set, within_s=30)
        made.agent.kill()
        await until(lambda: made.agent.starts == 2, within_s=20)
        held.over.set()
        ended = await to_the_end(made, run_id)
        journal = await _journal(made, run_id)
    assert ended["state"] == "done", ended
    assert mind.lines() == [1] * STEPS
    assert len(api.requests) == CALLS + 1
    assert ended["usage"]["calls"] == CALLS
    assert ended["usage"]["lost_calls"] == 1
    _spent_is_the_sum_of(journal, ended)


async def test_an_agent_killed_again_and_again_pays_for_no_finished_call_twice(
    tmp_path: Path, api: FakeAnthropic
) -> None:
    steps, kills = 6, 4
    mind = RecordingMind(tmp_path / "marks" / "lines", steps=steps)
    calls = sorted(random.Random(7).sample(range(1, steps + kills + 1), kills))  # noqa: S311 # a seed, not a secret
    holds = [mind.hold(call) for call in calls]
    async with _stack(tmp_path, api, mind) as made:
        run_id = await wake(made)
        for life, hold in enumerate(holds, start=2):
            await until(hold.reached.is_set, within_s=30)
            made.agent.kill()
            await until(partial(_lives, made, life), within_s=20)
            hold.over.set()
        ended = await to_the_end(made, run_id)
        journal = await _journal(made, run_id)
    assert ended["state"] == "done", ended
    assert mind.lines() == [1] * steps
    assert len(api.requests) == steps + 2 + kills
    assert ended["usage"]["lost_calls"] == kills
    _spent_is_the_sum_of(journal, ended)


async def test_a_limit_holds_though_crashes_hide_what_was_spent(tmp_path: Path, api: FakeAnthropic) -> None:
    mind = RecordingMind(tmp_path / "marks" / "lines", steps=STEPS)
    held = mind.hold(1)
    async with _stack(tmp_path, api, mind) as made:
        run_id = await wake(made, constraints={"max_tokens": 20_000})
        await until(held.reached.is_set, within_s=30)
        made.agent.kill()
        ended = await to_the_end(made, run_id)
        held.over.set()
    assert (ended["state"], ended["class"]) == ("escalated", "budget_tokens")
    assert len(api.requests) == 1, "the second try could have broken the limit"
    assert not any(mind.lines())


async def test_a_cancel_ends_a_run_while_the_model_thinks(tmp_path: Path, api: FakeAnthropic) -> None:
    mind = RecordingMind(tmp_path / "marks" / "lines", steps=STEPS)
    held = mind.hold(1)
    async with _stack(tmp_path, api, mind) as made:
        run_id = await wake(made)
        await until(held.reached.is_set, within_s=30)
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
            assert (await client.post(f"/v1/runs/{run_id}/cancel", json={})).status_code == 202

        async def cancelled() -> bool:
            return bool((await view(made, run_id))["state"] == "cancelled")

        await until(cancelled, within_s=2)
        held.over.set()


def _lives(made: DevStack, count: int) -> bool:
    return made.agent.starts == count


async def _journal(made: DevStack, run_id: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        found = (await client.get(f"/v1/runs/{run_id}/entries")).text
    entries = json.loads(found)
    listed: list[dict[str, Any]] = entries["entries"] if isinstance(entries, dict) else entries
    return listed


def _spent_is_the_sum_of(journal: list[dict[str, Any]], ended: dict[str, Any]) -> None:
    usages = [entry["event"]["usage"] for entry in journal if entry["kind"] == "ModelReplied"]
    spent = ended["usage"]
    assert len(usages) == spent["calls"]
    assert sum(usage["input_tokens"] for usage in usages) == spent["input_tokens"]
    assert sum(usage["output_tokens"] for usage in usages) == spent["output_tokens"]
    assert sum(usage["cost_usd"] for usage in usages) == pytest.approx(spent["cost_usd"])
    calls = [entry["event"]["call"] for entry in journal if entry["kind"] == "ModelReplied"]
    assert len(set(calls)) == len(calls)
