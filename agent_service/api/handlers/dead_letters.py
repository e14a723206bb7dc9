"""The HTTP calls on dead letters: messages of both services that could not be handled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Protocol

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from agent_service.api.access import Caller
from agent_service.api.body import body_of
from agent_service.api.refusals import Refusal
from agent_service.api.requests import Nothing
from agent_service.history.plain import View
from agent_service.views.letters import DeadLetter, NoSuchLetter, NotSentAgain, Stored, without_secrets
from groundwork.service.errors import Failure, TryAgain
from schemas.envelope import RUN_ID
from schemas.fields import Instant

MOST_BODY = 64 * 1024
"""Bytes of a message that a list shows."""
READ_AT_ONCE = 4
WITHIN_S = 5.0

Number = Annotated[int, Path(ge=1, lt=2**53)]


class Letters(Protocol):
    """The dead letters on the bus. All methods raise what the link raises."""

    async def all(self) -> list[DeadLetter]: ...

    async def refused(self, letter: DeadLetter) -> Stored | None:
        """The message that was refused; None where it is gone."""

    async def retry(self, number: int, by: str) -> Any:
        """Raises NoSuchLetter and NotSentAgain."""

    async def drop(self, number: int, by: str) -> Any:
        """Raises NoSuchLetter."""


class LetterQuery(BaseModel):
    """Which letters."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    cursor: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """`next_cursor` of the page before."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """How many of them, at most."""
    open: bool = False
    """Only those that nobody has dealt with."""


class SettledView(View):
    """What a person did about a letter: `retried` or `dropped`."""

    what: str
    by: str
    at: Instant


class LetterView(View):
    """A dead letter. `seq` is its number; `stream`, `original_seq` and `subject` are those of the refused message.

    `body` is that message, cut where it is long, and null where it is gone. Addresses for endings and proofs of calls
    are hidden in it.
    """

    seq: int
    at: Instant
    subject: str
    reason: str
    stream: str | None
    consumer: str | None
    original_seq: int | None
    run_id: str | None
    msg_id: str | None
    body: str | None
    settled: SettledView | None


class LetterPage(View):
    """Letters, oldest first. `next_cursor` asks for those that follow; null when there are none."""

    letters: tuple[LetterView, ...]
    next_cursor: int | None


class SettledAnswer(View):
    """What was done about a letter, and by whom."""

    seq: int
    what: str
    by: str


class DeadLetterCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    async def list_letters(self, query: Annotated[LetterQuery, Query()]) -> LetterPage:
        """List dead letters, oldest first, each with the message that was refused."""
        async with in_time():
            found = await self._letters.all()
            _check_cursor(query.cursor, [letter.id for letter in found])
            wanted = [one for one in found if one.id > query.cursor and not (query.open and one.settled)]
            shown = wanted[: query.limit]
            views = tuple(await asyncio.gather(*map(self._view, shown)))
        return LetterPage(letters=views, next_cursor=views[-1].seq if len(wanted) > len(views) else None)

    async def _view(self, letter: DeadLetter) -> LetterView:
        async with self._reading:
            return letter_view(letter, await self._refused(letter))

    async def _refused(self, letter: DeadLetter) -> Stored | None:
        """None also where it cannot be had, as of a letter that names a stream that is none."""
        with suppress(Failure):
            return await self._letters.refused(letter)
        return None

    async def retry_letter(
        self, seq: Number, by: Caller, _: Annotated[Nothing, Depends(body_of(Nothing))]
    ) -> SettledAnswer:
        """Send the refused message again, once, as it was: after its cause is mended. Who did it is recorded."""
        await _done(self._letters.retry(seq, by))
        return SettledAnswer(seq=seq, what="retried", by=by)

    async def discard_letter(
        self, seq: Number, by: Caller, _: Annotated[Nothing, Depends(body_of(Nothing))]
    ) -> SettledAnswer:
        """Take a letter away that nobody has to act on any more. Who did it is recorded."""
        await _done(self._letters.drop(seq, by))
        return SettledAnswer(seq=seq, what="dropped", by=by)


def letter_view(letter: DeadLetter, refused: Stored | None) -> LetterView:
    stream, sequence = letter.place
    settled = letter.settled
    return LetterView(
        seq=letter.id,
        at=letter.buried,
        subject=letter.subject,
        reason=letter.said("Reason"),
        stream=stream or None,
        consumer=letter.said("Consumer") or None,
        original_seq=sequence or None,
        run_id=letter.headers.get(RUN_ID),
        msg_id=letter.said("Msg-Id") or letter.said("Key") or None,
        body=_shown(refused.body) if refused else None,
        settled=SettledView(what=settled.deed, by=settled.by, at=settled.at) if settled else None,
    )


def _check_cursor(cursor: int, numbers: Sequence[int]) -> None:
    """Refuses (422) a number that no letter can have. Deleted letters' numbers are taken."""
    if cursor and cursor not in numbers and cursor >= min(numbers, default=0):
        raise Refusal(422, "invalid", "cursor: is no `next_cursor` of this list: begin it again", field="cursor")


async def _done(deed: Awaitable[object]) -> None:
    try:
        async with in_time():
            await deed
    except NoSuchLetter as error:
        raise Refusal(404, "unknown_letter", str(error)) from error
    except NotSentAgain as error:
        raise Refusal(409, "not_sent_again", str(error)) from error


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(WITHIN_S):
            yield
    except TimeoutError as error:
        raise TryAgain(f"the bus did not answer within {WITHIN_S:g} s") from error


def _shown(body: bytes) -> str:
    cut = without_secrets(body.decode(errors="replace")).encode()[:MOST_BODY]
    return cut.decode(errors="ignore")
