"""`make bench-cluster`: throughput of a fleet on a cluster and cost of a step, as JSON.

The load and the figures are those of `make bench`, on one NATS server (R1) and on three (R3), with one, two and three
agents; everything on this machine. The floor is measured beside each, on streams with as many replicas. With decisions
of 200 ms, an agent makes AT_ONCE at a time, and as many runs are open per agent.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.bench.bench import IN_PROCESS, SCRIPT, Target
from tests.bench.floor import floor
from tests.bench.load import TimedLoad
from tests.bench.usage import children, cpu_s
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, fleet
from tests.kit.stack import slowed

OPEN_RUNS = 64
WAIT_S, AT_ONCE = 0.2, 4


async def measured(
    seconds: float, *, agents: int, replicas: int, open_runs: int = OPEN_RUNS, wait_s: float = 0.0, **settings: Any
) -> dict[str, Any]:
    """Runs a fleet for about so many seconds. `settings` are those of the agents; a decision takes `wait_s`."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        options = FleetOptions(
            folder=Path(folder) / "fleet",
            agents=agents,
            store="jetstream",
            replicas=replicas,
            script=slowed(yaml.safe_load(SCRIPT.read_text()), wait_s),
            agent=settings,
            gateway=IN_PROCESS,
        )
        cluster = Cluster(Path(folder) / "nodes", nodes=replicas)
        async with (
            cluster,
            fleet(cluster, options) as ships,
            cluster.linked() as link,
            floor(*cluster.settings.urls, replicas=replicas) as ground,
        ):
            load = TimedLoad(link)
            await load.listen()
            found = await Target(load, ground, Path(folder), lambda: _used(ships)).paced(open_runs, seconds)
    return {"agents": agents, "replicas": replicas, "decision_s": wait_s, **found}


def _used(ships: Fleet) -> dict[str, float]:
    """CPU seconds so far by kind of process, children included."""
    kinds = {"agents": ships.agents, "gateways": ships.gateways, "nodes": ships.cluster.nodes}
    pids = {kind: [member.pid or 0 for member in some] for kind, some in kinds.items()}
    return {kind: sum(map(cpu_s, [*some, *(c for pid in some for c in children(pid))])) for kind, some in pids.items()}


async def figures(agents: list[int], replicas: list[int], seconds: float) -> list[dict[str, Any]]:
    found = [await measured(seconds, agents=some, replicas=copies) for copies in replicas for some in agents]
    slow: dict[str, Any] = {"wait_s": WAIT_S, "turns": AT_ONCE, "replicas": 3}
    return found + [await measured(seconds, agents=some, open_runs=AT_ONCE * some, **slow) for some in agents]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure fleets on a cluster, print JSON.")
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--replicas", type=int, nargs="+", choices=(1, 3), default=[1, 3])
    parser.add_argument("--seconds", type=float, default=15.0, help="about how long to measure each")
    found = uvloop.run(figures(**vars(parser.parse_args())))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
