"""Fakes of the ports. Each passes the conformance suite of its port."""

from dataclasses import replace
from datetime import datetime, timedelta

from agent_service.views.inbox import DeadLetter, NoSuchLetter, NotSentAgain, Settled, obstacle
from groundwork.nats.publishing import StoredMessage
from groundwork.service import machine
from schemas import subjects
from schemas.envelope import RUN_ID
from tests.kit.runs import NOON, run_id


class FakeClock:
    """Stands still until advanced; run ids count up. Implements the port Clock."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._runs = 0

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def rule(self) -> None:
        """Makes this context, and tasks started in it, use the clock."""
        machine.use(replace(machine.this(), wall=self.now))

    def new_run_id(self, at: datetime) -> str:
        del at
        self._runs += 1
        return run_id(self._runs)


def still(now: datetime) -> FakeClock:
    """Makes this context, and tasks started in it, use a stopped clock, and returns it."""
    clock = FakeClock(now)
    clock.rule()
    return clock


class MemoryArtifacts:
    """Implements the port RunArtifacts."""

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


class MemoryLetters:
    """Implements the port Letters. Raises `away` while it is set."""

    def __init__(self) -> None:
        self.letters: dict[int, DeadLetter] = {}
        self.away: Exception | None = None

    def put(self, body: bytes, *, subject: str = subjects.START, run_id: str = "", **said: str) -> int:
        number = len(self.letters) + 1
        headers = {"Dead-Letter-Subject": subject} | {f"Dead-Letter-{name}": text for name, text in said.items()}
        headers |= {RUN_ID: run_id} if run_id else {}
        at = NOON + timedelta(minutes=number)
        self.letters[number] = DeadLetter(id=number, buried=at, headers=headers, size=len(body), body=body)
        return number

    async def all(self) -> list[DeadLetter]:
        if self.away:
            raise self.away
        return list(self.letters.values())

    async def refused(self, letter: DeadLetter) -> StoredMessage | None:
        return StoredMessage(letter.subject, letter.body, letter.headers)

    async def retry(self, number: int, by: str) -> None:
        if why := obstacle(self._held(number)):
            raise NotSentAgain(f"dead letter {number} cannot be sent again: {why}")
        self._settle(number, "retried", by)

    async def drop(self, number: int, by: str) -> None:
        self._settle(number, "dropped", by)

    def _held(self, number: int) -> DeadLetter:
        if number not in self.letters:
            raise NoSuchLetter(f"there is no dead letter {number}")
        return self.letters[number]

    def _settle(self, number: int, deed: str, by: str) -> None:
        settled = Settled(deed=deed, by=by, at=NOON)
        self.letters[number] = replace(self._held(number), settled=settled)
