"""That the ledger was restored from a backup: a row of it.

A write of a run that is older than the restore is in doubt, and a person is asked once about it. Reads are made again.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from ulid import ULID

from ductile_gateway.calls.call import Asked, Intent
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


class AfterRestore:
    """`ledger` has the rows that were restored."""

    def __init__(self, restored: Restored, ledger: SqliteFile) -> None:
        self.restored = restored
        self.ledger = ledger
        self._taken = f"{instant(restored.taken):%Y-%m-%d %H:%M} UTC"

    def doubt(self, asked: Asked) -> str:
        """Why a call that is new may have been made in the time that was lost; empty where it cannot."""
        if not self._may_have_been_done(asked):
            return ""
        return (
            f"its run was restored from the backup of {self._taken}, and may have done this after that, before it was "
            "lost"
        )

    def lost(self, intent: Intent) -> str:
        """A call that was under way when the backup was made: what it left on the machine then is lost."""
        if microseconds(intent.asked.request.requested_at) > self.restored.at:
            return ""
        return f"it was under way in the backup of {self._taken}, which was restored"

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
