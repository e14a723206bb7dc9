"""An agent is there soon after its start, however much waits for it."""

import hashlib
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx2

from agent_service.core.brief import Limits
from agent_service.core.decide import decide
from agent_service.core.events import WakeAccepted
from agent_service.run import journal
from agent_service.run.ports import Wake
from agent_service.store.sqlite import SqliteStore
from agent_service.workbench.dev import DevStack
from tests.e2e.bodies import recording, running
from tests.kit.waiting import until


async def test_an_agent_with_a_thousand_queued_runs_answers_within_two_seconds(tmp_path: Path) -> None:
    await _queue(tmp_path / "full" / "agent", 1000)
    async with running(tmp_path / "full", recording(tmp_path / "marks" / "lines", steps=1)) as made:
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
            queued = (await client.get("/v1/runs", params={"status": "queued"})).json()["runs"]
        full = await _quickest_restart(made)
    assert queued
    if full >= 2.0:  # a machine that needs as long for an agent with nothing to do may need a little more for this one
        async with running(tmp_path / "empty", recording(tmp_path / "marks" / "lines", steps=1)) as made:
            assert full < await _quickest_restart(made) + 0.7


async def _quickest_restart(made: DevStack) -> float:
    """Of three, in seconds: what else the machine does is not what is measured."""
    return min([await _restarted(made, start) for start in (2, 3, 4)])


async def _restarted(made: DevStack, start: int) -> float:
    """Kill the agent; the seconds from its next start to its first answer."""
    made.agent.kill()
    await until(lambda: made.agent.starts == start)
    began = time.monotonic()
    await until(partial(_alive, made))
    return time.monotonic() - began


async def _alive(made: DevStack) -> bool:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        try:
            return bool((await client.get("/healthz")).is_success)
        except httpx2.TransportError:
            return False


async def _queue(folder: Path, number: int) -> None:
    """Runs that were accepted by the wake API and not begun."""
    at = datetime.now(UTC)
    limits = Limits(deadline_at=at + timedelta(hours=1))
    async with SqliteStore.open(folder) as store:
        for n in range(number):
            run_id = f"run_{n:026d}"
            event = WakeAccepted(at=at, run_id=run_id, wake_id=f"w{n}", goal="record", limits=limits, announce=True)
            commit = journal.commit_of(None, event, decide(None, event))
            await store.accept(Wake(wake_id=f"w{n}", digest=hashlib.sha256(b"").hexdigest()), commit)
