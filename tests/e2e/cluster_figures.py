"""What a fleet on a cluster carries, and what a step costs it: `make bench-cluster` prints it as JSON.

The load is that of `make bench` (start, five steps with a decision of 0 ms and an echo of 0 ms, completion), on one
NATS server (R1) and on three (R3), with one, two and three agents; everything on this machine. The floor stands beside
each, on streams with as many replicas. `carried`: decisions take 200 ms and an agent makes so many at a time; so many
runs are open for each agent.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
import yaml

from groundwork.nats.link import NatsLink
from tests.bench.bench import SCRIPT, STEPS
from tests.bench.floor import floor
from tests.bench.load import Load, spread
from tests.bench.usage import children, cpu_s
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, fleet

WARM_UP_RUNS = 60
OPEN_RUNS = 64
WAIT_S, AT_ONCE = 0.2, 4
BETWEEN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    store: str = "jetstream"
    agents: Sequence[int] = (1, 2, 3)
    replicas: Sequence[int] = (1, 3)
    seconds: float = 15.0


@dataclass(slots=True)
class Bench:
    """A fleet and its load."""

    ships: Fleet
    load: Load
    link: NatsLink

    async def runs(self, prefix: str, open_runs: int, seconds: float) -> tuple[int, float]:
        """How many there were, and the seconds that they took together."""
        warm = await self.load.runs(f"{prefix}-warm", WARM_UP_RUNS, open_runs)
        number = max(open_runs, int(WARM_UP_RUNS / warm * seconds))
        self.load.clear()
        return number, await self.load.runs(prefix, number, open_runs)

    def used(self) -> dict[str, float]:
        """CPU seconds so far, of each kind of process with its children."""
        kinds = {"agents": self.ships.agents, "gateways": self.ships.gateways, "nodes": self.ships.cluster.nodes}
        return {kind: sum(_with_children(member.pid or 0) for member in some) for kind, some in kinds.items()}


def _with_children(pid: int) -> float:
    return cpu_s(pid) + sum(cpu_s(child) for child in children(pid))


@asynccontextmanager
async def bench(plan: Plan, folder: Path, *, agents: int, replicas: int, **more: Any) -> AsyncIterator[Bench]:
    """`more`: settings of the agents; `wait_s`, which is none, is how long a decision takes."""
    options = FleetOptions(
        folder=folder / "fleet",
        agents=agents,
        store="jetstream" if plan.store == "jetstream" else "sqlite",
        replicas=replicas,
        script=_script(more.pop("wait_s", 0.0)),
        agent=more,
        gateway={"runner": "in_process", "slots": 256, "concurrency": 256},
    )
    cluster = Cluster(folder / "nodes", nodes=replicas)
    async with cluster, fleet(cluster, options) as ships, cluster.linked() as link:
        load = Load(link)
        await load.listen()
        yield Bench(ships, load, link)


def _script(wait_s: float) -> dict[str, Any]:
    """That of the benchmark, with so long decisions."""
    text = SCRIPT.read_text()
    script: dict[str, Any] = yaml.safe_load(text)
    return script | {"rules": [rule | {"wait_s": wait_s} for rule in script["rules"]]}


async def throughput(plan: Plan, folder: Path, agents: int, replicas: int) -> dict[str, Any]:
    async with bench(plan, folder, agents=agents, replicas=replicas) as made:
        before = made.used()
        number, took = await made.runs("through", OPEN_RUNS, plan.seconds)
        await asyncio.sleep(BETWEEN_S)
        spent = {kind: used - before[kind] for kind, used in made.used().items()}
        steps = (number + WARM_UP_RUNS) * STEPS
        step_ms = spread(made.load.steps)
        async with floor(*made.ships.cluster.settings.urls, replicas=replicas) as ground:
            floor_took, _ = await ground.steps(number * STEPS, OPEN_RUNS)
    return {
        "agents": agents,
        "replicas": replicas,
        "steps_per_s": round(number * STEPS / took, 1),
        "step_ms": step_ms,
        "cpu_s_per_1000_steps": {kind: round(s / steps * 1000, 2) for kind, s in spent.items()},
        "share_of_floor": round(floor_took / took, 2),
    }


async def carried(plan: Plan, folder: Path, agents: int) -> dict[str, Any]:
    """So many runs at the same time as all agents have places for."""
    async with bench(plan, folder, agents=agents, replicas=3, wait_s=WAIT_S, turns=AT_ONCE) as made:
        number, took = await made.runs("carried", AT_ONCE * agents, plan.seconds)
        return {
            "agents": agents,
            "open_runs": AT_ONCE * agents,
            "steps_per_s": round(number * STEPS / took, 1),
            "step_ms": spread(made.load.steps),
            "run_ms": spread(made.load.runs_s),
        }


async def figures(plan: Plan) -> dict[str, Any]:
    """All of them, each in a fleet of its own."""
    found: dict[str, Any] = {"store": plan.store, "throughput": [], "carried": []}
    for replicas in plan.replicas:
        for agents in plan.agents:
            with _folder() as folder:
                found["throughput"].append(await throughput(plan, Path(folder), agents, replicas))
    for agents in plan.agents:
        with _folder() as folder:
            found["carried"].append(await carried(plan, Path(folder), agents))
    return found


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="cluster-")


def main() -> None:
    plan = Plan()
    parser = argparse.ArgumentParser(description="Measure fleets on a cluster, print JSON.")
    parser.add_argument("--store", choices=("jetstream", "sqlite"), default=plan.store)
    parser.add_argument("--agents", type=int, nargs="+", default=plan.agents)
    parser.add_argument("--replicas", type=int, nargs="+", choices=(1, 3), default=plan.replicas)
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="about how long to measure each")
    found = uvloop.run(figures(Plan(**vars(parser.parse_args()))))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
