"""Deletes what has expired, and the oldest answers while the ledger is too large.

Open calls and answers of the last day never go: a request that comes again later than its answer is
kept is run again.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

from ductile_gateway.calls.ledger import ArtifactNames, Call
from ductile_gateway.plugins.call_folder import CallFolder, old_folders
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.carriers import OLD
from ductile_gateway.store.rows import Rows, kind_of
from ductile_gateway.webhooks.notifications import Notification
from ductile_gateway.webhooks.service import KEPT
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import instant, microseconds
from schemas.status import GatewayPruned

LOOK_S = 3600.0
ROUNDS = 5
LEAST_KEPT = timedelta(days=1)
ANSWERS, FOLDERS = "answers", "call folders"

_KINDS: Mapping[str, tuple[type[Any], ...]] = {
    ANSWERS: (Call, ArtifactNames),
    "notifications": (Notification,),
}
_ANSWERS = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'answered'"
_NTH_ANSWER = "SELECT at FROM rows WHERE kind = 'call' AND state = 'answered' ORDER BY at LIMIT 1 OFFSET ?"

log = logging.getLogger(__name__)


class Tidying:
    """Of one gateway. All methods raise TryAgain."""

    def __init__(self, rows: Rows, settings: GatewaySettings) -> None:
        self._rows = rows
        self._file = rows.carrier.file
        self._settings = settings
        self._answers = timedelta(days=settings.ledger_days)
        self._turn = asyncio.Lock()

    async def prune(self, dry_run: bool) -> GatewayPruned:
        try:
            return GatewayPruned(rows=dict(await (self.would_go() if dry_run else self.tidy())), dry_run=dry_run)
        except (TryAgain, OSError) as error:
            return GatewayPruned(rows={}, dry_run=dry_run, trouble=f"nothing more was forgotten: {error}")

    async def would_go(self) -> Mapping[str, int]:
        rows = {}
        for name, age in (await self._ages()).items():
            kind, *_ = _KINDS[name]
            rows[name] = len(await self._file.read(OLD, (kind_of(kind), microseconds(age))))
        return {**rows, FOLDERS: len(await self._folders())}

    async def tidy(self) -> Mapping[str, int]:
        async with self._turn:
            went = dict(await self.would_go())
            await self.forget()
            await self.clear()
        return went

    async def forget(self) -> None:
        for _ in range(ROUNDS):
            ages = await self._ages()
            for name, kinds in _KINDS.items():
                for kind in kinds:
                    await self._rows.forget(kind, ages[name])
            if ages[ANSWERS] <= utc_now() - self._answers:
                return

    async def clear(self) -> None:
        """What is on this machine alone: folders of calls that are over, and room that is free."""
        for folder in await self._folders():
            await asyncio.to_thread(folder.discard)
        while await self._file.shrink():
            pass

    async def keep(self) -> NoReturn:
        while True:
            try:
                await self.forget()
                await self.clear()
            except (TryAgain, OSError) as error:
                log.warning("what is kept no longer is still there", extra={"why": str(error)})
            await asyncio.sleep(LOOK_S)

    async def _folders(self) -> list[CallFolder]:
        before = utc_now() - self._answers
        return await asyncio.to_thread(old_folders, self._settings.private_folder() / "calls", before)

    async def _ages(self) -> dict[str, datetime]:
        now = utc_now()
        answers = max(now - self._answers, await self._too_much(now))
        return {ANSWERS: answers, "notifications": now - KEPT}

    async def _too_much(self, now: datetime) -> datetime:
        """Before which instant answers go because the ledger takes too much: an estimate."""
        used = await self._file.used()
        most = None if self._settings.ledger_mb is None else self._settings.ledger_mb << 20
        if most is None or used <= most:
            return now - self._answers
        ((answers,),) = await self._file.read(_ANSWERS)
        share = (used - most) / used
        rows = await self._file.read(_NTH_ANSWER, (int(answers * share) + 1,))
        return min(instant(rows[0][0]) if rows else now, now - LEAST_KEPT)
