"""What one step leaves in the streams of a cluster, early and late in a long run, and how often nodes sync for it."""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.bench.load import Load
from tests.e2e.account import messages
from tests.kit.cluster import Cluster

LONG = "long"
"""The goal of the run of many steps."""
EARLY, WINDOW = 5, 10
"""Of so many steps a figure is the median, from the one on that it is named by."""
COUNTED_RUNS, STEPS = 40, 5
LONG_WITHIN_S = 600.0
ATTACHED_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Stored:
    stream: str
    subject: str
    at: float
    size: int
    """Bytes of subject, headers and body."""


async def step_costs(load: Load, link: NatsLink, cluster: Cluster, long_steps: int) -> dict[str, Any]:
    """Messages and bytes of a step by stream, as one replica has them; fsyncs of all nodes, where strace can count."""
    began = time.time()
    await load.runs("long", 1, 1, goal=LONG, within_s=LONG_WITHIN_S)
    steps = _by_step([stored async for stored in _since(link, began)])
    await load.runs("warm", COUNTED_RUNS, 1)
    async with _fsyncs([node.pid or 0 for node in cluster.nodes]) as counted:
        await load.runs("counted", COUNTED_RUNS, 1)
    return {
        "stored": {f"step {number}": _around(steps, number) for number in (EARLY, long_steps - WINDOW)},
        "fsyncs_of_all_nodes": counted and round(sum(counted) / COUNTED_RUNS / STEPS, 1),
    }


async def _since(link: NatsLink, began: float) -> AsyncIterator[Stored]:
    for stream in await link.jetstream.streams_info():
        found = stream.config.name or ""
        async for message in messages(link, found):
            at = message.metadata.timestamp.timestamp()
            headers = sum(len(name) + len(value) for name, value in (message.headers or {}).items())
            size = len(message.subject) + headers + len(message.data)
            if at >= began:
                yield Stored(found, message.subject, at, size)


def _by_step(stored: Sequence[Stored]) -> list[list[Stored]]:
    """A step is what is stored from its request on until the next."""
    steps: list[list[Stored]] = [[]]
    for each in sorted(stored, key=lambda each: each.at):
        if each.subject.startswith(subjects.TOOL_REQUEST):
            steps.append([])
        steps[-1].append(each)
    return steps


def _around(steps: Sequence[Sequence[Stored]], number: int) -> dict[str, Any]:
    window = steps[number : number + WINDOW]
    streams = sorted({each.stream for step in window for each in step})
    return {stream: _medians([[e.size for e in step if e.stream == stream] for step in window]) for stream in streams}


def _medians(sizes: Sequence[Sequence[int]]) -> dict[str, float]:
    return {"messages": median(map(len, sizes)), "bytes": median(map(sum, sizes))}


@asynccontextmanager
async def _fsyncs(pids: Sequence[int]) -> AsyncIterator[list[int]]:
    """How often each process synced meanwhile: filled at the end, and left empty where there is no strace."""
    counted: list[int] = []
    if not shutil.which("strace"):
        yield counted
        return
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(pid) for pid in pids]
        tracers = [await _traced(pid, log) for pid, log in zip(pids, logs, strict=True)]
        try:
            await asyncio.sleep(ATTACHED_WITHIN_S)
            yield counted
        finally:
            for tracer in tracers:
                tracer.send_signal(signal.SIGINT)
                await tracer.wait()
        counted += [log.read_text().count("sync(") for log in logs]


async def _traced(pid: int, log: Path) -> asyncio.subprocess.Process:
    calls = "trace=fsync,fdatasync,syncfs,sync"
    return await asyncio.create_subprocess_exec(
        "strace", "-f", "-o", str(log), "-e", calls, "-p", str(pid), stderr=asyncio.subprocess.DEVNULL
    )
