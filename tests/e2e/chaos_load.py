"""The load of the rigs that break things: runs of five steps with a tool that writes, always so many of them open."""

import asyncio
import itertools
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from groundwork.nats.consuming.settling import DeadLetters, Delivery
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import ConsumerSpec, Topology, create_missing
from groundwork.service.errors import TryAgain
from schemas import keys, subjects
from tests.kit.consuming import consume

STEPS = 5
ENDED_WITHIN_S = 600.0
WATCHER = "chaos"

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
    """Five calls, each of which names its run and step, then done; each decision takes `wait_s`."""
    plan = {"action": {"tool": tool, "command": command, "arguments": {"call": "$goal after step $step"}}}
    met = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
    frame = {"goal_statement": "Note.", "definition_of_done": ["one", "two", "three"]}
    rules: list[dict[str, Any]] = [
        {"phase": "reflect", "when": {"steps": STEPS}, "reflect": {"verdict": "done", "summary": "noted", "met": met}},
        {"phase": "reflect", "reflect": {"verdict": "continue", "summary": "on"}, "plan": plan},
        {"phase": "plan", "plan": plan},
        {"phase": "frame", "frame": frame},
    ]
    return {"name": "chaos", "rules": [rule | {"wait_s": wait_s} for rule in rules]}


class Load:
    """Keeps a number of runs open, until it is told to let them end. `started`: how many it has begun."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._ended: dict[str, asyncio.Event] = {}
        self._names = (f"run {number}" for number in itertools.count(1))
        self.endings: Counter[str] = Counter()
        self.started = 0
        self.closing = False

    async def keep_one_open(self) -> None:
        while not self.closing:
            name = next(self._names)
            ended = self._ended[name] = asyncio.Event()
            self.started += 1
            await self._start(name)
            await ended.wait()

    async def take(self, delivery: Delivery) -> None:
        """An ending; one that comes twice counts once."""
        ended = self._ended.pop(json.loads(delivery.body)["payload"]["goal"], None)
        if ended is not None:
            self.endings[delivery.subject] += 1
            ended.set()

    @property
    def open(self) -> int:
        return len(self._ended)

    async def _start(self, name: str) -> None:
        key = keys.start(name.replace(" ", "-"))
        body = json.dumps({"type": subjects.START, "payload": {"goal": name}, "dedupe_key": key}).encode()
        while True:
            try:
                await self._link.publish(subjects.START, body, msg_id=key, headers={})
            except TryAgain:
                continue
            return


def times_run(calls: Path) -> Counter[str]:
    """How often the tool ran, by its call."""
    return Counter(_call(line) for line in calls.read_text().splitlines())


def _call(line: str) -> str:
    request = json.loads(line)
    payload = request.get("payload") or request["event"]["payload"]
    return str(payload["call"])


def write_tool(plugins: Path, calls: Path) -> Path:
    """The tool, in a folder of plugins, and the file in which it notes its calls."""
    plugin = plugins / "ledger"
    plugin.mkdir(parents=True)
    calls.touch()
    (plugin / "manifest.yaml").write_text(yaml.safe_dump(MANIFEST))
    (plugin / "run.sh").write_text(PLUGIN.format(calls=calls))
    (plugin / "run.sh").chmod(0o755)
    return calls


@asynccontextmanager
async def loaded(link: NatsLink, open_runs: int, *, ended_within_s: float = ENDED_WITHIN_S) -> AsyncIterator[Load]:
    """So many open runs; on leaving, all have ended, or have had their time."""
    watcher = ConsumerSpec(
        subjects.STREAM, WATCHER, {"filter_subjects": list(subjects.ENDINGS), "ack_policy": "explicit"}
    )
    await create_missing(link, Topology(consumers=(watcher,)))
    load, dead = Load(link), DeadLetters(subjects.DEAD_LETTERS_LOOP)
    watching = consume(link, subjects.STREAM, WATCHER, slots=64, handler=load.take, dead_letter=dead, in_progress_s=10)
    tasks = [asyncio.create_task(work) for work in (watching, *(load.keep_one_open() for _ in range(open_runs)))]
    try:
        yield load
        load.closing = True
        await asyncio.wait(tasks[1:], timeout=ended_within_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def spread(values: Sequence[float]) -> dict[str, float]:
    """What half of them, 99 of 100 and all are not above."""
    ordered = sorted(values) or [0.0]
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[math.ceil(share * len(ordered)) - 1], 3) for name, share in at.items()}
