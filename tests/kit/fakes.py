"""Fakes of the ports, for tests of what stands on them. Each passes the conformance suite of its port."""

from dataclasses import replace
from datetime import datetime, timedelta

from groundwork.service import machine
from schemas.status import Halt
from tests.kit.runs import NOON, run_id


class FakeClock:
    """Stands still until it is advanced; run ids count up. Fills the port Clock."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._runs = 0

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def rule(self) -> None:
        """This context, and the tasks that are started in it, go by it from now on."""
        machine.use(replace(machine.this(), wall=self.now))

    def new_run_id(self) -> str:
        self._runs += 1
        return run_id(self._runs)


def still(now: datetime = NOON) -> FakeClock:
    """The clock that this context, and the tasks that are started in it, go by from now on."""
    clock = FakeClock(now)
    clock.rule()
    return clock


class MemoryArtifacts:
    """Contents in a dict, by run and path. Fills the port ArtifactStore."""

    def __init__(self) -> None:
        self.contents: dict[tuple[str, str], bytes] = {}

    async def get(self, run_id: str, path: str) -> bytes | None:
        return self.contents.get((run_id, path))

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        self.contents[run_id, path] = content

    async def remove(self, run_id: str, path: str) -> None:
        self.contents.pop((run_id, path), None)

    async def sizes(self) -> dict[str, int]:
        runs = {run_id for run_id, _ in self.contents}
        return {run: sum(len(c) for (of, _), c in self.contents.items() if of == run) for run in runs}


class MemoryBoard:
    """Fills the port HaltBoard."""

    def __init__(self) -> None:
        self.halt: Halt | None = None

    async def show(self, halt: Halt) -> None:
        self.halt = halt

    async def shown(self) -> Halt | None:
        return self.halt
