"""What this member has done, told to the others a little later, for many runs at once."""

import asyncio
from collections.abc import Awaitable, Callable

from agent_service.store.facts import VERSION, ToldFact
from agent_service.store.own_entries import OwnEntries
from agent_service.store.sqlite import TOLD_WITHIN_S
from agent_service.store.standing_on import Log
from groundwork.service.errors import TryAgain
from schemas import subjects

RUNS_AT_ONCE = 1000


class Telling:
    def __init__(self, own: OwnEntries, facts: Log, me: str, permitted: Callable[[], Awaitable[None]]) -> None:
        self._own = own
        self._log = facts
        self._me = me
        self._permitted = permitted
        self.is_due = asyncio.Event()

    async def keep(self) -> None:
        while True:
            await self.is_due.wait()
            await asyncio.sleep(TOLD_WITHIN_S)
            self.is_due.clear()
            try:
                await self.tell()
            except TryAgain:
                self.is_due.set()

    async def tell(self) -> None:
        while told := self._own.all_to_tell(RUNS_AT_ONCE):
            fact = ToldFact(v=VERSION, by=self._me, runs=told)
            try:
                await self._permitted()
                await self._log.append(subjects.STORED_TOLD, fact.encoded(), after=None)
            except BaseException:
                for run_id, some in told.items():
                    self._own.not_told(run_id, some)
                raise
