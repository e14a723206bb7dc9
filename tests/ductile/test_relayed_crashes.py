"""A gateway that is killed at any point while it calls a tool by events, of which and of whose answers some are lost.

Each seed is one call. The Ductile is as careless as version M: it knows a dedupe key once a job with it has succeeded.
The plugin that listens acts once per key, as it must.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.api import DuctileApi, open_api
from ductile_gateway.ductile.relay_client import open_relay_starts
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.starts import Starts
from tests.ductile.crash_house import Course, a_runner, live
from tests.gateway.parts import World, outcomes
from tests.gateway.stores import KeptReceipts, opened
from tests.kit.crashes import Crash

CASES = 150
RELAY = {
    "secret": "of-sixteen-letters",
    "routes": {"jina-reader": None},
    "again_first_s": 0.001,
    "again_most_s": 0.004,
}
SETTINGS = DuctileSettings.model_validate(
    {"url": "http://localhost:1", "token": "t", "breaker_failures": 1000, "queue_most": None, "relay": RELAY}
)


class Listener:
    """A Ductile in which one pipeline listens. `notes`: what its plugin has done, by dedupe key."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.jobs: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.notes: set[str] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return self._take(await request.aread())
        if (trouble := self.course.trouble("away", "killed")) == "killed":
            raise Crash
        if trouble == "away":
            raise httpx2.ConnectError("refused")
        return self._look(request.url.path)

    def _take(self, body: bytes) -> httpx2.Response:
        self.bodies.append(body)
        before, after = (
            ("refused", "killed before", "lost before", "unheard", "403"),
            ("killed after", "lost after", "503"),
        )
        trouble = self.course.trouble(*before, *after)
        match trouble:
            case "refused":
                raise httpx2.ConnectError("refused")
            case "lost before":
                raise httpx2.ReadError("reset")
            case "killed before":
                raise Crash
            case "unheard":
                return httpx2.Response(202, json={"status": "accepted"})
            case "403":
                return httpx2.Response(403, json={"error": "relay key id mismatch"})
        job_id = self._job(json.loads(body)["event"]["dedupe_key"])
        match trouble:
            case "lost after":
                raise httpx2.ReadError("reset")
            case "killed after":
                raise Crash
        return httpx2.Response(503 if trouble == "503" else 202, json={"status": "accepted", "job_id": job_id})

    def _job(self, key: str) -> str:
        known = next((job for job in self.jobs if job["key"] == key and job["status"] == "succeeded"), None)
        if known is None:
            looks = self.course.dice.randint(0, 3)
            known = {"job_id": f"job-{len(self.jobs)}", "key": key, "status": "queued", "looks": looks}
            self.jobs.append(known)
        return str(known["job_id"])

    def _look(self, path: str) -> httpx2.Response:
        for job in self.jobs:
            job["looks"] -= 1
            if job["looks"] < 0 and job["status"] == "queued":
                self.notes.add(job["key"])
                job |= {"status": "succeeded", "result": {"status": "ok", "result": "noted"}}
        if path == "/job-logs":
            return httpx2.Response(200, json={"logs": []})
        job = next(job for job in self.jobs if path.startswith(f"/job/{job['job_id']}"))
        return httpx2.Response(200, json=[job] if path.endswith("/tree") else job)


class Wire(httpx2.AsyncBaseTransport):
    """Leads to the Ductile at its end."""

    end: Listener

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.end.handle_async_request(request)


class House:
    """Gateways before one Ductile after the other: what leads there is opened once."""

    def __init__(self, receipts: KeptReceipts, api: DuctileApi, relayed: Mapping[str, Starts], wire: Wire) -> None:
        self._receipts, self._api, self._relayed, self._wire = receipts, api, relayed, wire

    async def until_answered(self, seed: int, command: str) -> tuple[World, Listener]:
        course = Course(seed)
        world = World(ledger=course.mortal(self._receipts.ledger))
        self._wire.end = ductile = Listener(course)
        world.clock.time = datetime.now(UTC)
        for _ in range(20):
            runner = a_runner(self._api, self._receipts, course, settings=SETTINGS, relayed=self._relayed)
            if await live(world, runner, seed, command):
                return world, ductile
        raise AssertionError(f"seed {seed}: never answered")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    wire = Wire()
    async with (
        opened(tmp_path, KeptReceipts) as receipts,
        open_api(SETTINGS, wire) as api,
        open_relay_starts(SETTINGS, clock=SystemClock(), transport=wire) as relayed,
    ):
        yield House(receipts, api, relayed, wire)


@pytest.mark.parametrize("command", ["save", "handle"])
async def test_no_crash_and_no_loss_makes_two_events_of_a_call_or_claims_what_nobody_saw(
    house: House, command: str
) -> None:
    endings: Counter[tuple[str, int]] = Counter()
    for seed in range(CASES):
        world, ductile = await house.until_answered(seed, command)
        assert len(set(outcomes(world))) == 1, seed
        assert len(set(ductile.bodies)) == 1, seed
        ending = set(outcomes(world)).pop(), len(ductile.notes)
        endings[ending] += 1
        assert ending in ALLOWED[command], (seed, ending)
    assert endings.keys() >= {("ok", 1), ("configuration", 0), (UNSEEN[command], 0)}, endings
    assert endings["ok", 1] > CASES / 2, endings


UNSEEN = {"save": "in_doubt", "handle": "transient"}
"""What is said of a call whose end nobody saw: of a write, and of a read."""
ALLOWED = {command: {("ok", 1), ("configuration", 0), (unseen, 0), (unseen, 1)} for command, unseen in UNSEEN.items()}
"""How a call may end, and how often its plugin has acted for it."""
