"""A gateway that is killed at any point, before a Ductile that loses what it likes: no write is started twice by us.

Each seed is one call with a course of its own: what becomes of every request, and where the gateway ends. A new runner
over the same receipts, under a new relay over the same ledger, is the gateway started again. A call goes by the API, or
by events; the Ductile is as careless as version M, which knows a dedupe key once a job with it has succeeded, and the
plugin that listens to events acts once per key, as it must.
"""

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.watch import Pace
from groundwork.service.errors import TryAgain
from tests.ductile.running import runner_over
from tests.gateway.parts import KeptReceipts, World, a_request, asked_for, opened, outcomes
from tests.kit.crashes import Crash, Mortal, Points

CASES = 200
ROUTE = "jina-reader"
BRISK = Pace(first_s=0.001, most_s=0.004, patience_s=0.05, settle_s=0.005, in_flight_s=0.01)
RELAY = {"secret": "of-sixteen-letters", "routes": {ROUTE: None}, "again_first_s": 0.001, "again_most_s": 0.004}
SETTINGS = {"url": "http://localhost:1", "token": "t", "events": False, "breaker_failures": 1000, "queue_most": None}
WRITES = ("intend", "accepted", "drop", "drop_soon")
"""Of the ledger and its receipts: before or after each the gateway may be killed."""
BEFORE = ("refused", "killed before", "lost before")
AFTER = ("killed after", "lost after", "503")
OF_EVENTS = ("unheard", "403")
RAISED: dict[str, BaseException] = {
    **dict.fromkeys(("refused", "away"), httpx2.ConnectError("refused")),
    **dict.fromkeys(("lost before", "lost after"), httpx2.ReadError("reset")),
    **dict.fromkeys(("killed", "killed before", "killed after"), Crash()),
}


class Course:
    """What happens, drawn from a seed. Nothing more goes wrong after `troubles` troubles."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a course that can be repeated is what is wanted
        self._troubles = self.dice.randint(1, 4)
        self._end = "none"

    def trouble(self, *kinds: str) -> str:
        """One of the kinds, or "none"."""
        if self._troubles == 0 or self.dice.random() < 0.5:
            return "none"
        self._troubles -= 1
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


class Careless(httpx2.AsyncBaseTransport):
    """As much of a Ductile as one call needs. `echoes`: its plugin shows the call id. `jobs`: what was started.

    `events`: those that came; `notes`: what the plugin that listens to them has done, by dedupe key.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.echoes = course.dice.random() < 0.5
        self.jobs: list[dict[str, Any]] = []
        self.notes: set[str] = set()
        self.events: set[bytes] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return self._taken(request.url.path, await request.aread())
        if (trouble := self.course.trouble("away", "killed")) in RAISED:
            raise RAISED[trouble]
        return self._look(request.url)

    def _taken(self, path: str, body: bytes) -> httpx2.Response:
        is_event = not path.startswith("/plugin/")
        self.events |= {body} if is_event else set()
        trouble = self.course.trouble(*BEFORE, *(OF_EVENTS if is_event else ()), *AFTER)
        if trouble in BEFORE:
            raise RAISED[trouble]
        if trouble in OF_EVENTS:
            answers = {"unheard": (202, {"status": "accepted"}), "403": (403, {"error": "relay key id mismatch"})}
            status, told = answers[trouble]
            return httpx2.Response(status, json=told)
        sent = json.loads(body)
        key = sent["event"]["dedupe_key"] if is_event else ""
        known = [job["job_id"] for job in self.jobs if key and job["key"] == key and job["status"] == "succeeded"]
        job_id = known[0] if known else self._job(key, sent.get("payload") or {})
        if trouble in RAISED:
            raise RAISED[trouble]
        return httpx2.Response(503 if trouble == "503" else 202, json={"status": "accepted", "job_id": job_id})

    def _job(self, key: str, payload: dict[str, Any]) -> str:
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
        if url.path == "/healthz":
            return httpx2.Response(200, json={"queue_depth": 0})
        if url.path == "/jobs":
            return httpx2.Response(200, json={"jobs": self.jobs[::-1][: int(url.params["limit"])]})
        if url.path == "/job-logs":
            text = url.params.get("query") or url.params["job_id"]
            ended = [job for job in self.jobs if job["status"] == "succeeded"]
            return httpx2.Response(200, json={"logs": [job for job in ended if text in str(job)]})
        found = next(job for job in self.jobs if url.path.startswith(f"/job/{job['job_id']}"))
        return httpx2.Response(200, json=[found] if url.path.endswith("/tree") else found)


async def played(seed: int, command: str, kept: KeptReceipts, *, by_events: bool) -> tuple[str, Careless]:
    """How the call of this seed ended, in however many lives."""
    course = Course(seed)
    ductile = Careless(course)
    settings = DuctileSettings.model_validate(SETTINGS | ({"relay": RELAY} if by_events else {}))
    world = World(ledger=course.mortal(kept.ledger))
    world.clock.time = datetime.now(UTC)
    asked = asked_for(a_request(command, {"url": "x"}, step=seed + 1))
    mortal = course.mortal(kept)
    for _ in range(20):
        async with runner_over(settings, kept, receipts=mortal, pace=BRISK, transport=ductile, wire=ductile) as runner:
            world.runner = runner.bare
            try:
                await world.relay().take(asked)
            except (Crash, TryAgain):
                continue
        (status,) = set(outcomes(world))
        return status, ductile
    raise AssertionError(f"seed {seed}: never answered")


REPEATABLE = {(status, jobs) for status in ("ok", "transient") for jobs in range(20)} - {("ok", 0)}
WRITES_ONCE = {("ok", 1), ("in_doubt", 0), ("in_doubt", 1)}
MET = {("ok", 1), ("ok", 2), ("transient", 1)}
BY_API = {"save": (WRITES_ONCE, WRITES_ONCE), "handle": (REPEATABLE, MET), "tag": (REPEATABLE, MET)}
"""Of a command that writes, one that reads, and one that writes and may be repeated: how a call may end and how many
jobs have been started for it; and what a sweep that goes everywhere has come across."""


@pytest.mark.parametrize("command", BY_API)
async def test_no_crash_and_no_loss_starts_a_write_twice_or_claims_what_nobody_saw(
    tmp_path: Path, command: str
) -> None:
    allowed, met = BY_API[command]
    endings: Counter[tuple[str, int]] = Counter()
    async with opened(tmp_path, KeptReceipts) as kept:
        for seed in range(CASES):
            status, ductile = await played(seed, command, kept, by_events=False)
            endings[ending := (status, len(ductile.jobs))] += 1
            assert ending in allowed, (seed, ending)
    assert endings.keys() >= met, endings


@pytest.mark.parametrize(("command", "unseen"), [("save", "in_doubt"), ("handle", "transient")])
async def test_no_crash_and_no_loss_makes_two_events_of_a_call_or_claims_what_nobody_saw(
    tmp_path: Path, command: str, unseen: str
) -> None:
    """`unseen`: what is said of a call whose end nobody saw."""
    endings: Counter[tuple[str, int]] = Counter()
    async with opened(tmp_path, KeptReceipts) as kept:
        for seed in range(CASES):
            status, ductile = await played(seed, command, kept, by_events=True)
            assert len(ductile.events) == 1, seed
            endings[status, len(ductile.notes)] += 1
    met = {("ok", 1), ("configuration", 0), (unseen, 0)}
    assert met <= endings.keys() <= met | {(unseen, 1)}, endings
    assert endings["ok", 1] > CASES / 2, endings
