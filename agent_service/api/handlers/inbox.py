"""The HTTP calls on what waits for a person."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from agent_service.api.access import Caller
from agent_service.api.body import body_of
from agent_service.api.handlers.dead_letters import Letters
from agent_service.api.refusals import Refusal, present
from agent_service.api.requests import Nothing
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.history.plain import View
from agent_service.run.ports import Dismissal, Inbox, RunStore
from agent_service.views.inbox import InboxItem, InboxView, of_damaged_run, of_letter, of_run
from agent_service.views.letters import DeadLetter
from groundwork.service.errors import Failure
from groundwork.service.machine import utc_now
from schemas.fields import Instant

LETTERS_WITHIN_S = 2.0

log = logging.getLogger(__name__)


class InboxQuery(BaseModel):
    """Which of what waits."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=200)] = 100
    """How many of it, at most: the newest."""


class DismissAnswer(View):
    """Who has seen to the run, and when."""

    run_id: str
    by: str
    at: Instant


def _now() -> datetime:
    return utc_now()


class InboxCalls:
    """Their docstrings are the API's documentation."""

    def __init__(
        self,
        store: RunStore,
        inbox: Inbox,
        letters: Letters,
        *,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._letters = letters
        self._now = now

    async def show_inbox(self, query: Annotated[InboxQuery, Query()]) -> InboxView:
        """What waits for a person: paused and escalated runs, and dead letters that nobody has dealt with."""
        (letters, trouble), stopped = await asyncio.gather(self._open_letters(), self._inbox.runs(query.limit))
        cards = await asyncio.gather(*(self._card(run_id, touched_at) for run_id, touched_at in stopped))
        items = [card for card in cards if card] + [of_letter(letter) for letter in letters[-query.limit :]]
        items.sort(key=lambda item: item.since, reverse=True)
        total = await self._inbox.count() + len(letters)
        return InboxView(items=tuple(items[: query.limit]), total=total, trouble=trouble)

    async def dismiss_run(
        self, run_id: str, by: Caller, _: Annotated[Nothing, Depends(body_of(Nothing))]
    ) -> DismissAnswer:
        """Take an escalated run out of the inbox. It stays as it ended; what comes for it later brings it back.

        Who was first stays on record.
        """
        run = await present(self._store, run_id)
        if run.state.status is not Status.ESCALATED:
            message = f"only a run that ended escalated can be dismissed: this one is {run.state.status}"
            raise Refusal(409, "nothing_to_dismiss", message, run_id=run_id)
        asked = Dismissal(run_id=run_id, version=run.state.version, by=by, at=self._now())
        kept = await self._inbox.dismiss(asked)
        log.info("dismissed", extra={"run_id": run_id, "by": kept.by})
        return DismissAnswer(run_id=run_id, by=kept.by, at=kept.at)

    async def _card(self, run_id: str, touched_at: datetime) -> InboxItem | None:
        try:
            run = await self._store.load(run_id)
        except Damaged as error:
            return of_damaged_run(error, touched_at)
        stands = run is not None and run.state.status in (Status.PAUSED, Status.ESCALATED)
        return of_run(run.state, self._now()) if run and stands else None

    async def _open_letters(self) -> tuple[list[DeadLetter], str]:
        """Unsettled letters, or why they cannot be read now."""
        try:
            async with asyncio.timeout(LETTERS_WITHIN_S):
                return [letter for letter in await self._letters.all() if not letter.settled], ""
        except TimeoutError:
            return [], f"the bus did not tell its dead letters within {LETTERS_WITHIN_S:g} s"
        except Failure as error:
            return [], f"the dead letters cannot be read: {error}"
