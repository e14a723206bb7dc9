"""`make calls`: source files entered and Python calls made on six fixed paths.

One agent in this process over a real nats-server, with the scripted model and a SQLite store; this program plays the
tools. Each path is repeated, and the smallest figures count, because the others include timers and other work beside
it.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType

from schemas import subjects
from tests.bench.size import PACKAGES, ROOT
from tests.kit.stack import get, one_after_another, planning, post, shown, to_the_end
from tests.kit.tool_bench import READ, WRITE, Bench, bench

TIMES, WAKES = 7, 20
"""Most answers to a wake come after the first turn of its run has begun, which is not the wake's."""
SCRIPT = one_after_another(planning("look"), planning("look", again=True), planning("put"))


class Counted:
    """Counts calls into the packages while active, in every thread that starts after its creation."""

    def __init__(self) -> None:
        self._on = False
        self._ours = {package: str(ROOT / package) + "/" for package in PACKAGES}
        self.files: set[str] = set()
        self.calls = 0
        threading.setprofile(self._passes)
        sys.setprofile(self._passes)

    def _passes(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call" and frame.f_code.co_filename.startswith(tuple(self._ours.values())):
            self.files.add(frame.f_code.co_filename)
            self.calls += 1

    async def during(self, way: Callable[[], Awaitable[object]]) -> tuple[int, int]:
        self.files, self.calls, self._on = set(), 0, True
        await way()
        self._on = False
        return self.calls, len(self.files)


async def _measured(made: Bench, counted: Counted) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}

    async def go(name: str, way: Callable[[], Awaitable[object]]) -> None:
        found.setdefault(name, []).append(await counted.during(way))
        await asyncio.sleep(0.3)  # what follows a way is not the next one's

    for n in range(TIMES):
        asked = len(made.requests)

        async def started(n: int = n, asked: int = asked) -> None:
            key = f"agentic:wake:start-{n}"
            message = {"type": subjects.START, "payload": {"goal": "look", "wake_id": f"start-{n}"}, "dedupe_key": key}
            await made.publish(subjects.START, message, msg_id=key)
            await made.request(asked + 1)

        async def answered(asked: int = asked) -> None:
            await made.answer(made.requests[asked])
            await made.request(asked + 2)

        await go("start to request", started)
        run_id = made.requests[asked]["run_id"]
        await go("result to request", answered)
        await made.answer(made.requests[asked + 1])
        arguments_hash = await _hash(made, run_id)

        async def approved(run_id: str = run_id, arguments_hash: str = arguments_hash, asked: int = asked) -> None:
            body = {"decision": "approve", "arguments_hash": arguments_hash, "signal_id": "s"}
            assert (await post(made, f"/v1/runs/{run_id}/approvals", **body)).is_success
            await made.request(asked + 3)

        await go("approval to request", approved)
        await made.answer(made.requests[asked + 2])
        assert (await to_the_end(made, run_id))["state"] == "done"
        await go("GET /v1/runs/{id}", partial(get, made, f"/v1/runs/{run_id}"))
        await go("GET /v1/runs/{id}/timeline", partial(get, made, f"/v1/runs/{run_id}/timeline"))
    for n in range(WAKES):
        asked = len(made.requests)
        await go("POST /v1/wake", partial(made.wake, f"wake-{n}"))
        await made.request(asked + 1)
    return found


async def _hash(made: Bench, run_id: str) -> str:
    """Waits for the approval that the run needs and returns its hash."""
    found = await shown(made, run_id, lambda run: (run["asks"] or {}).get("arguments_hash"))
    return str(found["asks"]["arguments_hash"])


async def _main() -> None:
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder:
        async with bench(Path(folder), SCRIPT, offers=(READ, WRITE), approve={"put": "always"}) as made:
            found = await _measured(made, counted)
    sys.setprofile(None)
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: min(taken) for name, taken in found.items()}) + "\n")
        return
    sys.stdout.write(f"{'way':30}{'files':>7}{'calls':>8}\n")
    for name, taken in found.items():
        calls, files = min(taken)
        sys.stdout.write(f"{name:30}{files:>7}{calls:>8,}\n")


if __name__ == "__main__":
    asyncio.run(_main())
