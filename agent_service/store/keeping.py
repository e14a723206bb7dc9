"""How long a shared store keeps runs that have ended, each by the rule of its status. One member at a time sees to it.

    those that are to go ─▶ a fact says so, and every copy forgets them ─▶ what the log holds of them is removed

Who dies on the way leaves a fact of which not all is removed: the next one begins with that. A run that has moved on in
the meantime stays, and nothing of a run goes of which not all is done.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NoReturn

from agent_service.core.waiting import Status
from agent_service.ports import Clock
from agent_service.store.facts import VERSION, GoneFact
from agent_service.store.sql.queries import load_queries
from agent_service.store.standing_on import Copy, Log, Members
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects

GONE_AT_ONCE = 100
LOOK_S = 60.0
KEEPER = "keeper of ended runs"

log = logging.getLogger(__name__)

Rules = Mapping[Status, timedelta]
"""How long runs of a final status are kept, from their newest entry on. Others are kept for ever."""


class Keeping:
    """For one member; `database` is its copy."""

    def __init__(self, database: SqliteFile, facts: Log, copy: Copy, members: Members) -> None:
        self._database = database
        self._log = facts
        self._copy = copy
        self._members = members
        self._sql = load_queries()

    async def keep(self, rules: Rules, clock: Clock) -> NoReturn:
        """Have runs go whose time is over, for ever, as long as this is the member that sees to it."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                while self._members.mine("", KEEPER) and (gone := await self.forget(rules, clock.now())):
                    log.info("runs are kept no longer", extra={"runs": gone})
            except TryAgain as error:
                log.warning("runs whose time is over are still there", extra={"why": str(error)})

    async def forget(self, rules: Rules, now: datetime) -> int:
        """Have at most GONE_AT_ONCE runs go; returns how many were to. Raises TryAgain."""
        last = await self._log.newest(subjects.STORED_GONE)
        if last:
            await self._remove(GoneFact.model_validate_json(last.body), last.seq)
        fact = GoneFact(v=VERSION, by=self._members.me, runs=await self._over(rules, now))
        if not fact.runs:
            return 0
        try:
            position = await self._log.append(subjects.STORED_GONE, fact.encoded(), after=last.seq if last else 0)
        except Moved:  # another member sees to it
            return 0
        await self._copy.wait(position)
        await self._remove(fact, position)
        return len(fact.runs)

    async def _over(self, rules: Rules, now: datetime) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for status, kept in rules.items():
            values = status.value, microseconds(now - kept), GONE_AT_ONCE - len(found)
            for run_id, version, wake_id in await self._database.read(self._sql["ended_before"], values):
                found[run_id] = version, wake_id
        return found

    async def _remove(self, fact: GoneFact, position: int) -> None:
        """What the log holds of runs that are gone, up to the fact that says so; a later wake of the same id stays."""
        for run_id, (_, wake_id) in fact.runs.items():
            if not self._database.look_up(self._sql["version"], (run_id,)):
                await self._log.purge(subjects.stored_run(run_id))
                await self._log.purge(subjects.stored_seen(run_id))
                await self._log.purge(subjects.stored_wake(wake_id), before=position)
        ((oldest,),) = self._database.look_up(self._sql["oldest"])
        if oldest:  # what was told before is of runs that are gone
            await self._log.purge(subjects.STORED_TOLD, before=oldest)
