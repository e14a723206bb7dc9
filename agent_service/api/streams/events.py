"""The event streams of the HTTP API (server-sent events): of one run, and of all runs.

`Last-Event-ID` resumes after that event; a reader that has seen the end of its run gets 204, which tells a browser not
to come back (HTML standard, server-sent events). A reader that is too slow is disconnected (see `door`).
"""

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.responses import StreamingResponse

from agent_service.api.refusals import Refusal, SeenToTheEnd, present
from agent_service.api.streams.channel import Channel, Source, Stretch
from agent_service.api.streams.feed import Feed
from agent_service.core.state import RunState
from agent_service.errors import Damaged
from agent_service.history.plain import View
from agent_service.run.lines import RunLine, line_of
from agent_service.run.moments import Moment
from agent_service.run.ports import Archive, Place, RunStore
from agent_service.views.entries import EntryView, JournalReader, entry_view
from groundwork.service.errors import TryAgain
from groundwork.service.invisible import json_visible

MOST_STREAMS = 700
MOST_STREAMS_OF_A_CALLER = 600
RETRY_AFTER_S = 5.0
SIGN_OF_LIFE = b": still here\n\n"
LAST_EVENT_ID = "Last-Event-ID"

_NUMBER = re.compile(r"[0-9]{1,15}")

log = logging.getLogger(__name__)


class RunEvent(View):
    """An event of all runs: an entry, its position in the journal of all runs, and how its run stands after it."""

    position: int
    run: RunLine
    entry: EntryView


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


class Slots:
    def __init__(self, most: int = MOST_STREAMS, of_a_caller: int = MOST_STREAMS_OF_A_CALLER) -> None:
        self._most = most
        self._of_a_caller = of_a_caller
        self._open: Counter[str] = Counter()

    async def take(self, request: Request) -> AsyncIterator[None]:
        """A dependency that holds one slot while the response lasts. Refuses with 429."""
        caller = request.state.caller
        if self._open.total() >= self._most or self._open[caller] >= self._of_a_caller:
            message = f"{self._open[caller]} event streams are open for this token: close one, or come back later"
            raise Refusal(429, "too_many_streams", message, retry_after_s=RETRY_AFTER_S)
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1


def last_event_id(
    sent: Annotated[str | None, Header(alias=LAST_EVENT_ID, description="The `id` of the last event seen.")] = None,
) -> int | None:
    """The number of the last event that the reader has seen. Refuses (422) what is no such number."""
    if not sent:
        return None
    if not _NUMBER.fullmatch(sent):
        raise _not_of_here("must be the id of an event of this stream")
    return int(sent)


LastEventId = Annotated[int | None, Depends(last_event_id)]


class EventStreams:
    """Their docstrings are the API's documentation."""

    def __init__(self, feed: Feed, store: RunStore, archive: Archive) -> None:
        self.slots = Slots()
        self._feed = feed
        self._store = store
        self._archive = archive
        self._reader = JournalReader(archive)

    async def can_follow_run(self, run_id: str, seen: LastEventId) -> None:
        """Refuse what cannot be followed, while there still is a status to say it with."""
        run = await self.state(run_id)
        if (seen or 0) > run.version:
            raise _not_of_here(f"the run has only {run.version} entries")
        if run.final and seen == run.version:
            raise SeenToTheEnd

    async def follow_run(self, run_id: str, seen: LastEventId) -> EventStream:
        """Follow a run: its entries as they come, one event each, until it ends.

        `id` is the entry's number, `event` its kind, `data` the entry as in `/entries`. `Last-Event-ID` goes on after
        that entry. Whoever has seen the end already is answered with 204.
        """
        return _stream(self.followed(run_id), seen or 0, ends=True)

    def followed(self, run_id: str) -> AbstractContextManager[Channel]:
        """The channel of a run, inside the context. Raises TryAgain."""
        newest, read = partial(self._archive.version, run_id), partial(self._of_run, run_id)
        return self._feed.follow_run(run_id, Source(newest=newest, encode=_entry_frame, read=read))

    async def can_follow_all(self, seen: LastEventId) -> None:
        if (seen or 0) > (newest := self._archive.newest()):
            raise _not_of_here(f"the journal of all runs ends at {newest}")

    async def follow_all(self, seen: LastEventId) -> EventStream:
        """Follow all runs: their entries as they are stored, one event each, for as long as you like.

        `id` is the entry's position in the journal of all runs, `event` its kind; `data` has that position, the run as
        in the list of runs, and the entry as in its `/entries`. `Last-Event-ID` goes on after that position; without
        it, the stream begins now.
        """
        source = Source(newest=self._archive.newest, encode=_run_frame, read=self._of_all)
        after = self._archive.newest() if seen is None else seen
        return _stream(self._feed.follow_all(source), after, ends=False)

    async def state(self, run_id: str) -> RunState:
        """How the run stands. Refuses (404) an id of no run."""
        return (await present(self._store, run_id)).state

    async def _of_run(self, run_id: str, after: int, limit: int) -> Stretch:
        moments = [(moment.entry.seq, moment) for moment in await self._read(run_id, after, limit)]
        return Stretch(moments[-1][0] if moments else after, moments)

    async def _of_all(self, after: int, limit: int) -> Stretch:
        places = sorted(self._archive.places(after, limit), key=attrgetter("run_id", "seq"))
        moments: dict[int, Moment] = {}
        for run_id, group in groupby(places, key=attrgetter("run_id")):
            moments |= await self._at(run_id, list(group))
        return Stretch(max((place.position for place in places), default=after), sorted(moments.items()))

    async def _read(self, run_id: str, after: int, limit: int) -> Sequence[Moment]:
        moments = await self._reader.moments(run_id, after, limit)
        if moments:
            self._feed.reached(moments[-1].after)
        return moments

    async def _at(self, run_id: str, places: list[Place]) -> dict[int, Moment]:
        first, last = places[0].seq, places[-1].seq
        try:
            moments = await self._read(run_id, first - 1, last - first + 1)
        except ValueError as error:  # Damaged too; the other runs are told
            log.warning("left out of the stream of all runs", extra={"run_id": run_id, "why": str(error)})
            return {}
        of_seq = {moment.entry.seq: moment for moment in moments}
        return {place.position: of_seq[place.seq] for place in places if place.seq in of_seq}


def _stream(following: AbstractContextManager[Channel], after: int, *, ends: bool) -> EventStream:
    return EventStream(_frames(following, after, ends=ends), headers={"X-Accel-Buffering": "no"})


async def _frames(following: AbstractContextManager[Channel], after: int, *, ends: bool) -> AsyncIterator[bytes]:
    try:
        with following as channel:
            while True:
                chunk = await channel.after(after)
                if chunk.frames:
                    yield chunk.frames
                if ends and chunk.final and chunk.number >= channel.newest:
                    return
                if chunk.number in (after, channel.newest):
                    if channel.ended:
                        return
                    await channel.news()
                    if channel.newest == chunk.number:
                        yield SIGN_OF_LIFE
                after = chunk.number
    except (TryAgain, Damaged) as error:
        log.warning("an event stream is cut off", extra={"after": after, "why": str(error)})


def _entry_frame(number: int, moment: Moment) -> bytes:
    return _frame(number, moment.entry.kind, entry_view(moment))


def _run_frame(number: int, moment: Moment) -> bytes:
    event = RunEvent(position=number, run=line_of(moment.after), entry=entry_view(moment))
    return _frame(number, moment.entry.kind, event)


def _frame(number: int, kind: str, data: View) -> bytes:
    # many readers split lines where only Unicode would, so such characters go as JSON's own escapes
    text = json_visible(data.model_dump_json(by_alias=True))
    return f"id: {number}\nevent: {kind}\ndata: {text}\n\n".encode()


def _not_of_here(why: str) -> Refusal:
    return Refusal(422, "invalid", f"{LAST_EVENT_ID}: {why}", field=LAST_EVENT_ID)
