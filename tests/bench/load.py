"""Load of the benchmark: starts runs over the bus and times their messages."""

import asyncio
import json
import time
from collections.abc import Iterator

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from schemas import keys, subjects

GOAL = "bench"
RUN_WITHIN_S = 60.0


class Load:
    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._ended: dict[str, asyncio.Event] = {}
        self._started: dict[str, float] = {}
        self._requested: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self.wakes: list[float] = []
        """Seconds from a start to its acceptance."""
        self.steps: list[float] = []
        """Seconds from a request to the next one of its run."""
        self.runs_s: list[float] = []
        """Seconds from a start to its completion."""

    def clear(self) -> None:
        for timed in (self.wakes, self.steps, self.runs_s):
            timed.clear()

    async def listen(self) -> None:
        await self._link.subscribe(subjects.WAKE_ACCEPTED, self._on_accepted)
        await self._link.subscribe(subjects.ALL_TOOL_REQUESTS, self._on_request)
        for subject in (subjects.COMPLETED, subjects.ESCALATED, subjects.FAILED):
            await self._link.subscribe(subject, self._on_end)

    async def runs(
        self, prefix: str, number: int, concurrency: int, *, goal: str = GOAL, within_s: float = RUN_WITHIN_S
    ) -> float:
        """Makes `number` runs, `concurrency` at a time; returns the seconds. Raises TimeoutError for a run that does
        not end in time."""
        waiting = iter(range(number))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._one_after_another(prefix, waiting, goal, within_s))
        return time.perf_counter() - began

    async def _one_after_another(self, prefix: str, waiting: Iterator[int], goal: str, within_s: float) -> None:
        for number in waiting:
            name = f"{prefix}-{number}"
            ended = self._ended[name] = asyncio.Event()
            self._started[name] = began = time.perf_counter()
            key = keys.start(name)
            body = json.dumps({"type": subjects.START, "payload": {"goal": goal}, "dedupe_key": key}).encode()
            await self._link.publish(subjects.START, body, msg_id=key, headers={})
            async with asyncio.timeout(within_s):
                await ended.wait()
            self.runs_s.append(time.perf_counter() - began)

    async def _on_accepted(self, message: Msg) -> None:
        payload = json.loads(message.data)["payload"]
        self._names[payload["run_id"]] = payload["wake_id"]
        began = self._started.pop(payload["wake_id"], None)
        if began is not None:  # what an agent cannot know to be heard is said twice
            self.wakes.append(time.perf_counter() - began)

    async def _on_request(self, message: Msg) -> None:
        now, run_id = time.perf_counter(), (message.headers or {})["Agentic-Run-Id"]
        before = self._requested.get(run_id)
        if before is not None:
            self.steps.append(now - before)
        self._requested[run_id] = now

    async def _on_end(self, message: Msg) -> None:
        if message.subject != subjects.COMPLETED:
            raise RuntimeError(f"a run of the benchmark did not complete: {message.data[:500]!r}")
        run_id = json.loads(message.data)["payload"]["run_id"]
        self._requested.pop(run_id, None)
        if name := self._names.pop(run_id, None):  # an ending is said again where the bus may have forgotten it
            self._ended.pop(name).set()


def spread(seconds: list[float]) -> dict[str, float]:
    """Percentiles 50, 95 and 99 in milliseconds."""
    ordered = sorted(seconds)
    at = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    return {name: round(ordered[int(share * (len(ordered) - 1))] * 1000, 2) for name, share in at.items()}
