"""Notifications that are owed to receivers, kept for a while after they are settled.

A notification belongs to the gateway that added it; one that is overdue any other claims right before it is sent.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from ductile_gateway.store.rows import Rows
from ductile_gateway.webhooks.notifications import WAITING, Notification, Outcome
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import Values, microseconds
from schemas.values import replace

OVERDUE = timedelta(seconds=30)
"""Longer than a try takes: after this time another gateway makes it."""
REMEMBERED = timedelta(days=15)
"""How long a delivery is remembered after it was made: a day longer than the bus can bring its event again."""
LONG = timedelta(minutes=5)

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


class Outbox:
    """All methods are durable on return, and raise TryAgain."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._me = rows.by

    async def add(self, notifications: Sequence[Notification]) -> None:
        """What has been added before is left out."""
        for one in notifications:
            owed = replace(one, by=self._me)
            await self._rows.change(Notification, lambda there, owed=owed: there or owed, one.target, one.key)  # type: ignore[misc] # each its own

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        """The lanes in which something is to be tried now by this gateway."""
        return [lane for (lane,) in self._rows.look_up(_LANES, self._due_by(now))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        """What is to be tried now by this gateway, the longest due first, one per run: the oldest that waits."""
        return self._listed(_DUE, (lane, *self._due_by(now), limit))

    async def claim(self, one: Notification, now: datetime) -> bool:
        """Whether it is this gateway's to send, right before that; False where another has it, or had."""

        def claimed(there: Notification) -> Notification:
            is_taken = there.by == self._me or there.at > now - OVERDUE
            return there if is_taken else replace(there, by=self._me, at=now)

        found = await self._change(one, claimed)
        return found is not None and found.state == WAITING and found.by == self._me

    async def settle(self, one: Notification, outcome: Outcome, *, at: datetime) -> None:
        await self._change(one, lambda there: replace(there, state=outcome, at=at, tries=one.tries, body=b"", url=""))

    async def postpone(self, one: Notification, due_at: datetime, *, why: str) -> None:
        """To be tried later by this gateway; nothing is changed where another has it by now."""

        def later(there: Notification) -> Notification:
            return replace(there, at=due_at, tries=one.tries, why=why) if there.by == self._me else there

        await self._change(one, later)

    def waiting(self) -> int:
        return self._number(WAITING)

    def findings(self) -> Iterator[tuple[str, str]]:
        """What is wrong, and what helps."""
        for oldest in self._listed(_OLDEST):
            if utc_now() - oldest.accepted_at > LONG:
                first = next(iter(self._listed(_FIRST_PUT_OFF)), None)
                since = f"the oldest since {oldest.accepted_at:%Y-%m-%dT%H:%M:%SZ}"
                remedy = f"see what is wrong at {first.lane}: {first.why}" if first else "see the log"
                yield f"{self.waiting()} deliveries wait, {since}", remedy
        if dead := self._number("dead"):
            yield (
                f"{dead} deliveries were given up in the last {REMEMBERED.days} days",
                "see them with `agentic dlq ls`",
            )

    async def _change(self, one: Notification, change: Callable[[Notification], Notification]) -> Notification | None:
        def of_waiting(there: Notification | None) -> Notification | None:
            return change(there) if there and there.state == WAITING else there

        return await self._rows.change(Notification, of_waiting, one.target, one.key)

    def _number(self, state: str) -> int:
        ((number,),) = self._rows.look_up(_NUMBER, (state,))
        return int(number)

    def _listed(self, statement: str, values: Values = ()) -> list[Notification]:
        return self._rows.listed(Notification, statement, values)

    def _due_by(self, now: datetime) -> Values:
        return self._me, microseconds(now), microseconds(now - OVERDUE)
