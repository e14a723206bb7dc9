"""The HTTP calls that look into one run, from its journal: timeline, steps, model calls, and why it stands still."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Protocol, TypeVar

from fastapi import Path

from agent_service.api.handlers.dead_letters import Letters
from agent_service.api.refusals import Refusal, present
from agent_service.core.attempts import Pending
from agent_service.core.state import RunState
from agent_service.run.ports import Inbox, PromptText, Question, RunStore, Skills
from agent_service.views.entries import MOST_ENTRIES, JournalReader, TimelineView, timeline_view
from agent_service.views.letters import DeadLetter
from agent_service.views.model_calls import CallView, call_view, made_call
from agent_service.views.steps import StepDetail, step_detail
from agent_service.views.why import Seen, Whereabouts, WhyView, out_longest, why_view
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import utc_now
from schemas import keys, subjects
from schemas.envelope import RUN_ID
from schemas.status import GatewayStatus, WaitingCall

Number = Annotated[int, Path(ge=1, lt=2**31)]


class Inspection:
    """Their docstrings are the API's documentation. Methods raise Refusal (404), and what the store raises."""

    def __init__(self, store: RunStore, reader: JournalReader, prompt_of: Callable[[Question], PromptText]) -> None:
        self._store = store
        self._reader = reader
        self._prompt_of = prompt_of

    async def show_timeline(self, run_id: str) -> TimelineView:
        """What a run did, from when until when: phases, steps, attempts, waits, and what people said.

        Each item is followed by its parts, else they are in the order in which they began. The phases of one model call
        share its number; its cost is told once.
        """
        run = await present(self._store, run_id)
        return timeline_view(run_id, await self._reader.history(run_id, run.state.version))

    async def show_step(self, run_id: str, step: Number) -> StepDetail:
        """One step in full: its arguments, why it was planned, and all that came back of each attempt."""
        run = await present(self._store, run_id)
        found = step_detail(run.state, await self._reader.records(run_id, 0, MOST_ENTRIES), step)
        if found is None:
            raise Refusal(404, "unknown_step", "the run has not taken this step", run_id=run_id)
        return found

    async def show_call(self, run_id: str, call: Number) -> CallView:
        """One model call: what the model was told, and what it said."""
        await present(self._store, run_id)
        made = made_call(await self._reader.moments(run_id, 0, MOST_ENTRIES), call)
        if made is None:
            raise Refusal(404, "unknown_call", "the run has not made this model call", run_id=run_id)
        return call_view(made, self._prompt_of(made.question))


WITHIN_S = 4.0

T = TypeVar("T")


class Finder(Protocol):
    async def of(self, stream: str, subject: str, key: str, since: datetime) -> Whereabouts | None:
        """The message of that dedupe key, sent at or after `since`; None where it is not found. Raises Failure."""


class WhyCalls:
    """Its docstrings are the API's documentation. `gateway` tells what the gateway says of itself, or None."""

    within_s = WITHIN_S

    def __init__(
        self,
        store: RunStore,
        inbox: Inbox,
        finder: Finder,
        letters: Letters,
        skills: Skills,
        gateway: Callable[[], Awaitable[GatewayStatus | None]],
        readiness: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._finder = finder
        self._letters = letters
        self._skills = skills
        self._gateway = gateway
        self._readiness = readiness

    async def show_why(self, run_id: str) -> WhyView:
        """Why a run stands where it stands: what it waits for, what lies on the bus for it, who holds that, what to do.

        What cannot be asked in time is told as such.
        """
        run = await present(self._store, run_id)
        return why_view(run.state, await self._seen(run.state))

    async def _seen(self, run: RunState) -> Seen:
        now = utc_now()
        if run.final:
            return Seen(now=now, dismissal=await self._inbox.dismissal(run.run_id))
        lacks, letters, status, (looked, trouble, request, result) = await asyncio.gather(
            self._in_time(self._readiness(), {}),
            self._in_time(self._letters_of(run.run_id), ()),
            self._in_time(self._gateway(), None),
            self._on_the_bus(run),
        )
        return Seen(
            now=now,
            looked=looked,
            trouble=trouble,
            request=request,
            result=result,
            letters=letters,
            present=await self._present(status),
            word=_word(run, status),
            lacks=lacks,
        )

    async def _on_the_bus(self, run: RunState) -> tuple[bool, str, Whereabouts | None, Whereabouts | None]:
        """Why the bus could not be read; the request and the result of the attempt that is waited for."""
        pending = out_longest(run)
        if pending is None:
            return True, "", None, None
        try:
            async with asyncio.timeout(self.within_s):
                return True, "", *await self._messages(run.run_id, pending)
        except TimeoutError:
            return False, f"the bus did not tell within {self.within_s:g} s what it has for this run", None, None
        except Failure as error:
            return False, str(error), None, None

    async def _messages(self, run_id: str, pending: Pending) -> tuple[Whereabouts | None, Whereabouts | None]:
        sub_request = (pending.task, pending.round) if pending.task else ()
        of, since = (run_id, pending.step, pending.attempt, *sub_request), pending.requested_at
        asked = subjects.tool_request(pending.route)
        request, result = await asyncio.gather(
            self._finder.of(subjects.STREAM_REQUESTS, asked, keys.request(*of), since),
            self._finder.of(subjects.STREAM_RESULTS, subjects.TOOL_RESULT, keys.result(*of), since),
        )
        return request, result

    async def _letters_of(self, run_id: str) -> tuple[DeadLetter, ...]:
        return tuple(letter for letter in await self._letters.all() if letter.headers.get(RUN_ID) == run_id)

    async def _present(self, status: GatewayStatus | None) -> frozenset[str]:
        """The executors that answer. The gateway does when it says how it is, which is asked more often than tools."""
        with suppress(TryAgain):  # nobody has told a tool yet
            await self._skills.catalog()
        return self._skills.present() - (frozenset() if status else {subjects.SERVICE_GATEWAY})

    async def _in_time(self, question: Awaitable[T], otherwise: T) -> T:
        with suppress(TimeoutError, Failure):
            async with asyncio.timeout(self.within_s):
                return await question
        return otherwise


def _word(run: RunState, status: GatewayStatus | None) -> WaitingCall | None:
    pending = out_longest(run)
    name = pending.name if pending else (0, "", 0)
    calls = (call for call in (status.waiting if status else ()) if call.run_id == run.run_id)
    return next((call for call in calls if (call.step, call.task or "", call.round or 0) == name), None)
