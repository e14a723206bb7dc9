"""That the ledger was restored from a backup: a row of it.

A write of a run that is older than the restore is in doubt, and a person is asked once about it. Reads are made again.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from ulid import ULID

from ductile_gateway.calls.call import Answer, Asked, Intent
from ductile_gateway.ports import Ownership
from groundwork.archive.series import backup_in
from groundwork.sqlite.file import SqliteFile, instant, microseconds

_ASKED_BEFORE = """
SELECT 1 FROM rows
WHERE kind = 'call' AND state IN ('answered', 'published') AND at > ? AND run_id = ?
    AND json_extract(head, '$.digest') = ? AND json_extract(head, '$.step') < ? AND instr(body, CAST(? AS BLOB)) > 0
LIMIT 1
"""
_IN_DOUBT = '"in_doubt"'


class Restored(NamedTuple):
    """`backup`: its name, `taken` then; restored `at`; both in microseconds since 1970 UTC. `moved`: a person says that
    nothing happened since the backup."""

    backup: str
    taken: int
    at: int
    moved: bool = False
    body: bytes = b""

    @classmethod
    def of(cls, backup: str, *, taken: datetime, at: datetime, moved: bool = False) -> "Restored":
        return cls(backup=backup, taken=microseconds(taken), at=microseconds(at), moved=moved)


class AfterRestore(Ownership):
    """Over that of this gateway; `ledger` has the rows that were restored."""

    def __init__(self, ours: Ownership, restored: Restored, ledger: SqliteFile) -> None:
        self.ours = ours
        self.restored = restored
        self.ledger = ledger

    async def held(self) -> None:
        await self.ours.held()

    def heard(self, key: str, delivered: int, at: datetime) -> None:
        self.ours.heard(key, delivered, at)

    def doubt(self, asked: Asked) -> str:
        if not self._may_have_been_done(asked):
            return self.ours.doubt(asked)
        taken = f"{instant(self.restored.taken):%Y-%m-%d %H:%M} UTC"
        return f"its run was restored from the backup of {taken}, and may have done this after that, before it was lost"

    def lost(self, intent: Intent) -> str:
        """A call that was under way when the backup was made: what it left on the machine then is lost."""
        why = self.ours.lost(intent)
        if microseconds(intent.asked.request.requested_at) > self.restored.at:
            return why
        taken = f"{instant(self.restored.taken):%Y-%m-%d %H:%M} UTC"
        return f"it was under way in the backup of {taken}, which was restored"

    def give_up(self, intent: Intent) -> None:
        if not backup_in(intent.by):  # a backup is nobody who comes back
            self.ours.give_up(intent)

    def sees_to(self, call: Intent | Answer) -> bool:
        return self.ours.sees_to(call)

    def _may_have_been_done(self, asked: Asked) -> bool:
        request, at = asked.request, self.restored.at
        if self.restored.moved or microseconds(_begun_at(request.run_id)) > at:
            return False
        return not self.ledger.look_up(_ASKED_BEFORE, (at, request.run_id, asked.digest, request.step, _IN_DOUBT))


def _begun_at(run_id: str) -> datetime:
    try:
        return ULID.from_str(run_id.removeprefix("run_")).datetime
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
