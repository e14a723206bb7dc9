"""Who may begin calls on this bus: this gateway, while its lease lasts, and nothing that another one may have begun.

What another gateway began is known to its own store, so nobody can look for it here: a write among it is in doubt, and
never simply run. A request that comes here for the first time and was delivered before is such a one, unless it was
stored when that gateway's lease was over: without it none begins a call.
"""

from datetime import datetime, timedelta

from ductile_gateway.calls.call import Answer, Asked, Intent
from groundwork.nats.lease import Lease
from groundwork.nats.lease_record import Record


class BusOwnership:
    """Fills the port Ownership. `predecessor` is the lease of who had the bus before, with another store; None for
    nobody. When it was over and when a request was stored are both by the server's clock."""

    def __init__(self, lease: Lease, predecessor: Record | None) -> None:
        self.held = lease.held
        self._predecessor = predecessor.owner if predecessor else None
        self._until = predecessor.renewed_at + timedelta(seconds=predecessor.owner.ttl_s) if predecessor else None
        self._ours: set[str] = set()
        self._inherited: set[str] = set()

    def heard(self, key: str, delivered: int, at: datetime) -> None:
        """The request of call `key`, stored `at`, was delivered for the `delivered`-th time."""
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

    def lost(self, intent: Intent) -> str:
        del intent
        return ""

    def give_up(self, intent: Intent) -> None:
        """There is nobody to wait for."""

    def sees_to(self, call: Intent | Answer) -> bool:
        del call
        return True
