"""The benchmark: runs of five tool steps against the whole stack on this machine, at several concurrencies.

One run is a start, five steps (a scripted decision of 0 ms and an echo in the gateway's process of 0 ms each) and its
completion, every transition durable. The load is closed: as many runs as the concurrency says are always on their way.
A step's latency is from its request on the bus to the next step's request. CPU is of all processes, the load's own too,
until the last paper trail is written. Right after each concurrency as many steps are made on the floor (see there):
what this machine gives at that moment to a bus with nobody behind it. Shares of it can be compared; absolute figures
differ by half from one hour to the next.
"""

import asyncio
import json
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from agent_service.workbench.dev import DevOptions, DevStack, stack
from agent_service.workbench.floor import Floor, floor
from agent_service.workbench.watchers import watching
from groundwork.nats import link as nats_link
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from schemas import keys, subjects

STEPS = 5
WARM_UP_RUNS = 40
IDLE_S = 5.0
RUN_WITHIN_S = 60.0
REST_LOOK_S = 0.5
AT_REST = 0.06
"""Of one core: what all processes may use together and count as idle."""
TICKS_PER_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One concurrency. Times in milliseconds, memory in MB, disk in bytes."""

    concurrency: int
    runs: int
    seconds: float
    runs_per_s: float
    steps_per_s: float
    step_ms: dict[str, float]
    wake_ms: dict[str, float]
    cpu_s_per_1000_steps: dict[str, float]
    disk_bytes_per_run: int
    floor: "FloorFigures"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorFigures:
    """The same number of steps on the floor. `share`: our steps per second by its; `times_p50`: our latency by its."""

    steps_per_s: float
    step_ms: dict[str, float]
    share: float
    times_p50: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The load with so many watchers of all runs. `lag_ms`: from an event to its arrival at a watcher, its commit
    between them; null without any. `agent_cpu_percent` is of one core."""

    watchers: int
    steps_per_s: float
    step_ms: dict[str, float]
    lag_ms: dict[str, float] | None
    agent_cpu_percent: float


class Load:
    """Starts runs over the bus and times what it sees of them there."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._ended: dict[str, asyncio.Event] = {}
        self._started: dict[str, float] = {}
        self._requested: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self.wakes: list[float] = []
        self.steps: list[float] = []

    async def listen(self) -> None:
        await self._link.subscribe(subjects.WAKE_ACCEPTED, self._on_accepted)
        await self._link.subscribe(subjects.ALL_TOOL_REQUESTS, self._on_request)
        for subject in (subjects.COMPLETED, subjects.ESCALATED, subjects.FAILED):
            await self._link.subscribe(subject, self._on_end)

    async def runs(self, prefix: str, number: int, concurrency: int) -> float:
        """Make `number` runs, `concurrency` at a time; returns the seconds it took."""
        waiting = iter(range(number))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._one_after_another(prefix, waiting))
        return time.perf_counter() - began

    async def _one_after_another(self, prefix: str, waiting: Any) -> None:
        for number in waiting:
            name = f"{prefix}-{number}"
            ended = self._ended[name] = asyncio.Event()
            self._started[name] = time.perf_counter()
            key = keys.start(name)
            body = json.dumps({"type": subjects.START, "payload": {"goal": "bench"}, "dedupe_key": key}).encode()
            await self._link.publish(subjects.START, body, msg_id=key, headers={})
            async with asyncio.timeout(RUN_WITHIN_S):
                await ended.wait()

    async def _on_accepted(self, message: Msg) -> None:
        payload = json.loads(message.data)["payload"]
        self._names[payload["run_id"]] = payload["wake_id"]
        self.wakes.append(time.perf_counter() - self._started.pop(payload["wake_id"]))

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
        self._ended.pop(self._names.pop(run_id)).set()


async def measure(
    folder: Path,
    concurrencies: Sequence[int],
    *,
    seconds: float,
    sync_interval: str,
    otlp: str | None = None,
    watchers: Sequence[int] = (),
) -> dict[str, Any]:
    """All figures, with the settings they were taken with, for printing as JSON.

    `otlp` is where both services send traces and metrics, whether somebody receives there or not; None for nowhere.
    With each number of `watchers`, the first of the concurrencies is measured once more.
    """
    both = {"log": {"level": "warning"}, "telemetry": {"endpoint": otlp}}
    options = DevOptions(
        folder=folder,
        sync_interval=sync_interval,
        script=Path(str(resources.files("agent_service") / "scripts" / "bench.yaml")),
        agent=both,
        gateway={"runner": "in_process", "slots": 256, "concurrency": 256, **both},
    )
    async with stack(options) as made:
        link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)), name="agentic-bench")
        try:
            idle = await _idle(made)
            load = Load(link)
            await load.listen()
            async with floor(made.nats.url) as ground:
                figures = [await _at(made, load, ground, concurrency, seconds) for concurrency in concurrencies]
            watched = [await _watched(made, load, number, concurrencies[0], seconds) for number in watchers]
        finally:
            await link.close()
        return {
            "workload": f"start, {STEPS} tool steps (decision 0 ms, echo 0 ms), completion; everything on this machine",
            "telemetry": otlp or "off",
            "durability": {"nats_sync_interval": sync_interval, "sqlite": "WAL, synchronous=FULL"},
            "idle_cpu_percent": idle,
            "peak_rss_mb": {name: _peak_mb(pid) for name, pid in _pids(made).items()},
            "figures": [asdict(f) for f in figures],
            "watched": [asdict(w) for w in watched],
        }


async def _at(made: DevStack, load: Load, ground: Floor, concurrency: int, seconds: float) -> Figures:
    prefix = f"c{concurrency}-{time.time_ns()}"
    pace = WARM_UP_RUNS / await load.runs(f"{prefix}-warm", max(WARM_UP_RUNS, concurrency), concurrency)
    number = max(WARM_UP_RUNS, concurrency * 2, int(pace * seconds))
    load.wakes.clear()
    load.steps.clear()
    cpu, disk = _cpu(made), _disk(made)
    took = await load.runs(prefix, number, concurrency)
    steps = number * STEPS
    step_ms = _spread(load.steps)
    spent = {name: after - cpu.get(name, 0.0) for name, after in (await _at_rest(made)).items()}
    return Figures(
        concurrency=concurrency,
        runs=number,
        seconds=round(took, 2),
        runs_per_s=round(number / took, 1),
        steps_per_s=round(steps / took, 1),
        step_ms=step_ms,
        wake_ms=_spread(load.wakes),
        cpu_s_per_1000_steps={n: round(s / steps * 1000, 2) for n, s in (spent | {"all": sum(spent.values())}).items()},
        disk_bytes_per_run=max(0, _disk(made) - disk) // number,
        floor=await _floor(ground, steps, concurrency, steps / took, step_ms),
    )


async def _watched(made: DevStack, load: Load, watchers: int, concurrency: int, seconds: float) -> Watched:
    async with watching(made.url, watchers) as lags:
        pace = WARM_UP_RUNS / await load.runs(f"w{watchers}-{time.time_ns()}-warm", WARM_UP_RUNS, concurrency)
        number = max(WARM_UP_RUNS, int(pace * seconds))
        load.steps.clear()
        lags.clear()
        cpu = _cpu(made)["agent"]
        took = await load.runs(f"w{watchers}-{time.time_ns()}", number, concurrency)
        return Watched(
            watchers=watchers,
            steps_per_s=round(number * STEPS / took, 1),
            step_ms=_spread(load.steps),
            lag_ms=_spread(lags) if lags else None,
            agent_cpu_percent=round((_cpu(made)["agent"] - cpu) / took * 100, 1),
        )


async def _floor(
    ground: Floor, steps: int, concurrency: int, steps_per_s: float, step_ms: dict[str, float]
) -> FloorFigures:
    took, each = await ground.steps(steps, concurrency)
    spread = _spread(each)
    return FloorFigures(
        steps_per_s=round(steps / took, 1),
        step_ms=spread,
        share=round(steps_per_s / (steps / took), 2),
        times_p50=round(step_ms["p50"] / spread["p50"], 1),
    )


async def _at_rest(made: DevStack) -> dict[str, float]:
    """The CPU used so far, once nothing is left to do: paper trails are written after their runs have ended."""
    before = _cpu(made)
    while True:
        await asyncio.sleep(REST_LOOK_S)
        after = _cpu(made)
        if sum(after.values()) - sum(before.values()) < REST_LOOK_S * AT_REST:
            return after
        before = after


async def _idle(made: DevStack) -> dict[str, float]:
    before = _cpu(made)
    await asyncio.sleep(IDLE_S)
    return {name: round((after - before[name]) / IDLE_S * 100, 2) for name, after in _cpu(made).items()}


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    return {name: round(ordered[int(share * (len(ordered) - 1))] * 1000, 2) for name, share in at.items()}


def _pids(made: DevStack) -> dict[str, int]:
    nats = int((made.options.folder / "nats" / "nats-server.pid").read_text())
    pids = {"nats": nats, "agent": made.agent.pid, "gateway": made.gateway.pid}
    started = {name: pid for name, pid in pids.items() if pid is not None}
    return started | dict(zip(["paper trail"], _children(started["agent"]), strict=False))  # its only child


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]


def _words(file: Path) -> list[str]:
    with suppress(OSError):  # a thread that has just ended
        return file.read_text().split()
    return []


def _cpu(made: DevStack) -> dict[str, float]:
    """CPU seconds so far, user and system, of each process."""
    used = {}
    for name, pid in _pids(made).items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    own = resource.getrusage(resource.RUSAGE_SELF)
    return used | {"load": own.ru_utime + own.ru_stime}


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def _disk(made: DevStack) -> int:
    return sum(p.stat().st_size for p in made.options.folder.rglob("*") if p.is_file())
