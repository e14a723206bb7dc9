"""Who may begin calls on this bus: the gateway that holds it alone, or each of several while its own lease lasts.

A write that an earlier gateway with another store may have begun is in doubt, and never simply run. Of several
gateways, each keeps what it began for as long as it is a member; then it is adopted by the one that its request comes
to, or by its heir. What only the gone gateway can find waits a moment more: it may just be starting again.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from ductile_gateway.calls.call import Answer, Asked, Intent
from ductile_gateway.ports import Ownership
from groundwork.nats.leases.lease import Lease, Record
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic


class BusOwnership(Ownership):
    """`predecessor`: the lease of an owner with another store, by the server's clock."""

    def __init__(self, lease: Lease, predecessor: Record | None) -> None:
        self._lease = lease
        self._predecessor = predecessor.owner if predecessor else None
        self._until = predecessor.renewed_at + timedelta(seconds=predecessor.owner.ttl_s) if predecessor else None
        self._ours: set[str] = set()
        self._inherited: set[str] = set()

    async def held(self) -> None:
        await self._lease.held()

    def heard(self, key: str, delivered: int, at: datetime) -> None:
        if self._until is None or at > self._until:
            return
        if delivered == 1:
            self._ours.add(key)
        elif key not in self._ours:
            self._inherited.add(key)

    def doubt(self, asked: Asked) -> str:
        if asked.key not in self._inherited:
            return ""
        return f"the gateway that had this bus before may have begun it ({self._predecessor})"


COME_BACK_S = 1.0
BACK_WITHIN_S = 15.0
"""Of a gateway that is gone: it is started again by then, or not at all."""
NOBODY = ""
"""Of a call that was never sent in the end: anybody may."""


class Members(Protocol):
    """Those of the bus; `me` is this one, `live` all that may act."""

    me: str

    @property
    def live(self) -> frozenset[str]: ...

    def heir(self, key: str) -> str:
        """Which of the living sees to what has this key and no owner."""

    def mine(self, owner: str, key: str) -> bool:
        """Whether `owner` is this one, or is gone and this one is the heir of `key`."""


class AmongOthers(Ownership):
    """`held` is that of this gateway's own lease. What was delivered before is in the ledger, as far as it was
    begun."""

    def __init__(self, members: Members, lease: Lease, *, clock: Callable[[], float] = monotonic) -> None:
        self._members = members
        self._lease = lease
        self._clock = clock
        self._missed_since: dict[str, float] = {}

    async def held(self) -> None:
        await self._lease.held()

    def lost(self, intent: Intent) -> str:
        if intent.by in (self._members.me, NOBODY):
            return ""
        if intent.by in self._members.live:
            self._missed_since.pop(intent.by, None)
            raise TryAgain(f"another gateway carries it out ({intent.by})", COME_BACK_S)
        return f"the gateway that began it is gone ({intent.by})"

    def give_up(self, intent: Intent) -> None:
        now = self._clock()
        if now - self._missed_since.setdefault(intent.by, now) < BACK_WITHIN_S:
            raise TryAgain(f"the gateway that began it is gone, and may be back soon ({intent.by})", COME_BACK_S)

    def sees_to(self, call: Intent | Answer) -> bool:
        return self._members.mine(call.by, call.key)
