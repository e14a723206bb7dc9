"""Event streams over HTTP (server-sent events), of one run and of all runs.

`Last-Event-ID` resumes after that event; a reader that has seen the end of its run gets 204, so that a browser does not
reconnect (HTML standard, server-sent events). A reader that is too slow is disconnected (`groundwork.http`).
"""

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from agent_service.api.errors import ApiError, Code, present, unfit
from agent_service.api.feed import Channel, Feed
from agent_service.errors import Damaged
from agent_service.store.runs import RunStore
from groundwork.service.errors import TryAgain

MOST_STREAMS = 700
MOST_STREAMS_PER_CALLER = 600
RETRY_AFTER_S = 5.0
KEEPALIVE = b": still here\n\n"
LAST_EVENT_ID = "Last-Event-ID"

_NUMBER = re.compile(r"[0-9]{1,15}")

log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


class StreamSlots:
    def __init__(self, per_caller: int = MOST_STREAMS_PER_CALLER) -> None:
        self._per_caller = per_caller
        self._open: Counter[str | None] = Counter()

    async def take(self, request: Request) -> AsyncIterator[None]:
        """Dependency that holds a slot while the response lasts. Refuses with 429."""
        token = request.state.token
        if self._open.total() >= MOST_STREAMS or self._open[token] >= self._per_caller:
            message = f"{self._open[token]} event streams are open for this token: close one, or come back later"
            if self._open[token] < self._per_caller:
                message = f"all {MOST_STREAMS} event streams of this agent are open: come back later"
            raise ApiError(Code.TOO_MANY_STREAMS, message, retry_after_s=RETRY_AFTER_S)
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1


def number_of(last_event_id: str | None) -> int | None:
    """Number of the last event seen, or None. Refuses an illegal id (422)."""
    if not last_event_id:
        return None
    if not _NUMBER.fullmatch(last_event_id):
        raise unfit(LAST_EVENT_ID, "must be the id of an event of this stream")
    return int(last_event_id)


class EventStreams:
    def __init__(self, feed: Feed, store: RunStore) -> None:
        self._feed = feed
        self._store = store

    async def follow_run(self, run_id: str, last_event_id: str | None = None) -> Response:
        """One event for each entry, until the run ends.

        `id` is the entry's number, `event` its kind, `data` the entry as in `/entries`. `Last-Event-ID` resumes after
        that entry. A reader that has already seen the end gets 204.
        """
        seen, run = number_of(last_event_id) or 0, (await present(self._store, run_id)).state
        if seen > run.version:
            raise unfit(LAST_EVENT_ID, f"the run has only {run.version} entries")
        if run.final and seen == run.version:
            return Response(status_code=204)
        return _stream(self._feed.follow(run_id), seen, ends=True)

    async def follow_all(self, last_event_id: str | None = None) -> EventStream:
        """One event for each new entry, without end.

        `id` is the entry's position in the journal of all runs, `event` its kind; `data` has that position, the run as
        in the list of runs, and the entry as in its `/entries`. `Last-Event-ID` resumes after that position; without
        it, the stream begins now.
        """
        seen, newest = number_of(last_event_id), self._feed.newest
        if (seen or 0) > newest:
            raise unfit(LAST_EVENT_ID, f"the journal of all runs ends at {newest}")
        return _stream(self._feed.follow(), newest if seen is None else seen, ends=False)


def _stream(following: AbstractContextManager[Channel], after: int, *, ends: bool) -> EventStream:
    return EventStream(_frames(following, after, ends=ends), headers={"X-Accel-Buffering": "no"})


async def _frames(following: AbstractContextManager[Channel], after: int, *, ends: bool) -> AsyncIterator[bytes]:
    try:
        with following as channel:
            while True:
                news = channel.news  # before the read, which may miss what comes during it
                chunk = await channel.after(after)
                if chunk.frames:
                    yield chunk.frames
                if ends and chunk.final and chunk.number >= channel.newest:
                    return
                if chunk.number in (after, channel.newest):
                    if channel.ended:
                        return
                    await news.wait()
                    if channel.newest == chunk.number:
                        yield KEEPALIVE
                after = chunk.number
    except (TryAgain, Damaged) as error:
        log.warning("an event stream is cut off", extra={"after": after, "why": str(error)})
