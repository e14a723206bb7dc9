"""Operations for people: the inbox, and dead letters of both services."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Protocol

from pydantic import Field

from agent_service.api.errors import ApiError, Code
from agent_service.api.requests import Caller, Nothing, Query
from agent_service.api.runs import present
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, NewerVersion
from agent_service.history.text import View
from agent_service.run.ports import Dismissal
from agent_service.store.runs import RunStore
from agent_service.trust.identity import by as told_by
from agent_service.views import inbox
from groundwork.service.errors import Failure, in_time
from groundwork.service.machine import utc_now
from schemas.fields import Instant
from schemas.values import dataclass

LETTERS_WITHIN_S = 2.0
MOST_BODY = 64 * 1024
"""Maximum bytes of a message in a list."""
WITHIN_S = 5.0
READ_AT_ONCE = 4
"""Messages of up to 1 MB each, over a link that may be slow."""

Number = Annotated[int, Field(ge=1, lt=2**53)]

log = logging.getLogger(__name__)


class Letters(Protocol):
    """Dead letters on the bus. Methods raise as the link does."""

    async def all(self) -> list[inbox.DeadLetter]: ...

    async def refused(self, letter: inbox.DeadLetter) -> Any:
        """The refused message; None if it is gone."""

    async def retry(self, number: int, by: str) -> Any:
        """Raises NoSuchLetter and NotSentAgain."""

    async def drop(self, number: int, by: str) -> Any:
        """Raises NoSuchLetter."""


class InboxQuery(Query):
    """A part of the inbox."""

    limit: Annotated[int, Field(ge=1, le=200)] = 100
    """Maximum number of items; the newest ones are listed."""


class LettersQuery(Query):
    """A page of dead letters."""

    cursor: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """`next_cursor` of the page before."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Maximum number of letters."""
    open: bool = False
    """Only letters that no person has settled."""
    id: Number | None = None
    """Only this letter."""


class DismissAnswer(View):
    """The dismissal of a run: caller and time."""

    run_id: str
    by: str
    at: Instant


class LetterPage(View):
    """Letters, oldest first. `next_cursor` asks for the next page; null if there is none."""

    letters: tuple[inbox.LetterView, ...]
    next_cursor: int | None


class SettledAnswer(View):
    """A settled letter: the action, and its caller."""

    seq: int
    what: str
    by: str


@dataclass(slots=True)
class PeopleCalls:
    store: RunStore
    letters: Letters
    now: Callable[[], datetime] = utc_now
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_ONCE))

    async def show_inbox(self, query: InboxQuery) -> inbox.InboxView:
        """Paused and escalated runs, and open dead letters, by urgency."""
        (letters, trouble), stopped = await asyncio.gather(self._open_letters(), self.store.for_people(query.limit))
        cards = await asyncio.gather(*(self._card(run_id, touched_at) for run_id, touched_at in stopped))
        items = [card for card in cards if card] + [inbox.letter_item(letter) for letter in letters[-query.limit :]]
        items.sort(key=attrgetter("urgency"))
        total = await self.store.count_for_people() + len(letters)
        return inbox.InboxView(items=tuple(items[: query.limit]), total=total, trouble=trouble)

    async def dismiss_run(self, caller: Caller, run_id: str, request: Nothing) -> DismissAnswer:
        """The run stays as it ended; a later change brings it back. The first dismissal stays on record."""
        state = (await present(self.store, run_id)).state
        if state.status is not Status.ESCALATED:
            message = f"only a run that ended escalated can be dismissed: this one is {state.status}"
            raise ApiError(Code.NOTHING_TO_DISMISS, message, run_id=run_id)
        by = told_by(caller.by, says=request.by)
        asked = Dismissal(run_id=run_id, version=state.version, by=by, at=self.now())
        kept = await self.store.dismiss(asked)
        log.info("dismissed", extra={"run_id": run_id, "by": kept.by})
        return DismissAnswer(run_id=run_id, by=kept.by, at=kept.at)

    async def _card(self, run_id: str, touched_at: datetime) -> inbox.InboxItem | None:
        try:
            run = await self.store.load(run_id)
        except (Damaged, NewerVersion) as error:
            return inbox.unread_run_item(error, touched_at)
        stands = run is not None and run.state.status in (Status.PAUSED, Status.ESCALATED)
        return inbox.run_item(run.state, self.now()) if run and stands else None

    async def _open_letters(self) -> tuple[list[inbox.DeadLetter], str]:
        """Open letters, or the reason why they cannot be read."""
        try:
            async with in_time("the bus", LETTERS_WITHIN_S):
                return [letter for letter in await self.letters.all() if not letter.settled], ""
        except Failure as error:
            return [], f"the dead letters cannot be read: {error}"

    async def list_letters(self, query: LettersQuery) -> LetterPage:
        """Oldest first, each with its refused message."""
        async with in_time("the bus", WITHIN_S):
            found = [one for one in await self.letters.all() if query.id in (None, one.id)]
            wanted = [one for one in found if one.id > query.cursor and not (query.open and one.settled)]
            views = tuple(await asyncio.gather(*map(self._view, wanted[: query.limit])))
        return LetterPage(letters=views, next_cursor=views[-1].id if len(wanted) > len(views) else None)

    async def retry_letter(self, caller: Caller, seq: Number, request: Nothing) -> SettledAnswer:
        """Publishes the refused message once, unchanged. The caller is recorded."""
        by = told_by(caller.by, says=request.by)
        await _settle(self.letters.retry(seq, by))
        return SettledAnswer(seq=seq, what="retried", by=by)

    async def discard_letter(self, caller: Caller, seq: Number, request: Nothing) -> SettledAnswer:
        """For a letter that needs no action. The caller is recorded."""
        by = told_by(caller.by, says=request.by)
        await _settle(self.letters.drop(seq, by))
        return SettledAnswer(seq=seq, what="dropped", by=by)

    async def _view(self, letter: inbox.DeadLetter) -> inbox.LetterView:
        refused = None
        with suppress(Failure):  # for example, the letter names no existing stream
            async with self.reading:
                refused = await self.letters.refused(letter)
        return inbox.letter_view(letter).model_copy(update={"body": _excerpt(refused.body) if refused else None})


async def _settle(action: Awaitable[object]) -> None:
    try:
        async with in_time("the bus", WITHIN_S):
            await action
    except inbox.NoSuchLetter as error:
        raise ApiError(Code.UNKNOWN_LETTER, str(error)) from error
    except inbox.NotSentAgain as error:
        raise ApiError(Code.NOT_SENT_AGAIN, str(error)) from error


def _excerpt(body: bytes) -> str:
    cut = inbox.without_secrets(body.decode(errors="replace")).encode()[:MOST_BODY]
    return cut.decode(errors="ignore")
