"""A gateway that is killed at any point, before a Ductile that loses what it likes: no write is started twice by us.

Each seed is one call with a course of its own: what becomes of every request, and where the gateway ends. A new runner
over the same receipts, under a new relay over the same ledger, is the gateway started again. A call goes by the API, or
by events; the Ductile is as careless as version M, which knows a dedupe key once a job with it has succeeded, and the
plugin that listens to events acts once per key, as it must.
"""

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.admission import QueueLimit
from ductile_gateway.ductile.api import DuctileApi, open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.late import LateJobs
from ductile_gateway.ductile.relay_client import open_relay_starts
from ductile_gateway.ductile.runner import DuctileRunner, Routes
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.starts import ApiStarts, Starts, untold
from ductile_gateway.ductile.watch import JobWatch, Pace
from ductile_gateway.ports import SystemClock
from groundwork.service.errors import TryAgain
from tests.gateway.parts import KeptReceipts, World, a_request, asked_for, opened, outcomes
from tests.kit.crashes import Crash, Mortal, Points

CASES = 200
ROUTE = "jina-reader"
BRISK = Pace(first_s=0.001, most_s=0.004, patience_s=0.05, settle_s=0.005, in_flight_s=0.01)
RELAY = {"secret": "of-sixteen-letters", "routes": {ROUTE: None}, "again_first_s": 0.001, "again_most_s": 0.004}
SETTINGS = DuctileSettings.model_validate(
    {"url": "http://localhost:1", "token": "t", "breaker_failures": 1000, "queue_most": None, "relay": RELAY}
)
WRITES = ("intend", "accepted", "drop", "drop_soon")
"""Of the ledger and its receipts: before or after each the gateway may be killed."""


class Course:
    """What happens, drawn from a seed. Nothing more goes wrong after `troubles` troubles."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a course that can be repeated is what is wanted
        self.troubles = self.dice.randint(1, 4)
        self._end = "none"

    def trouble(self, *kinds: str) -> str:
        """One of the kinds, or "none"."""
        if self.troubles == 0 or self.dice.random() < 0.5:
            return "none"
        self.troubles -= 1
        return self.dice.choice(kinds)

    def ends_here(self, point: str) -> bool:
        """Whether the gateway is killed at this point: before or after a write, drawn once for both."""
        when = point.partition(" ")[0]
        if when == "before":
            self._end = self.trouble("before", "after")
        return self._end == when

    def mortal(self, port: Any) -> Any:
        """The port of a gateway that may be killed at any write."""
        return Mortal(port, Points(drawn=self.ends_here), at=WRITES)


BEFORE = ("refused", "killed before", "lost before")
AFTER = ("killed after", "lost after", "503")
OF_EVENTS = ("unheard", "403")


class Careless(httpx2.AsyncBaseTransport):
    """As much of a Ductile as one call needs. `echoes`: its plugin shows the call id. `jobs`: what was started.

    `events`: those that came; `notes`: what the plugin that listens to them has done, by dedupe key.
    """

    course: Course

    def begin(self, course: Course) -> None:
        """Another call."""
        self.course = course
        self.echoes = course.dice.random() < 0.5
        self.jobs: list[dict[str, Any]] = []
        self.notes: set[str] = set()
        self.events: set[bytes] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return self._taken(request.url.path, await request.aread())
        if (trouble := self.course.trouble("away", "killed")) == "killed":
            raise Crash
        if trouble == "away":
            raise httpx2.ConnectError("refused")
        return self._look(request.url)

    def _taken(self, path: str, body: bytes) -> httpx2.Response:
        is_event = not path.startswith("/plugin/")
        self.events |= {body} if is_event else set()
        trouble = self.course.trouble(*BEFORE, *(OF_EVENTS if is_event else ()), *AFTER)
        match trouble:
            case "refused":
                raise httpx2.ConnectError("refused")
            case "killed before":
                raise Crash
            case "lost before":
                raise httpx2.ReadError("reset")
            case "unheard":
                return httpx2.Response(202, json={"status": "accepted"})
            case "403":
                return httpx2.Response(403, json={"error": "relay key id mismatch"})
        sent = json.loads(body)
        job_id = self._by_key(sent["event"]["dedupe_key"]) if is_event else self._job(sent["payload"])
        match trouble:
            case "killed after":
                raise Crash
            case "lost after":
                raise httpx2.ReadError("reset")
        return httpx2.Response(503 if trouble == "503" else 202, json={"status": "accepted", "job_id": job_id})

    def _by_key(self, key: str) -> str:
        known = (job["job_id"] for job in self.jobs if job["key"] == key and job["status"] == "succeeded")
        return next(known, None) or self._job({}, key)

    def _job(self, payload: Mapping[str, Any], key: str = "") -> str:
        shown = {"seen": payload["agentic_call_id"]} if self.echoes and payload else {}
        job = {"job_id": f"job-{len(self.jobs)}", "status": "queued", "created_at": datetime.now(UTC).isoformat()}
        kept = {"key": key, "looks": self.course.dice.randint(0, 3), "kept": {"status": "ok", "result": "done"} | shown}
        self.jobs.append(job | kept)
        return job["job_id"]

    def _look(self, url: httpx2.URL) -> httpx2.Response:
        for job in self.jobs:
            job["looks"] -= 1
            if job["looks"] < 0 and job["status"] == "queued":
                self.notes |= {job["key"]} if job["key"] else set()
                job |= {"status": "succeeded", "result": job["kept"]}
        ended = [job for job in self.jobs if job["status"] == "succeeded"]
        if url.path == "/healthz":
            return httpx2.Response(200, json={"queue_depth": 0})
        if url.path == "/jobs":
            return httpx2.Response(200, json={"jobs": self.jobs[::-1][: int(url.params["limit"])]})
        if url.path == "/job-logs":
            text = url.params.get("query") or url.params["job_id"]
            return httpx2.Response(200, json={"logs": [job for job in ended if text in str(job)]})
        found = next(job for job in self.jobs if url.path.startswith(f"/job/{job['job_id']}"))
        return httpx2.Response(200, json=[found] if url.path.endswith("/tree") else found)


@dataclass(frozen=True, slots=True)
class House:
    """Gateways before one Ductile after the other: what leads there is opened once."""

    receipts: KeptReceipts
    api: DuctileApi
    relayed: Mapping[str, Starts]
    ductile: Careless

    async def until_answered(self, seed: int, command: str, *, by_events: bool) -> set[str]:
        """How the call of this seed ended, in however many lives."""
        course = Course(seed)
        self.ductile.begin(course)
        world = World(ledger=course.mortal(self.receipts.ledger))
        world.clock.time = datetime.now(UTC)
        asked = asked_for(a_request(command, {"url": "x"}, step=seed + 1))
        for _ in range(20):
            world.runner = self._runner(course, self.relayed if by_events else {})
            try:
                await world.relay().take(asked)
            except (Crash, TryAgain):
                continue
            return set(outcomes(world))
        raise AssertionError(f"seed {seed}: never answered")

    def _runner(self, course: Course, relayed: Mapping[str, Starts]) -> DuctileRunner:
        api, clock, overdue = self.api, SystemClock(), self.receipts.overdue
        watch = JobWatch(api, DuctileEvents(api), overdue=overdue, pace=BRISK, clock=clock)
        starts = ApiStarts(api, watch, tools=DuctileTools(), send_call_id=True, pace=BRISK, clock=clock)
        return DuctileRunner(
            course.mortal(self.receipts),
            watch,
            Routes(api=starts, relayed=relayed, told=untold),
            queue=QueueLimit(api.queue_depth, most=None, clock=clock),
            late=LateJobs(watch, overdue, every_s=BRISK.most_s, clock=clock),
            settings=SETTINGS,
            clock=clock,
        )


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    ductile = Careless()
    async with (
        opened(tmp_path, KeptReceipts) as receipts,
        open_api(SETTINGS, ductile) as api,
        open_relay_starts(SETTINGS, clock=SystemClock(), transport=ductile) as relayed,
    ):
        yield House(receipts, api, relayed, ductile)


REPEATABLE = {(status, jobs) for status in ("ok", "transient") for jobs in range(20)} - {("ok", 0)}
WRITES_ONCE = {("ok", 1), ("in_doubt", 0), ("in_doubt", 1)}
MET = {("ok", 1), ("ok", 2), ("transient", 1)}
BY_API = {"save": (WRITES_ONCE, WRITES_ONCE), "handle": (REPEATABLE, MET), "tag": (REPEATABLE, MET)}
"""Of a command that writes, one that reads, and one that writes and may be repeated: how a call may end and how many
jobs have been started for it; and what a sweep that goes everywhere has come across."""


@pytest.mark.parametrize("command", BY_API)
async def test_no_crash_and_no_loss_starts_a_write_twice_or_claims_what_nobody_saw(house: House, command: str) -> None:
    allowed, met = BY_API[command]
    endings: Counter[tuple[str, int]] = Counter()
    for seed in range(CASES):
        (status,) = await house.until_answered(seed, command, by_events=False)
        ending = status, len(house.ductile.jobs)
        endings[ending] += 1
        assert ending in allowed, (seed, ending)
    assert endings.keys() >= met, endings


@pytest.mark.parametrize(("command", "unseen"), [("save", "in_doubt"), ("handle", "transient")])
async def test_no_crash_and_no_loss_makes_two_events_of_a_call_or_claims_what_nobody_saw(
    house: House, command: str, unseen: str
) -> None:
    """`unseen`: what is said of a call whose end nobody saw."""
    endings: Counter[tuple[str, int]] = Counter()
    for seed in range(CASES):
        (status,) = await house.until_answered(seed, command, by_events=True)
        assert len(house.ductile.events) == 1, seed
        endings[status, len(house.ductile.notes)] += 1
    assert (
        {("ok", 1), ("configuration", 0), (unseen, 0)}
        <= endings.keys()
        <= {
            *(("ok", 1), ("configuration", 0)),
            *((unseen, 0), (unseen, 1)),
        }
    ), endings
    assert endings["ok", 1] > CASES / 2, endings
