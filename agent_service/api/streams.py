"""Event streams of runs (SSE): entries of the journal as they come, each with its number as `id`.

A reader that comes back with `Last-Event-ID` gets what follows, each entry once; one that has seen the end of its run
gets 204, which is how a browser is told not to come back (HTML standard, server-sent events). Streams are few: each
costs a look at the journal every second.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Request

from agent_service.api.refusals import Refusal

MOST_STREAMS = 256
MOST_STREAMS_OF_A_CALLER = 64
RETRY_AFTER_S = 5.0

_NUMBER = re.compile(r"[0-9]{1,15}")


class SeenToTheEnd(Exception):
    """The reader has seen the whole run: there is nothing to follow any more."""


class Slots:
    """How many streams are open, in all and by caller."""

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
    sent: Annotated[str | None, Header(alias="Last-Event-ID", description="The `id` of the last event seen.")] = None,
) -> int:
    """The number of the last entry that the reader has seen; 0 for none. Refuses (422) what is no such number."""
    if not sent:
        return 0
    if not _NUMBER.fullmatch(sent):
        raise Refusal(422, "invalid", "Last-Event-ID: must be the id of an event of this run", field="Last-Event-ID")
    return int(sent)
