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
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    """Counts calls into the packages on a way, in every thread that starts after its creation."""

    def __init__(self) -> None:
        self.found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._on = False
        self._ours = tuple(f"{ROOT / package}/" for package in PACKAGES)
        self._files: set[str] = set()
        self._calls = 0
        threading.setprofile(self._passes)
        sys.setprofile(self._passes)

    def _passes(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call" and frame.f_code.co_filename.startswith(self._ours):
            self._files.add(frame.f_code.co_filename)
            self._calls += 1

    @asynccontextmanager
    async def during(self, way: str) -> AsyncIterator[None]:
        self._files, self._calls, self._on = set(), 0, True
        yield
        self._on = False
        self.found[way].append((self._calls, len(self._files)))
        await asyncio.sleep(0.3)  # what follows a way is not the next one's


async def _measure(made: Bench, counted: Counted) -> None:
    for n in range(TIMES):
        asked, key = len(made.requests), f"agentic:wake:start-{n}"
        message = {"type": subjects.START, "payload": {"goal": "look", "wake_id": f"start-{n}"}, "dedupe_key": key}
        async with counted.during("start to request"):
            await made.publish(subjects.START, message, msg_id=key)
            await made.request(asked + 1)
        run_id = made.requests[asked]["run_id"]
        async with counted.during("result to request"):
            await made.answer(made.requests[asked])
            await made.request(asked + 2)
        await made.answer(made.requests[asked + 1])
        body = {"decision": "approve", "arguments_hash": await _hash(made, run_id), "signal_id": "s"}
        async with counted.during("approval to request"):
            assert (await post(made, f"/v1/runs/{run_id}/approvals", **body)).is_success
            await made.request(asked + 3)
        await made.answer(made.requests[asked + 2])
        assert (await to_the_end(made, run_id))["state"] == "done"
        for view in ("", "/timeline"):
            async with counted.during(f"GET /v1/runs/{{id}}{view}"):
                await get(made, f"/v1/runs/{run_id}{view}")
    for n in range(WAKES):
        asked = len(made.requests)
        async with counted.during("POST /v1/wake"):
            await made.wake(f"wake-{n}")
        await made.request(asked + 1)


async def _hash(made: Bench, run_id: str) -> str:
    """Waits for the approval that the run needs and returns its hash."""
    found = await shown(made, run_id, lambda run: (run["asks"] or {}).get("arguments_hash"))
    return str(found["asks"]["arguments_hash"])


async def _main() -> None:
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder:
        async with bench(Path(folder), SCRIPT, offers=(READ, WRITE), approve={"put": "always"}) as made:
            await _measure(made, counted)
    sys.setprofile(None)
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: min(taken) for name, taken in counted.found.items()}) + "\n")
        return
    sys.stdout.write(f"{'way':30}{'files':>7}{'calls':>8}\n")
    for name, taken in counted.found.items():
        calls, files = min(taken)
        sys.stdout.write(f"{name:30}{files:>7}{calls:>8,}\n")


if __name__ == "__main__":
    asyncio.run(_main())
