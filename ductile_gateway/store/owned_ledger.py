"""The ledger of a gateway that owns its bus: no call is begun unless that is sure. Fills the port Ledger.

What came of a call is written down also while the bus is away, for it leaves only when the lease is held again; and not
at all once another gateway has the bus.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime

from ductile_gateway.calls.entries import Answer, Intent, Past
from ductile_gateway.errors import TryAgain
from ductile_gateway.ports import Ledger
from groundwork.nats.lease import Lease


class OwnedLedger:
    """Raises TryAgain while nobody can say who owns the bus, and Misconfigured once another does."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self._ledger = ledger
        self._lease = lease

    async def intend(self, intent: Intent) -> None:
        await self._lease.held()
        await self._ledger.intend(intent)

    def intend_soon(self, intent: Intent) -> None:
        self._ledger.intend_soon(intent)

    async def answer(self, answer: Answer) -> None:
        with contextlib.suppress(TryAgain):
            await self._lease.held()
        await self._ledger.answer(answer)

    async def find(self, key: str) -> Past:
        return await self._ledger.find(key)

    def published(self, key: str) -> None:
        self._ledger.published(key)

    async def name_artifacts(
        self, run_id: str, key: str, candidates: Sequence[Sequence[str]], digests: Sequence[str]
    ) -> tuple[str, ...]:
        return await self._ledger.name_artifacts(run_id, key, candidates, digests)

    async def digest_of(self, run_id: str, name: str) -> str | None:
        return await self._ledger.digest_of(run_id, name)

    async def open_intents(self) -> Sequence[Intent]:
        return await self._ledger.open_intents()

    async def answers_to_publish(self, since: datetime) -> Sequence[Answer]:
        return await self._ledger.answers_to_publish(since)

    async def forget_before(self, instant: datetime) -> None:
        await self._ledger.forget_before(instant)
