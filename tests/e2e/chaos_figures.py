"""What a kill -9 costs: `make chaos-figures` kills again and again at random moments and prints what it saw, as JSON.

The load is closed: so many runs are open all the time, each of five steps with a tool that writes (a process of its
own, which notes every time it runs) and decisions of 0 ms. Before each kill a random time passes, drawn from the seed.

A resume is from the start of the killed process (of nats-server: from its answering again; of all: from the last of
them) to the next message of its kind that the stream stores for the first time: a tool request, of the gateway a tool
result. The stream's own clock is this machine's. Starting a process is part of it, the pause before is not.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from agent_service.workbench.dev import DevOptions, DevStack, Service, stack
from groundwork.nats import link as nats_link
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.asyncapi import STREAMS
from tests.bench.usage import cpu_s
from tests.e2e.chaos_load import WATCHER, loaded, script, spread, times_run, write_tool

VICTIMS = ("agent", "gateway", "nats-server", "all")
OPEN_RUNS = (1, 100, 1000)
KILLS = 18
"""Of each victim at each number of open runs: 216 together."""
LONGEST_LULL_S = 1.0
LOOK_S = 0.005
RESUMED_WITHIN_S = 60.0


@dataclass(slots=True)
class Cell:
    """One victim at one number of open runs. Times in seconds."""

    resumes: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    """CPU of the service that was killed, from its new start on."""
    asked_again: int = 0
    """Runs that waited for the model when the agent was killed: its call is made again, if it had been made."""


@dataclass(slots=True)
class House:
    made: DevStack
    link: NatsLink
    calls: Path
    """One line for each time the tool ran."""

    async def kill(self, victim: str, cell: Cell) -> None:
        """Kill it, see it started again, and note how long it took to go on."""
        killed = time.time()
        services = self._services(victim)
        before = {service: service.starts for service in services}
        for service in services:
            service.kill()
        if victim in ("agent", "all"):
            cell.asked_again += self._asking()
        back = await self._nats_again() if victim in ("nats-server", "all") else killed
        for service in services:
            back = max(back, await _started(service, before[service]))
        subject = subjects.TOOL_RESULT if victim == "gateway" else subjects.ALL_TOOL_REQUESTS
        cell.resumes.append(await self.first_since(subject, back) - back)
        cell.used += [cpu_s(service.pid) for service in services[:1] if service.pid]

    def tools_run_twice(self) -> int:
        return sum(1 for times in times_run(self.calls).values() if times > 1)

    def _services(self, victim: str) -> Sequence[Service]:
        chosen = {
            "agent": (self.made.agent,),
            "gateway": (self.made.gateway,),
            "all": (self.made.agent, self.made.gateway),
        }
        return chosen.get(victim, ())

    async def _nats_again(self) -> float:
        self.made.nats.kill()
        await self.made.nats.start()
        return time.time()

    def _asking(self) -> int:
        path = self.made.options.folder / "agent" / "runs.db"
        question = "SELECT count(*) FROM runs WHERE state ->> '$.waiting.kind' IN ('for_model', 'model_retry')"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return int(database.execute(question).fetchone()[0])

    async def first_since(self, subject: str, since: float) -> float:
        """When the first message of that subject was stored, of those not before `since`."""
        async with asyncio.timeout(RESUMED_WITHIN_S):
            while True:
                at = await self._stored(subject, since)
                if at is not None:
                    return at
                await asyncio.sleep(LOOK_S)

    async def _stored(self, subject: str, since: float) -> float | None:
        stream = next(name for name, stored in STREAMS.items() if subject in stored)
        start = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
        question = json.dumps({"start_time": start, "next_by_subj": subject}).encode()
        try:
            answer = json.loads(await self.link.request(f"$JS.API.STREAM.MSG.GET.{stream}", question, timeout_s=1))
        except TryAgain:
            return None
        if "error" in answer:
            return None
        return datetime.fromisoformat(answer["message"]["time"]).timestamp()


async def _started(service: Service, before: int) -> float:
    while service.starts == before:  # noqa: ASYNC110 - a fact of another task, looked for often enough
        await asyncio.sleep(LOOK_S)
    return service.started_at


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    calls = write_tool(folder / "plugins", folder / "calls")
    (folder / "script.yaml").write_text(yaml.safe_dump(script()))
    options = DevOptions(
        folder=folder / "stack",
        script=folder / "script.yaml",
        plugins=(folder / "plugins",),
        agent={"log": {"level": "warning"}},
        gateway={
            "log": {"level": "warning"},
            "plugins": {"folders": [str(folder / "plugins")], "write": [str(calls)]},
        },
    )
    async with stack(options) as made:
        link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)), name=WATCHER)
        try:
            yield House(made, link, calls)
        finally:
            await link.close()


async def at(open_runs: int, victims: Sequence[str], kills: int, chance: random.Random) -> dict[str, Any]:
    """The figures of one number of open runs, in a stack of its own."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        cells = {victim: Cell() for victim in victims}
        async with house(Path(name)) as made:
            async with loaded(made.link, open_runs) as load:
                await made.first_since(subjects.ALL_TOOL_REQUESTS, 0)
                for victim in _shuffled(victims, kills, chance):
                    await asyncio.sleep(chance.uniform(0, LONGEST_LULL_S))
                    await made.kill(victim, cells[victim])
            return {
                "open_runs": open_runs,
                "victims": {victim: _told(cell) for victim, cell in cells.items()},
                "runs_ended": sum(load.endings.values()),
                "runs_not_done": sum(load.endings.values()) - load.endings[subjects.COMPLETED],
                "runs_lost": load.open,
                "tools_run_twice": made.tools_run_twice(),
            }


def _shuffled(victims: Sequence[str], kills: int, chance: random.Random) -> Iterator[str]:
    order = [victim for victim in victims for _ in range(kills)]
    chance.shuffle(order)
    return iter(order)


def _told(cell: Cell) -> dict[str, Any]:
    return {
        "kills": len(cell.resumes),
        "resume_s": spread(cell.resumes),
        "cpu_s": spread(cell.used),
        "model_calls_repeated": cell.asked_again,
    }


async def figures(open_runs: Sequence[int], victims: Sequence[str], kills: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)  # noqa: S311 - for the moments of the kills, which are to be repeatable
    cells = [await at(number, victims, kills, chance) for number in open_runs]
    return {"seed": seed, "kills": len(cells) * len(victims) * kills, "figures": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill, measure, print JSON.")
    parser.add_argument("--open-runs", type=int, nargs="+", default=OPEN_RUNS)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS)
    parser.add_argument("--kills", type=int, default=KILLS, help="of each victim at each number of open runs")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = asyncio.run(figures(asked.open_runs, asked.victims, asked.kills, asked.seed))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
