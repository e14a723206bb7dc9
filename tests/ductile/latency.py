"""What the way through gateway and bus adds to a tool call in a real Ductile: `make bench-ductile` prints it as JSON.

A call lasts from the request on the bus to the result on the bus. Of that, Ductile's own part is from its making of the
job to its end of the job, by its own clock, which is this machine's. What is left is ours.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
from nats.aio.msg import Msg

from schemas import keys, subjects
from tests.ductile.gateway_house import House, house
from tests.ductile.real import RealDuctile
from tests.gateway.parts import RUN, result_in

CALLS, AT_ONCE = 40, (1, 8)
POLLS = {"poll_first_s": 0.1, "poll_most_s": 5.0}
"""As a gateway does by itself."""


class Arrivals:
    """When the result of each call was on the bus, by the call's key."""

    def __init__(self) -> None:
        self.at: dict[str, asyncio.Future[float]] = {}

    async def take(self, message: Msg) -> None:
        result = result_in(message.data)
        self.of(keys.call(RUN, result.step, result.tool, result.attempt or 1)).set_result(time.time())

    def of(self, key: str) -> asyncio.Future[float]:
        return self.at.setdefault(key, asyncio.get_running_loop().create_future())


@asynccontextmanager
async def measured(**settings: Any) -> AsyncIterator[tuple[House, Arrivals]]:
    """A real Ductile, and a gateway at work before it with these settings."""
    with tempfile.TemporaryDirectory(prefix="latency-") as folder:
        (ductile := Path(folder, "ductile")).mkdir()
        with closing(RealDuctile(os.environ["DUCTILE_BIN"], ductile)) as real:
            async with house(Path(folder), real, **settings) as made, made.living():
                arrivals = Arrivals()
                await made.link.subscribe(subjects.TOOL_RESULT, arrivals.take)
                yield made, arrivals


async def one(made: House, arrivals: Arrivals, step: int) -> tuple[str, float]:
    """The key of a call, and how many seconds it took."""
    begun = time.time()
    key = await made.ask("look", {}, step=step)
    return key, await arrivals.of(key) - begun


def in_ductile(made: House) -> dict[str, float]:
    """How many seconds each call's job took there, from its making to its end."""
    headers = {"Authorization": f"Bearer {made.ductile.token}"}
    found = httpx2.get(f"{made.ductile.url}/jobs?limit=1000", headers=headers, trust_env=False).json()["jobs"]
    took = {job["job_id"]: _seconds(job["created_at"], job["completed_at"]) for job in found}
    return {key: took[job_id] for key, job_ids in made.jobs().items() for job_id in job_ids}


async def measure(at_once: int, *, events: bool = True) -> dict[str, Any]:
    async with measured(events=events, **POLLS) as (made, arrivals):
        took: dict[str, float] = {}
        for first in range(1, CALLS + 1, at_once):
            took |= dict(await asyncio.gather(*(one(made, arrivals, first + n) for n in range(at_once))))
        theirs = in_ductile(made)
    ours = [1000 * (took[key] - theirs[key]) for key in took]
    return {
        "calls": len(ours),
        "ours_p50_ms": round(statistics.median(ours), 1),
        "ours_p90_ms": round(statistics.quantiles(ours, n=10)[-1], 1),
        "ours_max_ms": round(max(ours), 1),
        "ductile_p50_ms": round(1000 * statistics.median(theirs.values()), 1),
    }


async def all_of_it() -> dict[str, Any]:
    figures = {f"{at_once} at a time": await measure(at_once) for at_once in AT_ONCE}
    return figures | {"1 at a time, without Ductile's events": await measure(1, events=False)}


def _seconds(begun: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(all_of_it()), indent=2))  # noqa: T201 # it is what the command is for
