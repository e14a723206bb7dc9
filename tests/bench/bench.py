"""`make bench`: runs of five tool steps against the whole stack on this machine, at several concurrencies.

One run is a start, five steps (a scripted decision of 0 ms and an echo in the gateway's process of 0 ms each) and its
completion, every transition durable. The load is closed: as many runs as the concurrency says are always on their way.
A step's latency is from its request on the bus to the next step's request. CPU is of all processes, the load's own too,
until nothing is left to do. Right after each concurrency as many steps are made on the floor (see there):
what this machine gives at that moment to a bus with nobody behind it. Shares of it can be compared; absolute figures
differ by half from one hour to the next.
"""

import asyncio
import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import uvloop

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from tests.bench.floor import Floor, floor
from tests.bench.load import TimedLoad, spread
from tests.bench.usage import cpu_s, peak_mb
from tests.kit.stack import linked

SCRIPT = Path(__file__).parent / "bench.yaml"
IN_PROCESS = {"runner": "in_process", "slots": 256, "concurrency": 256}
STEPS = 5
WARM_UP_RUNS = 40
IDLE_S = 5.0
REST_LOOK_S = 0.5
AT_REST = 0.06
"""Share of one core that all processes may use together when idle."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running installation with its load and its floor. `cpu` returns the CPU seconds so far by kind of process."""

    load: TimedLoad
    ground: Floor
    folder: Path
    cpu: Callable[[], dict[str, float]]

    async def paced(self, concurrency: int, seconds: float) -> dict[str, Any]:
        """Times in milliseconds, disk in bytes. `share` is our steps per second relative to the floor, `times_p50` our
        latency relative to the floor's."""
        number, took, spent, grown = await self._runs(concurrency, seconds)
        steps, step_ms = number * STEPS, spread(self.load.steps)
        floor_took, each = await self.ground.steps(steps, concurrency)
        floor_ms = spread(each)
        return {
            "concurrency": concurrency,
            "runs": number,
            "seconds": round(took, 2),
            "runs_per_s": round(number / took, 1),
            "steps_per_s": round(steps / took, 1),
            "step_ms": step_ms,
            "run_ms": spread(self.load.runs_s),
            "wake_ms": spread(self.load.wakes),
            "cpu_s_per_1000_steps": _per_1000(spent, steps),
            "disk_bytes_per_run": max(0, grown) // number,
            "floor": {
                "steps_per_s": round(steps / floor_took, 1),
                "step_ms": floor_ms,
                "share": round(floor_took / took, 2),
                "times_p50": round(step_ms["p50"] / floor_ms["p50"], 1),
            },
        }

    async def _runs(self, concurrency: int, seconds: float) -> tuple[int, float, dict[str, float], int]:
        """Makes as many runs as take about so many seconds, after a warm-up whose times are discarded; returns their
        number, the seconds, the CPU seconds until nothing is left to do, and the bytes on the disk."""
        prefix, load = f"{concurrency}-{time.time_ns()}", self.load
        warm = await load.runs(f"{prefix}-warm", max(WARM_UP_RUNS, concurrency), concurrency)
        load.clear()
        number = max(WARM_UP_RUNS, concurrency * 2, int(WARM_UP_RUNS / warm * seconds))
        cpu, disk = self.cpu(), _disk(self.folder)
        took = await load.runs(prefix, number, concurrency)
        spent = {name: after - cpu.get(name, 0.0) for name, after in (await self._at_rest()).items()}
        return number, took, spent, _disk(self.folder) - disk

    async def _at_rest(self) -> dict[str, float]:
        """CPU seconds so far, once all processes are idle: files are rendered after the ends of runs."""
        before = self.cpu()
        while True:
            await asyncio.sleep(REST_LOOK_S)
            after = self.cpu()
            if sum(after.values()) - sum(before.values()) < REST_LOOK_S * AT_REST:
                return after
            before = after


async def measure(
    folder: Path,
    concurrencies: Sequence[int],
    *,
    seconds: float,
    sync_interval: str,
) -> dict[str, Any]:
    """Returns all figures and their settings, for JSON."""
    both = {"log": {"level": "warning"}}
    options = DevOptions(
        folder=folder,
        sync_interval=sync_interval,
        script=SCRIPT,
        agent=both,
        gateway={**IN_PROCESS, **both},
    )
    async with stack(options) as made, linked(made.nats.url) as link:
        idle = await _idle(made)
        load = TimedLoad(link)
        await load.listen()
        async with floor(made.nats.url) as ground:
            target = Target(load, ground, folder, lambda: _cpu(made))
            figures = [await target.paced(concurrency, seconds) for concurrency in concurrencies]
        return {
            "workload": f"start, {STEPS} tool steps (decision 0 ms, echo 0 ms), completion; everything on this machine",
            "durability": {"nats_sync_interval": sync_interval, "sqlite": "WAL, synchronous=FULL"},
            "idle_cpu_percent": idle,
            "peak_rss_mb": {name: peak_mb(pid) for name, pid in _pids(made).items()},
            "figures": figures,
        }


def _per_1000(spent: dict[str, float], number: int) -> dict[str, float]:
    return {name: round(s / number * 1000, 2) for name, s in (spent | {"all": sum(spent.values())}).items()}


async def _idle(made: DevStack) -> dict[str, float]:
    before = _cpu(made)
    await asyncio.sleep(IDLE_S)
    return {name: round((after - before[name]) / IDLE_S * 100, 2) for name, after in _cpu(made).items()}


def _pids(made: DevStack) -> dict[str, int]:
    nats = int((made.options.folder / "nats" / "nats-server.pid").read_text())
    pids = {"nats": nats, "agent": made.agent.pid, "gateway": made.gateway.pid}
    return {name: pid for name, pid in pids.items() if pid is not None}


def _cpu(made: DevStack) -> dict[str, float]:
    used = {name: cpu_s(pid) for name, pid in _pids(made).items()}
    own = resource.getrusage(resource.RUSAGE_SELF)
    return used | {"load": own.ru_utime + own.ru_stime}


def _disk(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def bench(
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Runs at a time; may be given several times. [1, 32, 256]")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="About how long to measure each.")] = 10.0,
    sync_interval: Annotated[
        str, typer.Option(help="How often NATS syncs: `always`, or a time such as 100ms.")
    ] = "always",
) -> None:
    """Measures the whole stack on this machine."""
    with TemporaryDirectory(prefix="agentic-bench-") as folder:
        figures = uvloop.run(
            measure(Path(folder), concurrency or (1, 32, 256), seconds=seconds, sync_interval=sync_interval)
        )
    typer.echo(json.dumps(figures, indent=2))


if __name__ == "__main__":
    typer.run(bench)
