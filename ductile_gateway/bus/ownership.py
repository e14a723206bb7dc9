"""Who may go on with a call: the only gateway of the bus, or of several the one that its row names.

A row of another gateway is taken up once that one has left, or its lease has lapsed and was taken from it, so that it
does nothing more. What only that machine can find waits a moment longer: it may just be starting again. A write that a
gateway with another store, or a time that was lost, may have begun is in doubt.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Protocol

from ductile_gateway.bus.prerequisites import ROLE
from ductile_gateway.calls.call import ALONE, Asked, Intent
from groundwork.archive.series import backup_in
from groundwork.nats.leases.lease import Lease, Record, look
from groundwork.nats.leases.members import member_role
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic
from schemas.values import replace

COME_BACK_S = 1.0
BACK_WITHIN_S = 15.0
"""Of a gateway that is gone: it is started again by then, or not at all."""


class RestoredCalls(Protocol):
    def doubt(self, asked: Asked) -> str: ...

    def lost(self, intent: Intent) -> str: ...


class BusOwnership:
    """Fills the port Ownership. `link`, `me`: of several gateways. `predecessor`: the lease of an owner with another
    store, by the server's clock. `restored`: what a backup did not know."""

    def __init__(
        self,
        lease: Lease,
        predecessor: Record | None = None,
        *,
        link: NatsLink | None = None,
        me: str = ALONE,
        restored: RestoredCalls | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lease = lease
        self._link = link
        self._me = me
        self._restored = restored
        self._clock = clock
        self._predecessor = predecessor.owner if predecessor else None
        self._until = predecessor.renewed_at + timedelta(seconds=predecessor.owner.ttl_s) if predecessor else None
        self._ours: set[str] = set()
        self._inherited: set[str] = set()
        self._missed_since: dict[str, float] = {}

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
        if self._restored and (why := self._restored.doubt(asked)):
            return why
        if asked.key not in self._inherited:
            return ""
        return f"the gateway that had this bus before may have begun it ({self._predecessor})"

    async def lost(self, intent: Intent, *, anywhere: bool) -> str:
        by, why = intent.by, ""
        if self._link and by not in (self._me, ALONE):
            if not await has_left(self._link, by):
                self._missed_since.pop(by, None)
                raise TryAgain(f"another gateway carries it out ({by})", COME_BACK_S)
            if not anywhere and not backup_in(by):  # a backup does not come back
                self._wait_for(by)
            why = f"the gateway that began it is gone ({by})"
        return (self._restored.lost(intent) if self._restored else "") or why

    def _wait_for(self, gateway: str) -> None:
        now = self._clock()
        if now - self._missed_since.setdefault(gateway, now) < BACK_WITHIN_S:
            raise TryAgain(f"the gateway that began it is gone, and may be back soon ({gateway})", COME_BACK_S)


async def has_left(link: NatsLink, gateway: str) -> bool:
    """Whether it does nothing more: it said so, or its lease had lapsed and is taken from it. Raises TryAgain."""
    role = member_role(ROLE, gateway)
    record = await look(link, role)
    if record is None or record.owner.released:
        return True
    if not record.free:
        return False
    ended = replace(record.owner, epoch=record.owner.epoch + 1, released=True)
    try:
        await link.swap(role.subject, json.dumps(asdict(ended)).encode(), after=record.seq)
    except Refused:
        return False
    return True
