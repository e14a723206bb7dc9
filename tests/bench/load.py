"""Load over the bus: runs that are started and awaited, and the times of their messages."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.service.errors import patiently
from schemas import envelope, keys, subjects

RUN_WITHIN_S = 60.0


class Load:
    """Each run is known by its goal."""

    def __init__(self, link: NatsLink) -> None:
        self.link = link
        self.open: dict[str, asyncio.Future[str]] = {}

    async def listen(self) -> None:
        for subject in subjects.ENDINGS:
            await self.link.subscribe(subject, self._on_end)

    async def run(self, goal: str) -> str:
        """Starts a run and returns the subject of its ending."""
        self.open[goal] = ending = asyncio.Future[str]()
        key = keys.start(named(goal))
        body = json.dumps({"type": subjects.START, "payload": {"goal": goal}, "dedupe_key": key}).encode()
        await patiently(partial(self.link.publish, subjects.START, body, msg_id=key, headers={}))
        return await ending

    def ended(self, subject: str, body: bytes) -> None:
        """Counts an ending once: it is said again where the bus may have forgotten it."""
        if ending := self.open.pop(json.loads(body)["payload"]["goal"], None):
            ending.set_result(subject)

    async def _on_end(self, message: Msg) -> None:
        self.ended(message.subject, message.data)


class TimedLoad(Load):
    def __init__(self, link: NatsLink) -> None:
        super().__init__(link)
        self._started: dict[str, float] = {}
        self._requested: dict[str, float] = {}
        self.wakes: list[float] = []
        """From a start to its acceptance."""
        self.steps: list[float] = []
        """From a request to the next one of its run."""
        self.runs_s: list[float] = []
        """From a start to its completion."""

    def clear(self) -> None:
        for timed in (self.wakes, self.steps, self.runs_s):
            timed.clear()

    async def listen(self) -> None:
        await super().listen()
        await self.link.subscribe(subjects.WAKE_ACCEPTED, self._on_accepted)
        await self.link.subscribe(subjects.ALL_TOOL_REQUESTS, self._on_request)

    async def runs(self, prefix: str, number: int, concurrency: int) -> float:
        """Makes `number` runs, `concurrency` at a time; returns the seconds. Raises for a run that does not complete in
        time."""
        goals = (f"bench {prefix}-{number}" for number in range(number))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._one_after_another(goals))
        return time.perf_counter() - began

    async def _one_after_another(self, goals: Iterator[str]) -> None:
        for goal in goals:
            self._started[named(goal)] = began = time.perf_counter()
            async with asyncio.timeout(RUN_WITHIN_S):
                if (ending := await self.run(goal)) != subjects.COMPLETED:
                    raise RuntimeError(f"a run of the benchmark did not complete: {goal}: {ending}")
            self.runs_s.append(time.perf_counter() - began)

    async def _on_accepted(self, message: Msg) -> None:
        began = self._started.pop(json.loads(message.data)["payload"]["wake_id"], None)
        if began is not None:  # what an agent cannot know to be heard is said twice
            self.wakes.append(time.perf_counter() - began)

    async def _on_request(self, message: Msg) -> None:
        now, run_id = time.perf_counter(), (message.headers or {})[envelope.RUN_ID]
        if before := self._requested.get(run_id):
            self.steps.append(now - before)
        self._requested[run_id] = now


def named(goal: str) -> str:
    return goal.replace(" ", "-")


def spread(seconds: list[float]) -> dict[str, float]:
    """Percentiles 50, 95 and 99 in milliseconds."""
    ordered = sorted(seconds)
    at = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    return {name: round(ordered[int(share * (len(ordered) - 1))] * 1000, 2) for name, share in at.items()}
