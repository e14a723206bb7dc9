"""Claims on a limit that the journal does not show yet: one compare-and-swap value per limit.

Journal entries inform every process of a claim, a little late. No clocks are compared: each process ignores a claim
that it has seen for a while.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from groundwork.service.machine import monotonic, token_hex
from schemas.values import dataclass

JOURNALED_WITHIN_S = 2.0
"""A claim older than this is in an entry, or was given up."""
PAUSE_S = 0.05

Amounts = Mapping[str, float]


class ClaimStore(Protocol):
    async def look(self, limit: str) -> tuple[Amounts, int]:
        """Claimed amounts by name, and the value's sequence. Raises TryAgain."""

    async def swap(self, limit: str, taken: Amounts, after: int) -> bool:
        """False if another process has changed the value since. Raises TryAgain."""


@dataclass(slots=True, eq=False)
class Claims:
    """`values`: None for a single process, whose claims all succeed."""

    values: ClaimStore | None = None
    _me: str = field(init=False, default_factory=lambda: token_hex(6))
    _number: int = field(init=False, default=0)
    _seen: dict[str, float] = field(init=False, default_factory=dict)
    """First sight of each claim, by name."""

    async def claim(self, limit: str, amount: float, left: Callable[[], float]) -> None:
        """Returns once `amount` is claimed. `left` is asked before each try; it may raise."""
        while not await self.try_claim(limit, amount, left=left()):  # noqa: ASYNC110 - other processes give it up
            await asyncio.sleep(PAUSE_S)

    async def try_claim(self, limit: str, amount: float, *, left: float) -> bool:
        """False if too little is `left`, by all known entries and the own claims."""
        if self.values is None:
            return True
        while True:
            known, seq = await self.values.look(limit)
            late = self._late(known)
            others = sum(taken for name, taken in late.items() if not name.startswith(self._me))
            if amount + others > left:
                return False
            self._number += 1
            if await self.values.swap(limit, {**late, f"{self._me}.{self._number}": amount}, seq):
                return True

    def _late(self, known: Amounts) -> Amounts:
        now = monotonic()
        self._seen = {name: since for name, since in self._seen.items() if now - since < 2 * JOURNALED_WITHIN_S}
        return {
            name: taken for name, taken in known.items() if now - self._seen.setdefault(name, now) < JOURNALED_WITHIN_S
        }


LOCAL = Claims()
