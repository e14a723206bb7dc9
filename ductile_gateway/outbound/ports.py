"""The seams of what the gateway tells others: a durable outbox, the senders, and the place for what failed.

Wherever a method may wait for disk or network it may also raise TryAgain, Broken or Misconfigured (see `errors`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from ductile_gateway.outbound.deliveries import Delivery, Verdict

Outcome = Literal["arrived", "gone", "dead"]


class Outbox(Protocol):
    """Deliveries still to be made, and for a while those that were. One gateway at a time uses it."""

    async def add(self, deliveries: Sequence[Delivery]) -> None:
        """Durable on return. What has been added before, or goes to who wants no more of its run, is left out."""

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        """The lanes in which something is to be tried now."""

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Delivery]:
        """What is to be tried now, the longest due first, one per run: the oldest that waits."""

    async def settle(self, delivery: Delivery, outcome: Outcome, *, at: datetime) -> None:
        """Durable on return. `gone` settles all that waits for the same target and run."""

    async def postpone(self, delivery: Delivery, due_at: datetime, *, why: str) -> None:
        """Keep the delivery as it is now, with the number of its tries, to be tried at `due_at`."""

    async def forget_before(self, instant: datetime) -> None:
        """Drop what was settled before."""


class Sender(Protocol):
    async def send(self, delivery: Delivery) -> Verdict:
        """Try once. The number of tries and the time between them are the caller's affair."""


class Callbacks(Protocol):
    async def of(self, run_id: str) -> str | None:
        """Where the run wants its ending sent; None where nobody knows of such a wish. Raises TryAgain for now."""


class DeadLetters(Protocol):
    async def bury(self, delivery: Delivery, why: str) -> None:
        """Durably, where people look for what failed. Burying it twice is harmless."""
