"""Dead letters without a bus."""

from dataclasses import replace
from datetime import timedelta

from agent_service.views.inbox import DeadLetter, NoSuchLetter, NotSentAgain, Settled, obstacle
from groundwork.nats.publishing import StoredMessage
from schemas import subjects
from schemas.envelope import RUN_ID
from tests.kit.runs import NOON


class MemoryLetters:
    """Implements the port Letters. Raises `away` while it is set."""

    def __init__(self) -> None:
        self.letters: dict[int, DeadLetter] = {}
        self.away: Exception | None = None

    def put(self, body: bytes, *, subject: str = subjects.START, run_id: str = "", **said: str) -> int:
        """Adds a letter for a message and returns its number."""
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
