"""`make chaos-cluster`: a fleet under load with all kinds of faults; prints JSON.

Nodes, agents and gateways are processes. The load is closed: a fixed number of runs is open at any time, each with
five steps of a writing tool (a process that records its calls) and decisions that take `wait_s`. Faults follow one
another in an order and with pauses drawn from the seed. At the end the results are read from the streams and from each
agent's list of runs.

A silence is the visible effect of a fault: the longest time without a stored entry of a run that was in progress at its
begin, until the fault is over and the run goes on.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import uvloop
import yaml
from nats.js.api import StreamConfig

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.nats.topology import Spec, set_up
from schemas import envelope, subjects
from tests.bench.load import Load
from tests.kit.cluster import Cluster, Node, wired
from tests.kit.consumer import consume
from tests.kit.fleet import Fleet, FleetOptions, Member, fleet
from tests.kit.stack import Answering, api, messages, one_after_another, planning, slowed

STEPS = 5
AWAY_S, ELECTION_S, WITHOUT_QUORUM_S, FULL_S = 8.0, 12.0, 5.0, 5.0
"""Longer than what they test: a member's lease (4 s), ack_wait (5 s), an election (4 to 9 s)."""
ENDED_WITHIN_S, STANDS_STILL_S, LOOK_S = 180.0, 60.0, 0.5
LULL_S = (3.0, 5.0)
"""Minimum and maximum pause, in which delayed work catches up before the next fault."""
TOLD_IN = (subjects.STREAM, subjects.STREAM_PROGRESS, subjects.STREAM_REQUESTS, subjects.STREAM_RESULTS)

# The load

MANIFEST = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": 1,
    "name": "ledger",
    "version": "0.1.0",
    "protocol": 2,
    "entrypoint": "run.sh",
    "description": "Notes that it was called.",
    "concurrency_safe": True,
    "output": "trusted",
    "commands": [
        {"name": "note", "type": "write", "description": "Note the call.", "input_schema": {"type": "object"}}
    ],
}
PLUGIN = """#!/bin/sh
printf '%s\\n' "$(cat)" >>'{calls}'
echo '{{"status": "ok", "result": "noted"}}'
"""


def script(wait_s: float = 0.0, *, tool: str = "ledger", command: str = "note") -> dict[str, Any]:
    """Five calls that name their run and step, then done; each decision takes `wait_s`."""
    call = planning(tool, command, call="$goal after step $step")
    return slowed(one_after_another(*[call] * STEPS), wait_s)


def write_tool(plugins: Path, calls: Path) -> Path:
    """Writes the tool into a plugin folder; it records its calls in a file."""
    plugin = plugins / "ledger"
    plugin.mkdir(parents=True)
    calls.touch()
    (plugin / "manifest.yaml").write_text(yaml.safe_dump(MANIFEST))
    (plugin / "run.sh").write_text(PLUGIN.format(calls=calls))
    (plugin / "run.sh").chmod(0o755)
    return calls


def times_run(calls: Path) -> Counter[str]:
    requests = [json.loads(line) for line in calls.read_text().splitlines()]
    return Counter(str((asked.get("payload") or asked["event"]["payload"])["call"]) for asked in requests)


class OpenRuns(Load):
    """Keeps a number of runs open until told to stop. `started` counts them."""

    started = 0
    closing = False

    async def keep_one_open(self) -> None:
        while not self.closing:
            self.started += 1
            await self.run(f"run {self.started}")

    async def take(self, delivery: Delivery) -> None:
        self.ended(delivery.subject, delivery.body)

    async def begun(self, runs: int) -> None:
        """Waits for that many starts. Reports open runs as lost if nothing ends any more."""
        started, since = self.started, time.monotonic()
        while self.started < runs and time.monotonic() - since < STANDS_STILL_S:
            await asyncio.sleep(LOOK_S)
            if self.started > started:
                started, since = self.started, time.monotonic()


@contextlib.asynccontextmanager
async def loaded(link: NatsLink, open_runs: int) -> AsyncIterator[OpenRuns]:
    """Keeps that many runs open; on exit waits for their ends, within a limit."""
    settings = {"filter_subjects": list(subjects.ENDINGS), "ack_policy": "explicit"}
    await set_up(link, (Spec(subjects.STREAM, settings, "chaos"),))
    load = OpenRuns(link)
    watching = consume(link, subjects.STREAM, "chaos", load.take, subjects.DEAD_LETTERS_LOOP, slots=64)
    tasks = [asyncio.create_task(work) for work in (watching, *(load.keep_one_open() for _ in range(open_runs)))]
    try:
        yield load
        load.closing = True
        await asyncio.wait(tasks[1:], timeout=ENDED_WITHIN_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# The faults


@dataclass(slots=True)
class Storm:
    """`struck` has begin and end of each fault."""

    fleet: Fleet
    chance: random.Random
    struck: list[tuple[str, float, float]] = field(default_factory=list)

    async def strike(self, faults: Sequence[str], times: int) -> None:
        """Causes each fault that many times in random order, with pauses."""
        order = [*faults] * times
        self.chance.shuffle(order)
        for fault in order:
            await asyncio.sleep(self.chance.uniform(*LULL_S))
            began = time.time()
            of_member, _, what = fault.partition(" ")
            if of_member in ("agent", "gateway"):
                member = self.chance.choice(self.fleet.agents if of_member == "agent" else self.fleet.gateways)
                strikes, away_s, mends = OF_MEMBERS[what]
                strikes(member)
                await asyncio.sleep(away_s)
                mends(member)
                await member.ready()
            else:
                await OF_FLEETS[fault](self)
            self.struck.append((fault, began, time.time()))

    async def rolled(self, members: Sequence[Member]) -> None:
        for member in members:
            await member.end()
            member.code = None
            member.start()
            await member.ready()

    async def leader(self, strikes: Callable[[Node], None]) -> None:
        strikes(await self.fleet.cluster.leader(subjects.STREAM_RUNS))
        await asyncio.sleep(ELECTION_S)
        await self.fleet.cluster.heal()

    async def nodes_killed(self, number: int) -> None:
        for node in self.chance.sample(self.fleet.cluster.nodes, number):
            node.kill()
        await asyncio.sleep(WITHOUT_QUORUM_S)
        await self.fleet.cluster.heal()

    async def nodes_rolled(self) -> None:
        for node in self.fleet.cluster.nodes:
            await node.end()
            node.start()
            await self.fleet.cluster.ready()

    async def stream_full(self) -> None:
        """Fills a stream that refuses new messages until it gets room again."""
        async with self.fleet.cluster.linked() as link:
            info = await link.client.jetstream().stream_info(subjects.STREAM_RUNS)
            await _change(link, info.config, max(1, info.state.bytes))
            await asyncio.sleep(FULL_S)
            await _change(link, info.config, info.config.max_bytes or -1)


async def _change(link: NatsLink, config: StreamConfig, max_bytes: int) -> None:
    wanted = json.dumps(config.as_dict() | {"max_bytes": max_bytes}).encode()
    answer = await link.request(f"$JS.API.STREAM.UPDATE.{config.name}", wanted)
    assert "error" not in json.loads(answer), answer


OF_MEMBERS: Mapping[str, tuple[Callable[[Member], object], float, Callable[[Member], object]]] = {
    "killed": (Member.kill, AWAY_S, Member.start),
    "killed, started at once": (Member.kill, 0.0, Member.start),
    "stopped": (Member.stop, AWAY_S, Member.go_on),
    "parted from the bus": (lambda member: member.way.cut(), AWAY_S, lambda member: member.way.mend()),
}
"""What befalls a member, the seconds in which others take over its work, and what ends it."""
OF_FLEETS: Mapping[str, Callable[[Storm], Awaitable[None]]] = {
    "agents rolled": lambda storm: storm.rolled(storm.fleet.agents),
    "gateways rolled": lambda storm: storm.rolled(storm.fleet.gateways),
    "leader killed": lambda storm: storm.leader(Node.kill),
    "leader stopped": lambda storm: storm.leader(Node.stop),
    "leader parted from its followers": lambda storm: storm.leader(storm.fleet.cluster.cut_off),
    "two nodes killed": lambda storm: storm.nodes_killed(2),
    "all nodes killed": lambda storm: storm.nodes_killed(3),
    "nodes rolled": Storm.nodes_rolled,
    "stream full": Storm.stream_full,
}
FAULTS = (*(f"{kind} {what}" for kind in ("agent", "gateway") for what in OF_MEMBERS), *OF_FLEETS)

# What became of it


@dataclass(slots=True)
class Account:
    """Runs by id, read from the streams. Times are seconds of the streams' clock."""

    accepted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    endings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    said_at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Times at which an entry of a run was stored."""

    async def read(self, link: NatsLink) -> None:
        for stream in TOLD_IN:
            async for message in messages(link, stream=stream):
                payload = json.loads(message.body)["payload"]
                run_id = message.headers.get(envelope.RUN_ID) or payload.get("run_id", "")
                self.said_at[run_id].append(message.at.timestamp())
                if message.subject == subjects.WAKE_ACCEPTED:
                    self.accepted[payload["wake_id"]].add(run_id)
                if message.subject in subjects.ENDINGS:
                    self.endings[run_id].append(message.subject)

    def longest_silence(self, since: float, until: float) -> float:
        """Longest silence that began before `until`, of runs in progress at `since`."""
        under_way = (sorted(times) for times in self.said_at.values() if min(times) <= since < max(times))
        gaps = (gap for times in under_way for gap in itertools.pairwise(times) if gap[1] > since and gap[0] < until)
        return max((then - max(now, since) for now, then in gaps), default=0.0)

    def told(self) -> dict[str, Any]:
        accepted = {run for runs in self.accepted.values() for run in runs}
        return {
            "never_ended": sorted(accepted - self.endings.keys()),
            "ended_twice": sorted(run for run, ended in self.endings.items() if len(ended) > 1),
            "accepted_twice": sorted(wake for wake, runs in self.accepted.items() if len(runs) > 1),
        }


async def holes(link: NatsLink) -> dict[str, int]:
    states = {name: (await link.client.jetstream().stream_info(name)).state for name in TOLD_IN}
    return {name: gone for name, state in states.items() if (gone := state.last_seq - state.messages)}


async def listed(agent: Answering) -> dict[str, dict[str, Any]]:
    """Every run by id, as this agent lists it."""
    found: dict[str, dict[str, Any]] = {}
    async with api(agent) as client:
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/v1/runs", params={"limit": 100} | ({"cursor": cursor} if cursor else {}))).json()
            found |= {line["run_id"]: line for line in page["runs"]}
            cursor = page["next_cursor"]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`runs` is a minimum. Each fault occurs `times` times. `older` is a checkout that all run until they are rolled.
    `keep` is a new folder for logs and stores."""

    agents: int = 3
    gateways: int = 2
    runs: int = 3000
    open_runs: int = 40
    wait_s: float = 0.5
    older: Path | None = None
    faults: Sequence[str] = FAULTS
    times: int = 3
    seed: int = 1
    keep: Path | None = None


async def figures(plan: Plan, folder: Path) -> dict[str, Any]:
    calls = write_tool(folder / "plugins", folder / "calls")
    options = FleetOptions(
        folder=folder / "fleet",
        agents=plan.agents,
        gateways=plan.gateways,
        store="jetstream",
        script=script(plan.wait_s),
        plugins=(folder / "plugins",),
        written=(calls,),
        cut=True,
        older=plan.older,
    )
    async with wired(Cluster(folder / "nodes")) as cluster, fleet(cluster, options) as ships, cluster.linked() as link:
        storm, books = Storm(ships, random.Random(plan.seed)), Account()  # noqa: S311 - an order that can be repeated
        async with loaded(link, plan.open_runs) as load:
            await storm.strike(plan.faults, plan.times)
            await load.begun(plan.runs)
        await books.read(link)
        first, *others = [await listed(agent) for agent in ships.agents]
        writes, endings = times_run(calls), Counter(itertools.chain.from_iterable(books.endings.values()))
        return {
            "runs": load.started,
            "endings": dict(endings),
            "lost": len(load.open),
            **books.told(),
            "writes_missing": max(0, STEPS * endings[subjects.COMPLETED] - len(writes)),
            "writes_made_twice": sorted(call for call, times in writes.items() if times > 1),
            "silence_s": _silences(storm, books),
            "holes": await holes(link),
            "ended_by_themselves": {member.name: member.gave_up for member in ships.members if member.gave_up},
            "listed_otherwise_by_another_agent": sorted(
                run for run in first if any(first[run] != other.get(run) for other in others)
            ),
        }


def _silences(storm: Storm, books: Account) -> dict[str, float]:
    longest: dict[str, float] = defaultdict(float)
    for fault, began, over in storm.struck:
        longest[fault] = max(longest[fault], round(books.longest_silence(began, over), 1))
    return dict(longest)


def main() -> None:
    parser = argparse.ArgumentParser(description="Let a storm come over a fleet on a cluster, print JSON.")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    for option in fields(Plan):
        if option.name != "faults":
            kind = Path if option.default is None else type(option.default)
            parser.add_argument(f"--{option.name.replace('_', '-')}", type=kind, default=option.default)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        found = uvloop.run(figures(plan, plan.keep or Path(name)))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
