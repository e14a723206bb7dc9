"""Entries of journals as the API shows them, read from where an earlier reader stopped."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.run.journal import Entry
from agent_service.run.moments import Journals, Moment, retell
from agent_service.telling.heard import Heard
from agent_service.telling.plain import View
from agent_service.telling.sayings import say
from agent_service.telling.tasks import Tasks
from schemas.fields import Instant

HIDDEN = "(hidden)"
REMEMBERED_RUNS = 64
MOST_ENTRIES = 1_000_000

T = TypeVar("T")


class EntryView(View):
    """An entry of the journal. `status` and `pending_step` are the run's after it, `event` is what happened.

    `hash` is of the event as it is stored, where the address of a callback is not hidden.
    """

    seq: int
    at: Instant
    kind: str
    summary: str
    status: Status
    pending_step: int | None
    event: dict[str, Any]
    hash: str


def entry_view(moment: Moment) -> EntryView:
    entry, pending = moment.entry, moment.after.pending
    return EntryView(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        summary=say(moment),
        status=moment.after.status,
        pending_step=pending.step if pending else None,
        event=_shown(json.loads(entry.event)),
        hash=entry.hash,
    )


def _shown(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"callback": HIDDEN} if event.get("callback") else event


def entry_views(entries: Iterable[Entry], before: RunState | None = None) -> Iterator[EntryView]:
    return map(entry_view, retell(entries, before))


class JournalReader:
    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._reached: OrderedDict[str, RunState] = OrderedDict()
        self._heard: OrderedDict[str, Heard] = OrderedDict()
        self._tasks: OrderedDict[str, Tasks] = OrderedDict()

    async def moments(self, run_id: str, after: int, limit: int) -> Sequence[Moment]:
        reached = self._reached.get(run_id)
        before = reached if reached and reached.version <= after else None
        seq = before.version if before else 0
        moments = list(retell(await self._journals.entries(run_id, seq, after - seq + limit), before))
        if moments:
            _remember(self._reached, run_id, moments[-1].after)
        return moments[after - seq :]

    async def heard(self, run_id: str) -> Heard:
        heard = self._heard.get(run_id) or Heard()
        heard.hear(await self._journals.entries(run_id, heard.seq))
        _remember(self._heard, run_id, heard)
        return heard

    async def tasks(self, run_id: str) -> Tasks:
        tasks = self._tasks.get(run_id) or Tasks()
        tasks.hear(await self.moments(run_id, tasks.seq, MOST_ENTRIES))
        _remember(self._tasks, run_id, tasks)
        return tasks


def _remember(known: OrderedDict[str, T], run_id: str, what: T) -> None:
    known[run_id] = what
    known.move_to_end(run_id)
    if len(known) > REMEMBERED_RUNS:
        known.popitem(last=False)
