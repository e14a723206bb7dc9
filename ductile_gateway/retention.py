"""Deletes expired rows and call records, and the oldest answers while the ledger is too large.

Open calls with their records and answers of the last day always stay: a request that comes again after its answer was
deleted is run again.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NoReturn

from ductile_gateway.calls.call import Call
from ductile_gateway.calls.ledger import ArtifactNames
from ductile_gateway.plugins.call_record import CallRecord, expired_records, record_name
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.rows import OLD, Rows, kind_of
from ductile_gateway.webhooks.notifications import Notification
from ductile_gateway.webhooks.outbound import REMEMBERED
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import instant, microseconds
from schemas.status import GatewayPruned
from schemas.values import dataclass

LOOK_S = 3600.0
ROUNDS = 5
LEAST_KEPT = timedelta(days=1)
_OPEN = "SELECT json_extract(head, '$.key') FROM rows WHERE kind = 'call' AND state = 'open'"
_ANSWERS = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'answered'"
_NTH_ANSWER = "SELECT at FROM rows WHERE kind = 'call' AND state = 'answered' ORDER BY at LIMIT 1 OFFSET ?"

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Retention:
    """Methods raise TryAgain."""

    rows: Rows
    settings: GatewaySettings

    def __post_init__(self) -> None:
        self._file = self.rows.carrier.file
        self._turn = asyncio.Lock()

    async def prune(self, dry_run: bool) -> GatewayPruned:
        try:
            return GatewayPruned(rows=dict(await (self.would_go() if dry_run else self.tidy())), dry_run=dry_run)
        except (TryAgain, OSError) as error:
            return GatewayPruned(rows={}, dry_run=dry_run, trouble=f"nothing more was forgotten: {error}")

    async def would_go(self) -> Mapping[str, int]:
        answers, notifications = await self._answers_before(), utc_now() - REMEMBERED
        old = {"answers": (Call, answers), "notifications": (Notification, notifications)}
        rows = {
            name: len(await self._file.read(OLD, (kind_of(kind), microseconds(before))))
            for name, (kind, before) in old.items()
        }
        return rows | {"call folders": len(await self._records())}

    async def tidy(self) -> Mapping[str, int]:
        async with self._turn:
            went = await self.would_go()
            for _ in range(ROUNDS):
                before = await self._answers_before()
                await self.rows.carrier.forget(Call, before)
                if before <= self._kept_since():
                    break
            await self.rows.carrier.forget(ArtifactNames, self._kept_since())
            await self.rows.carrier.forget(Notification, utc_now() - REMEMBERED)
            for record in await self._records():
                await asyncio.to_thread(record.discard)
            while await self._file.shrink():
                pass
        return went

    async def keep(self) -> NoReturn:
        while True:
            try:
                await self.tidy()
            except (TryAgain, OSError) as error:
                log.warning("expired rows could not be deleted", extra={"why": str(error)})
            await asyncio.sleep(LOOK_S)

    def _kept_since(self) -> datetime:
        return utc_now() - timedelta(days=self.settings.ledger_days)

    async def _records(self) -> list[CallRecord]:
        needed = {record_name(key) for (key,) in await self._file.read(_OPEN)}
        folder, before = self.settings.private_folder() / "calls", self._kept_since()
        return await asyncio.to_thread(expired_records, folder, before, but=needed)

    async def _answers_before(self) -> datetime:
        """Age limit of answers; estimated from the size of the ledger if that is too large."""
        since, most, used = self._kept_since(), self.settings.ledger_mb, await self._file.used()
        if most is None or used <= most << 20:
            return since
        ((answers,),) = await self._file.read(_ANSWERS)
        share = (used - (most << 20)) / used
        rows = await self._file.read(_NTH_ANSWER, (int(answers * share) + 1,))
        return max(since, min(instant(rows[0][0]) if rows else utc_now(), utc_now() - LEAST_KEPT))
