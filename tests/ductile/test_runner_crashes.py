"""A gateway that is killed at any point, before a Ductile that loses what it likes: no write is started twice by us.

Each seed is one call with a course of its own: what becomes of every request, and where the gateway ends. A new runner
over the same receipts, under a new relay over the same ledger, is the gateway started again.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.settings import DuctileSettings
from tests.ductile.crash_house import Course, a_runner, live
from tests.gateway.parts import World, outcomes
from tests.gateway.stores import KeptReceipts, opened
from tests.kit.crashes import Crash

CASES = 600
COMMANDS = ("save", "handle", "tag")
"""One that writes, one that reads, and one that writes and may be repeated."""
SETTINGS = DuctileSettings.model_validate(
    {"url": "http://localhost:1", "token": "t", "breaker_failures": 1000, "queue_most": None}
)


class Jobs(httpx2.AsyncBaseTransport):
    """As much of a Ductile as one call needs. `echoes`: its plugin shows the call id. `jobs` is what was started."""

    def __init__(self, course: Course, *, echoes: bool) -> None:
        self.course = course
        self.echoes = echoes
        self.jobs: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return self._start(json.loads(await request.aread()))
        if (trouble := self.course.trouble("away", "killed")) == "killed":
            raise Crash
        if trouble == "away":
            raise httpx2.ConnectError("refused")
        return self._look(request.url)

    def _start(self, body: dict[str, Any]) -> httpx2.Response:
        trouble = self.course.trouble("refused", "killed before", "lost before", "killed after", "lost after", "503")
        if trouble == "refused":
            raise httpx2.ConnectError("refused")
        if trouble == "killed before":
            raise Crash
        if trouble == "lost before":
            raise httpx2.ReadError("reset")
        self.jobs.append(self._job(body["payload"]))
        if trouble == "killed after":
            raise Crash
        if trouble == "lost after":
            raise httpx2.ReadError("reset")
        return httpx2.Response(503 if trouble == "503" else 202, json={"job_id": self.jobs[-1]["job_id"]})

    def _job(self, payload: dict[str, Any]) -> dict[str, Any]:
        result = {"status": "ok", "result": "done"} | ({"seen": payload["agentic_call_id"]} if self.echoes else {})
        now = datetime.now(UTC).isoformat()
        left = {"looks": self.course.dice.randint(0, 3)}
        return {"job_id": f"job-{len(self.jobs)}", "status": "queued", "created_at": now, "kept": result} | left

    def _look(self, url: httpx2.URL) -> httpx2.Response:
        for job in self.jobs:
            job["looks"] -= 1
            if job["looks"] < 0:
                job |= {"status": "succeeded", "result": job["kept"]}
        ended = [job for job in self.jobs if job["status"] == "succeeded"]
        if url.path == "/healthz":
            return httpx2.Response(200, json={"queue_depth": 0})
        if url.path == "/jobs":
            return httpx2.Response(200, json={"jobs": self.jobs[::-1][: int(url.params["limit"])]})
        if url.path == "/job-logs":
            text = url.params.get("query") or url.params["job_id"]
            return httpx2.Response(200, json={"logs": [job for job in ended if text in str(job)]})
        return httpx2.Response(200, json=next(job for job in self.jobs if url.path == f"/job/{job['job_id']}"))


async def until_answered(receipts: KeptReceipts, seed: int, command: str) -> tuple[World, Jobs]:
    course = Course(seed)
    ductile = Jobs(course, echoes=course.dice.random() < 0.5)
    world = World(ledger=course.mortal(receipts.ledger))
    world.clock.time = datetime.now(UTC)
    for _ in range(20):
        async with open_api(SETTINGS, ductile) as api:
            done = await live(world, a_runner(api, receipts, course, settings=SETTINGS), seed, command)
            if done:
                return world, ductile
    raise AssertionError(f"seed {seed}: never answered")


@pytest.mark.parametrize("command", COMMANDS)
async def test_no_crash_and_no_loss_starts_a_write_twice_or_claims_what_nobody_saw(
    tmp_path: Path, command: str
) -> None:
    endings: dict[tuple[str, int], int] = {}
    async with opened(tmp_path, KeptReceipts) as receipts:
        for seed in range(CASES // len(COMMANDS)):
            world, ductile = await until_answered(receipts, seed, command)
            ending = set(outcomes(world)).pop(), len(ductile.jobs)
            assert len(set(outcomes(world))) == 1, seed
            endings[ending] = endings.get(ending, 0) + 1
            assert ending in ALLOWED[command], (seed, ending)
    assert endings.keys() >= EXPECTED[command], endings


REPEATABLE = {(status, jobs) for status in ("ok", "transient") for jobs in range(20)} - {("ok", 0)}
ALLOWED = {"save": {("ok", 1), ("in_doubt", 0), ("in_doubt", 1)}, "handle": REPEATABLE, "tag": REPEATABLE}
"""How a call may end, and how many jobs have been started for it."""
EXPECTED = {command: {("ok", 1), ("ok", 2), ("transient", 1)} for command in COMMANDS} | {"save": ALLOWED["save"]}
"""What a sweep that goes everywhere has come across."""
