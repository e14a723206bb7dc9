"""Where a ledger comes from, and whether gateways may begin on it: a row of it. And how its rows come out of a backup
into the stream of several gateways.

    coming ─▶ here ─▶ left

Each step is said before the next, so that the same command finishes a restore. Open calls belong to the backup, which
never comes back, so the gateways adopt them. A write of a run that is older than the restore is in doubt, and a person
is asked once about it. Reads are made again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby

from ulid import ULID

from ductile_gateway.calls.call import Asked, Intent
from ductile_gateway.store.calls import EPOCH, OPEN
from ductile_gateway.store.carriers import fact_of
from ductile_gateway.store.rows import Rows, columns_of
from ductile_gateway.webhooks.notifications import WAITING
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas.values import dataclass, replace

TOGETHER = 64
_ROWS = "SELECT kind, subject, head, body FROM rows WHERE kind <> 'mark' ORDER BY kind = 'notification', position"
_ASKED_BEFORE = """
SELECT 1 FROM rows
WHERE kind = 'call' AND state = 'answered' AND at > ? AND run_id = ?
    AND json_extract(head, '$.digest') = ? AND json_extract(head, '$.step') < ? AND instr(body, CAST(? AS BLOB)) > 0
LIMIT 1
"""
_IN_DOUBT = '"in_doubt"'


@dataclass(frozen=True, slots=True)
class Mark:
    """`state`: coming, here or left. Of a ledger that was restored the `backup`, when it was `taken`, and until when
    anything may have been done that it does not know (`at`). `moved`: a person says that nothing happened since."""

    state: str = "here"
    backup: str = ""
    taken: datetime = EPOCH
    at: datetime = EPOCH
    moved: bool = False
    body: bytes = b""

    def check(self, place: str, *, anew: str) -> None:
        """Raises Misconfigured where no gateway may begin."""
        if self.state == "left":
            raise Misconfigured(
                f"the ledger of {place} was backed up to be moved: set gateway.store to where it was restored; or, if "
                f"it was restored nowhere, {anew}"
            )
        if self.state == "coming":
            raise Misconfigured(
                f"the ledger of {place} is being restored, and that was not finished: run `ductile-gateway restore "
                f"FILE --backup {self.backup}` again; or {anew}"
            )


async def mark_of(rows: Rows) -> Mark:
    return await rows.read(Mark) or Mark()


async def put_mark(rows: Rows, mark: Mark, *, before: Mark) -> None:
    """In place of the mark before. Raises Misconfigured where another has moved it meanwhile."""

    def instead(there: Mark | None) -> Mark:
        found = there or Mark()
        if found not in (mark, before):
            raise Misconfigured(f"another command moves the ledger: it is {found.state} now. Try again once it ended")
        return mark

    await rows.change(Mark, instead)


@asynccontextmanager
async def left(rows: Rows) -> AsyncIterator[None]:
    """Inside, and afterwards unless it fails, no gateway begins on it."""
    before = await mark_of(rows)
    mark = replace(before, state="left")
    await put_mark(rows, mark, before=before)
    try:
        yield
    except BaseException:
        await put_mark(rows, before, before=mark)
        raise


async def bring(log: SharedLog, file: SqliteFile, *, owner: str) -> None:
    """All rows of a file but its mark. `owner`: of what is under way. What is there already stays; raises Misconfigured
    where it is not as it was, and TryAgain."""
    for is_owed, some in groupby(await file.read(_ROWS), key=lambda row: row[0] == "notification"):
        rows, size = list(some), 1 if is_owed else TOGETHER  # notifications have an order
        for at in range(0, len(rows), size):
            await asyncio.gather(*(_bring(log, *row[1:], owner=owner) for row in rows[at : at + size]))


async def _bring(log: SharedLog, subject: str, head: str, body: bytes, *, owner: str) -> None:
    columns = columns_of(head)
    if columns.get("state") in (OPEN, WAITING):
        columns["by"] = owner
    fact, there = fact_of(columns, body), await log.newest(subject)
    if there is None:
        with contextlib.suppress(Moved):
            await log.append(subject, fact, after=0)
        there = await log.newest(subject)
    if there is None or there.body != fact:
        raise Misconfigured(f"{subject} is in the stream, but not as it was: somebody else writes there")


class AfterRestore:
    """`ledger` has the rows that were restored."""

    def __init__(self, restored: Mark, ledger: SqliteFile) -> None:
        self._restored = restored
        self._ledger = ledger
        self._taken = f"{restored.taken:%Y-%m-%d %H:%M} UTC"

    def doubt(self, asked: Asked) -> str:
        """Why a call that is new may have been made in the time that was lost; empty where it cannot."""
        request, at = asked.request, self._restored.at
        same = microseconds(at), request.run_id, asked.digest, request.step, _IN_DOUBT
        if self._restored.moved or _begun_at(request.run_id) > at:
            return ""
        if self._ledger.look_up(_ASKED_BEFORE, same):
            return ""
        backup = f"its run was restored from the backup of {self._taken}"
        return f"{backup}, and may have done this after that, before it was lost"

    def lost(self, intent: Intent) -> str:
        """A call that was under way when the backup was made: what it left on the machine then is lost."""
        if intent.asked.request.requested_at > self._restored.at:
            return ""
        return f"it was under way in the backup of {self._taken}, which was restored"


def _begun_at(run_id: str) -> datetime:
    try:
        return ULID.from_str(run_id.removeprefix("run_")).datetime
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
