"""That the ledger was restored from a backup.

A write of a run that is older than the restore is in doubt, and a person is asked once about it. Reads are made again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from ulid import ULID

from ductile_gateway.calls.call import Answer, Asked, Intent
from ductile_gateway.ports import Ownership
from groundwork.archive.series import backup_in
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, microseconds

FILE = "restored.json"
_ASKED_BEFORE = """
SELECT 1 FROM calls
WHERE completed_at > ? AND run_id = ? AND digest = ? AND step < ? AND instr(answer, '"in_doubt"') > 0 LIMIT 1
"""


class Restored(BaseModel):
    """`backup`: its name, `taken` then; restored `at`. `moved`: a person says that nothing happened since the
    backup."""

    model_config = ConfigDict(frozen=True)

    backup: str
    taken: datetime
    at: datetime
    moved: bool = False


def read(folder: Path) -> Restored | None:
    try:
        return Restored.model_validate_json((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise Misconfigured(
            f"{folder / FILE}, which says what was restored, cannot be read: restore the backup again"
        ) from error


def note(folder: Path, restored: Restored) -> None:
    store_folder.write(folder / FILE, restored.model_dump_json())


@dataclass(frozen=True, slots=True)
class AfterRestore:
    """Fills the port Ownership, over that of this gateway; `ledger` is the one that was restored."""

    ours: Ownership
    restored: Restored
    ledger: SqliteFile

    async def held(self) -> None:
        await self.ours.held()

    def heard(self, key: str, delivered: int, at: datetime) -> None:
        self.ours.heard(key, delivered, at)

    def doubt(self, asked: Asked) -> str:
        if not self._may_have_been_done(asked):
            return self.ours.doubt(asked)
        when = f"{self.restored.taken:%Y-%m-%d %H:%M} UTC"
        return f"its run was restored from the backup of {when}, and may have done this after that, before it was lost"

    def lost(self, intent: Intent) -> str:
        """A call that was under way when the backup was made: what it left on the machine then is lost."""
        why = self.ours.lost(intent)
        if intent.asked.request.requested_at > self.restored.at:
            return why
        return f"it was under way in the backup of {self.restored.taken:%Y-%m-%d %H:%M} UTC, which was restored"

    def give_up(self, intent: Intent) -> None:
        if not backup_in(intent.by):  # a backup is nobody who comes back
            self.ours.give_up(intent)

    def sees_to(self, call: Intent | Answer) -> bool:
        return self.ours.sees_to(call)

    def _may_have_been_done(self, asked: Asked) -> bool:
        if self.restored.moved or _begun_at(asked.request.run_id) > self.restored.at:
            return False
        asked_before = microseconds(self.restored.at), asked.request.run_id, asked.digest, asked.request.step
        return not self.ledger.look_up(_ASKED_BEFORE, asked_before)


def _begun_at(run_id: str) -> datetime:
    try:
        return ULID.from_str(run_id.removeprefix("run_")).datetime
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
