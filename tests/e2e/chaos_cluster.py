"""What becomes of a fleet in a storm: `make chaos-cluster` lets everything befall it under load and prints JSON.

Three nodes, agents and gateways, each a process of its own; the load is closed: so many runs are open all the time,
each of five steps with a tool that writes (a process of its own, which notes every time it runs) and decisions that
take `--wait-s`. Faults come one after another, in an order and with lulls that are drawn from the seed.

A silence is what people would see of a fault: of each run that was under way when it began, the longest time in which
no stream stored anything of it, from then on until the fault was over and the run went on. It holds the time that a
decision and a tool take. What became of the runs is read from the streams when all is over. After each fault the copies
of every stream are looked at: whether each is where its leader is.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from schemas import subjects
from tests.e2e.account import Account, account, holes, listed
from tests.e2e.chaos_load import STEPS, Load, loaded, script, spread, times_run, write_tool
from tests.e2e.storm import FAULTS, Storm
from tests.kit.cluster import Cluster, wired
from tests.kit.fleet import FleetOptions, fleet

ENDED_WITHIN_S = 180.0
LOOK_S = 0.5
STANDS_STILL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`runs`: at least so many. Each of the faults comes `times` times."""

    store: str = "jetstream"
    agents: int = 3
    gateways: int = 2
    runs: int = 3000
    open_runs: int = 40
    wait_s: float = 0.5
    older: Path | None = None
    faults: Sequence[str] = tuple(FAULTS)
    times: int = 3
    seed: int = 1


async def figures(plan: Plan, folder: Path) -> dict[str, Any]:
    """Let it all happen, and tell what became of it."""
    calls = write_tool(folder / "plugins", folder / "calls")
    options = FleetOptions(
        folder=folder / "fleet",
        agents=plan.agents,
        gateways=plan.gateways,
        store="jetstream" if plan.store == "jetstream" else "sqlite",
        script=script(plan.wait_s),
        plugins=(folder / "plugins",),
        written=(calls,),
        cut=True,
        older=plan.older,
    )
    async with wired(Cluster(folder / "nodes")) as cluster, fleet(cluster, options) as ships, cluster.linked() as link:
        storm = Storm(ships, random.Random(plan.seed))  # noqa: S311 - for an order that is to be repeatable
        async with loaded(link, plan.open_runs, ended_within_s=ENDED_WITHIN_S) as load:
            await storm.strike(plan.faults, plan.times)
            await _begun(load, plan.runs)
        books, first, *others = await account(link), *[await listed(agent) for agent in ships.agents]
        return _told(plan, load, books, times_run(calls)) | {
            "faults": {fault: _shown(fault, storm, books) for fault in plan.faults},
            "holes": await holes(link),
            "ended_by_themselves": {member.name: member.gave_up for member in ships.members if member.gave_up},
            "listed_otherwise_by_another_agent": sorted(
                run for run in first if any(first[run] != other.get(run) for other in others)
            ),
        }


async def _begun(load: Load, runs: int) -> None:
    """Or nothing ends any more: what is open then is told as lost."""
    started, since = load.started, time.monotonic()
    while load.started < runs and time.monotonic() - since < STANDS_STILL_S:
        await asyncio.sleep(LOOK_S)
        if load.started > started:
            started, since = load.started, time.monotonic()


def _told(plan: Plan, load: Load, books: Account, calls: Counter[str]) -> dict[str, Any]:
    endings = Counter(subject for ended in books.endings.values() for subject in ended)
    return {
        "seed": plan.seed,
        "fleet": {"store": plan.store, "agents": plan.agents, "gateways": plan.gateways, "open_runs": plan.open_runs},
        "runs": load.started,
        "done": endings[subjects.COMPLETED],
        "not_done": dict(books.reasons),
        "lost": load.open,
        **books.told(),
        "writes": len(calls),
        "writes_missing": max(0, STEPS * endings[subjects.COMPLETED] - len(calls)),
        "writes_made_twice": sorted(call for call, times in calls.items() if times > 1),
    }


def _shown(fault: str, storm: Storm, books: Account) -> dict[str, Any]:
    struck = [each for each in storm.struck if each.fault == fault]
    silences = [silence for each in struck for silence in books.silences(each.at, each.over)]
    return {
        "times": len(struck),
        "runs_under_way": len(silences),
        "silence_s": spread(silences),
        "whole_after_s": round(max((each.whole_s for each in struck), default=0.0), 1),
        "copies_not_current": [copy for each in struck for copy in each.behind],
    }


def main() -> None:
    plan = Plan()
    parser = argparse.ArgumentParser(description="Let a storm come over a fleet on a cluster, print JSON.")
    parser.add_argument("--store", choices=("jetstream", "sqlite"), default=plan.store)
    parser.add_argument("--agents", type=int, default=plan.agents)
    parser.add_argument("--gateways", type=int, default=plan.gateways)
    parser.add_argument("--runs", type=int, default=plan.runs, help="at least so many")
    parser.add_argument("--open-runs", type=int, default=plan.open_runs)
    parser.add_argument("--wait-s", type=float, default=plan.wait_s, help="how long each decision takes")
    parser.add_argument("--older", type=Path, help="a checkout that all run until they are rolled, for upgrades")
    parser.add_argument("--faults", nargs="+", choices=sorted(FAULTS), default=plan.faults)
    parser.add_argument("--times", type=int, default=plan.times, help="that each fault comes")
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument("--keep", type=Path, help="a folder for logs and stores, which is not there yet")
    asked = vars(parser.parse_args())
    kept = asked.pop("keep")
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        found = uvloop.run(figures(Plan(**asked), kept or Path(name)))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
