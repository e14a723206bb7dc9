"""Notifications that are owed to receivers, kept for a while after they are settled.

A notification belongs to the gateway that added it; one that is overdue any other claims right before it is sent.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from ductile_gateway.store.rows import Rows
from ductile_gateway.webhooks.notifications import WAITING, Notification, Outcome
from groundwork.sqlite.file import Values, microseconds
from schemas.values import dataclass, replace

OVERDUE = timedelta(seconds=30)
"""Longer than a try takes: after this time another gateway makes it."""

_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM rows WHERE state = 'waiting') AS waiting
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.lane = waiting.lane AND at <= iif(coalesce(by, '') = ?, ?, ?))
"""
_DUE = """
SELECT subject, head, body FROM heads WHERE lane = ? AND at <= iif(coalesce(by, '') = ?, ?, ?)
ORDER BY at, position LIMIT ?
"""
_ROWS = "SELECT subject, head, body FROM rows"
_NUMBER = "SELECT count(*) FROM rows WHERE kind = 'notification' AND state = ?"
_OLDEST = f"{_ROWS} WHERE state = 'waiting' ORDER BY position LIMIT 1"
_FIRST_PUT_OFF = f"{_ROWS} WHERE state = 'waiting' AND json_extract(head, '$.why') <> '' ORDER BY position LIMIT 1"


def added(there: Notification | None, one: Notification, *, by: str) -> Notification:
    return there or replace(one, by=by)


def claimed(one: Notification | None, *, by: str, now: datetime) -> Notification | None:
    if not one or one.state != WAITING or one.by == by or one.at > now - OVERDUE:
        return one
    return replace(one, by=by, at=now)


def settled(one: Notification | None, outcome: Outcome, *, at: datetime, tries: int) -> Notification | None:
    if not one or one.state != WAITING:
        return one
    return replace(one, state=outcome, at=at, tries=tries, body=b"", url="")


def postponed(one: Notification | None, due_at: datetime, *, tries: int, why: str, by: str) -> Notification | None:
    """To be tried later by the same gateway; nothing is changed where another has it by now."""
    if not one or one.state != WAITING or one.by != by:
        return one
    return replace(one, at=due_at, tries=tries, why=why)


@dataclass(frozen=True, slots=True)
class Backlog:
    """`oldest`: since when. `lane`, `why`: of the first that met an obstacle. `dead`: given up, and still
    remembered."""

    waiting: int
    oldest: datetime | None
    lane: str
    why: str
    dead: int


class OwedNotifications:
    """All methods are durable on return, and raise TryAgain."""

    def __init__(self, rows: Rows, *, by: str) -> None:
        """`by`: this gateway."""
        self._rows = rows
        self._by = by

    async def add(self, notifications: Sequence[Notification]) -> None:
        """What has been added before is left out."""
        for one in notifications:
            await self._rows.change(Notification, partial(added, one=one, by=self._by), one.target, one.key)

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        """The lanes in which something is to be tried now by this gateway."""
        return [lane for (lane,) in self._rows.look_up(_LANES, self._due_by(now))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        """What is to be tried now by this gateway, the longest due first, one per run: the oldest that waits."""
        return self._listed(_DUE, (lane, *self._due_by(now), limit))

    async def claim(self, notification: Notification, now: datetime) -> bool:
        """Whether it is this gateway's to send, right before that; False where another has it, or had."""
        names = notification.target, notification.key
        one = await self._rows.read(Notification, *names)
        if one and one.by != self._by:
            one = await self._rows.change(Notification, partial(claimed, by=self._by, now=now), *names)
        return one is not None and one.state == WAITING and one.by == self._by

    async def settle(self, notification: Notification, outcome: Outcome, *, at: datetime) -> None:
        settling = partial(settled, outcome=outcome, at=at, tries=notification.tries)
        await self._rows.change(Notification, settling, notification.target, notification.key)

    async def postpone(self, notification: Notification, due_at: datetime, *, why: str) -> None:
        later = partial(postponed, due_at=due_at, tries=notification.tries, why=why, by=self._by)
        await self._rows.change(Notification, later, notification.target, notification.key)

    def backlog(self) -> Backlog:
        oldest = [one.accepted_at for one in self._listed(_OLDEST)]
        obstacle = [(one.lane, one.why) for one in self._listed(_FIRST_PUT_OFF)]
        return Backlog(
            self._number(WAITING),
            oldest[0] if oldest else None,
            *(obstacle or [("", "")])[0],
            self._number("dead"),
        )

    def _number(self, state: str) -> int:
        ((number,),) = self._rows.look_up(_NUMBER, (state,))
        return int(number)

    def _listed(self, statement: str, values: Values = ()) -> list[Notification]:
        return self._rows.listed(Notification, statement, values)

    def _due_by(self, now: datetime) -> Values:
        return self._by, microseconds(now), microseconds(now - OVERDUE)
