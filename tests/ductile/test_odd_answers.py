"""Answers that no Ductile should give, or that a proxy gives: each costs a call at most, and never the gateway."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import ToolOutcome, Verdict
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.discovery import look_at
from ductile_gateway.ductile.late import LateJobs
from ductile_gateway.ductile.runner import DuctileRunner, open_runner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.watch import Job
from ductile_gateway.ports import SystemClock
from schemas.status import Finding
from tests.ductile.runner_house import NO_TOOLS, QUICK, a_call, outcome
from tests.gateway.parts import KeptReceipts, opened
from tests.kit.waiting import until

SETTINGS = DuctileSettings.model_validate({"url": "http://localhost:1", "token": "t", "events": False})
HEALTH: dict[str, Any] = {"version": "dev", "queue_depth": 0, "plugins_loaded": 3}


class Instead(httpx2.AsyncBaseTransport):
    """Answers by path; 404 to anything else."""

    def __init__(self, answers: dict[str, Callable[[], httpx2.Response]]) -> None:
        self._answers = answers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._answers.get(request.url.path)
        return answer() if answer else httpx2.Response(404, json={"error": "not found"})


@asynccontextmanager
async def _runner(transport: httpx2.AsyncBaseTransport, folder: Path) -> AsyncIterator[DuctileRunner]:
    clock = SystemClock()
    async with (
        open_api(SETTINGS, transport) as api,
        opened(folder, KeptReceipts) as kept,
        open_runner(api, NO_TOOLS, SETTINGS, receipts=kept, overdue=kept.overdue, clock=clock, pace=QUICK) as runner,
    ):
        yield runner


async def look(**answers: Callable[[], httpx2.Response]) -> tuple[Finding, Finding]:
    known = {"/healthz": lambda: httpx2.Response(200, json=HEALTH)}
    paths = {f"/{name.replace('__', '/')}": answer for name, answer in answers.items()}
    async with open_api(SETTINGS, Instead(known | paths)) as api:
        return await look_at(api, SETTINGS, writes=False)


@pytest.mark.parametrize("version", ["1\u0000", "\u001b[31mred", "a\nb", 7, None, ["x"], "x" * 10_000])
async def test_whatever_a_ductile_calls_itself_can_be_shown(version: Any) -> None:
    body = json.dumps(HEALTH | {"version": version}).encode()
    found, _ = await look(healthz=lambda: httpx2.Response(200, content=body))
    assert found.mark == "ok"
    assert found.text.isprintable()
    assert len(found.text) < 500


@pytest.mark.attack(51)
@pytest.mark.parametrize(
    "job",
    [
        {"status": {"code": 1}},
        {"status": "succeeded", "result": {"status": ["ok"], "result": "x"}},
        {"status": "failed", "result": 7},
    ],
)
async def test_a_job_that_cannot_be_read_is_an_error_of_its_call(tmp_path: Path, job: dict[str, Any]) -> None:
    class Odd(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                return httpx2.Response(202, json={"job_id": "j-1"})
            if request.url.path == "/job/j-1":
                return httpx2.Response(200, json=job)
            return httpx2.Response(200, json={"logs": [], "queue_depth": 0})

    async with _runner(Odd(), tmp_path) as runner:
        assert outcome(await runner.run(a_call(within_s=2))).status == "error"


async def test_a_late_result_that_cannot_be_told_is_given_up_and_the_others_are_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Ended:
        async def look(self, job: Job) -> ToolOutcome:
            return ToolOutcome("ok", text=job.job_id)

    async def take(key: str, verdict: Verdict) -> bool:
        del verdict
        if key == "poison":
            raise ValueError("no number has so many digits")
        told.append(key)
        return True

    async with opened(tmp_path, KeptReceipts) as receipts:
        for number, key in enumerate(("poison", "fine")):
            at = datetime.now(UTC) + timedelta(seconds=number)
            await receipts.overdue.add(key, Job(key, pipeline=False), at)
        late = LateJobs(Ended(), receipts.overdue, every_s=0.01, clock=SystemClock())
        following = asyncio.create_task(late.follow(take))
        await until(lambda: not late.waiting())
        assert not following.done()
        following.cancel()
    assert told == ["fine"]
