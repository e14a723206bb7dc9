"""kill -9 of the agent while Claude thinks, with the real SDK over HTTP: at most the call in hand is made again, no
finished one ever, and what the run says it spent is the sum of its journal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import DevStack
from tests.e2e.bodies import running, to_the_end, wake
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


async def test_a_call_cut_by_a_kill_is_the_only_one_made_again(tmp_path: Path, api: FakeAnthropic) -> None:
    """Every call of the run is cut once."""
    mind = api.policy = RecordingMind(tmp_path / "marks" / "lines", steps=STEPS)
    held = [mind.hold(request) for request in range(1, 2 * CALLS, 2)]
    unused, marks = {"name": "unused", "rules": [_UNUSED]}, [tmp_path / "marks"]
    async with running(tmp_path / "stack", unused, agent=asking(api.base_url), marks=marks) as made:
        run_id = await wake(made)
        for life, hold in enumerate(held, start=2):
            await until(hold.reached.is_set, within_s=30)
            made.agent.kill()
            await until(lambda life=life: made.agent.starts == life, within_s=20)  # type: ignore[misc] # as a default
            hold.over.set()
        ended = await to_the_end(made, run_id)
        journal = await _journal(made, run_id)
    assert ended["state"] == "done", ended
    assert mind.lines() == [1] * STEPS
    assert len(api.requests) == 2 * CALLS
    assert (ended["usage"]["calls"], ended["usage"]["lost_calls"]) == (CALLS, CALLS)
    _spent_is_the_sum_of(journal, ended)


_UNUSED = {"phase": "frame", "unusable": "the script is not asked"}


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
