"""Entries of journals as the API shows them, and histories, read on from where an earlier reader stopped."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from agent_service.core.waiting import Status
from agent_service.history.history import History
from agent_service.history.items import Item
from agent_service.history.plain import OfRun, View
from agent_service.history.words import say
from agent_service.run.journal import Record
from agent_service.run.moments import Journals, Moment, retell

HIDDEN = "(hidden)"
REMEMBERED_RUNS = 64
MOST_ENTRIES = 1_000_000


class EntryView(View):
    """An entry of the journal. `status` and `pending_step` are the run's after it, `event` is what happened.

    `hash` is of the event as it is stored, where the address of a callback is not hidden.
    """

    seq: int
    at: datetime
    kind: str
    summary: str
    status: Status
    pending_step: int | None
    event: dict[str, Any]
    hash: str


class TimelineView(OfRun):
    """Each of the `items` is followed by its parts, else they are in the order in which they began."""

    items: tuple[Item, ...]


def timeline_view(run_id: str, history: History) -> TimelineView:
    return TimelineView(run_id=run_id, status=history.status, items=tuple(history.tree()))


def entry_view(record: Record) -> EntryView:
    entry, stands = record.entry, record.stands
    return EntryView(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        summary=say(record),
        status=stands.status,
        pending_step=stands.step or None,
        event=_shown(json.loads(entry.event)),
        hash=entry.hash,
    )


def _shown(event: dict[str, Any]) -> dict[str, Any]:
    brief = event.get("brief") or {}
    return event | {"brief": brief | {"callback": HIDDEN}} if brief.get("callback") else event


class JournalReader:
    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._histories: OrderedDict[str, History] = OrderedDict()

    async def records(self, run_id: str, after: int, limit: int) -> Sequence[Record]:
        return [entry.record() for entry in await self._journals.entries(run_id, after, limit)]

    async def moments(self, run_id: str) -> Sequence[Moment]:
        """All entries, each with the run as it was then, which only the rules tell."""
        return tuple(retell(await self._journals.entries(run_id)))

    async def history(self, run_id: str, version: int) -> History:
        """Up to the entry `version` at least."""
        history = self._histories.get(run_id) or History()
        if history.seq < version:
            history.hear(await self.records(run_id, history.seq, version - history.seq))
        self._histories[run_id] = history
        self._histories.move_to_end(run_id)
        if len(self._histories) > REMEMBERED_RUNS:
            self._histories.popitem(last=False)
        return history
