"""What callers may ask of the agent, over HTTP or the bus: wake, look, follow, cancel, signal, stop and go on.

Answers are as new as the shared log when the question came: this agent waits a short while for its copy to catch up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel

from agent_service.api.refusals import Refusal, absent, gone, present
from agent_service.api.requests import (
    CallbackAnswer,
    CancelAnswer,
    CancelRequest,
    Nothing,
    SignalAnswer,
    StandingAnswer,
    StopRequest,
    WakeAnswer,
    WakeRequest,
)
from agent_service.background import Background
from agent_service.core.events import SignalReceived, Transition
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, WakeConflict
from agent_service.history.artifacts import is_artifact_path
from agent_service.history.plain import View
from agent_service.history.waiting_for import executor_of
from agent_service.kill_switch import Halting
from agent_service.metrics.wakes import Transport, Waking
from agent_service.run.intake import Intake, not_heard
from agent_service.run.lines import RunLine, Wanted
from agent_service.run.ports import Archive, Callbacks, Inbox, RunStore, Skills, Troubles
from agent_service.trust.identity import by as told_by
from agent_service.views.entries import EntryView, JournalReader, entry_view
from agent_service.views.run import RunView, run_view
from groundwork.service.errors import TryAgain
from groundwork.service.machine import new_uuid, utc_now
from schemas.events import Signal
from schemas.fields import Instant
from schemas.status import Halt

WITHIN_S = 2.0

Fresh = Callable[[], Awaitable[None]]


async def at_once() -> None:
    """A store of its own is never behind."""


class Freshness:
    def __init__(self, caught_up: Callable[[], Awaitable[None]], *, within_s: float = WITHIN_S) -> None:
        self._caught_up = caught_up
        self._within_s = within_s
        self._begun = 0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        enough = self._begun + 1  # a look that has begun already may have been too early
        async with self._turn:
            if self._begun < enough:
                self._begun = enough
                with suppress(TryAgain, TimeoutError):
                    await asyncio.wait_for(self._caught_up(), self._within_s)


class SwitchView(View):
    """Whether everything is stopped: by whom, since when and why. Empty, and null, while all goes on."""

    stopped: bool
    by: str
    since: Instant | None
    reason: str


class Switch:
    """`by`: what is known of the caller; what it says itself is added."""

    def __init__(self, halting: Halting) -> None:
        self._halting = halting

    async def stop(self, request: StopRequest, *, by: str) -> SwitchView:
        """Answers once it is durable, and again when it is repeated: the first stop counts."""
        return _view(await self._halting.stop(by=told_by(by, says=request.by), reason=request.reason or ""))

    async def go_on(self, request: Nothing, *, by: str) -> SwitchView:
        """Answers once everything goes on, and where nothing was stopped."""
        return _view(await self._halting.go_on(by=told_by(by, says=request.by)))


def _view(halt: Halt | None) -> SwitchView:
    if halt is None or halt.over:
        return SwitchView(stopped=False, by="", since=None, reason="")
    return SwitchView(stopped=True, by=halt.by, since=halt.since, reason=halt.reason)


SOON = timedelta(seconds=2)


class RunPage(BaseModel):
    """Runs, newest first. `next_cursor` asks for those that follow; null when there are none."""

    runs: tuple[RunLine, ...]
    next_cursor: str | None


class RunCounts(BaseModel):
    """How many runs there are of each status, and how many wait for a person: those of the inbox, without dead letters.

    `oldest_queued_at`: when that of the queued runs was accepted that waits longest; null when none does. `stopped`: by
    whom, since when and why everything is stopped; empty while all goes on.
    """

    by_status: dict[Status, int]
    needs_person: int
    oldest_queued_at: Instant | None
    stopped: str = ""


class EntryPage(BaseModel):
    """Entries in order. `next_after` asks for those that follow; null when there are none yet."""

    entries: tuple[EntryView, ...]
    next_after: int | None


class Said(Protocol):
    def signal(self, run_id: str) -> Signal:
        """The same as a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    skills: Skills
    troubles: Troubles
    callbacks: Callbacks


class Desk:
    def __init__(
        self,
        store: RunStore,
        archive: Archive,
        inbox: Inbox,
        intake: Intake,
        executors: Executors,
        background: Background,
    ) -> None:
        self._store = store
        self._archive = archive
        self._inbox = inbox
        self._intake = intake
        self._admission = intake.admission
        self._executors = executors
        self._background = background
        self.reader = JournalReader(archive)

    async def wake(
        self, request: WakeRequest, *, by: str, payer: str = "", transport: Transport, traceparent: str | None = None
    ) -> WakeAnswer:
        """Answers once the run is durable. `payer`: whose quota. Raises LimitRefused, WakeConflict and TryAgain."""
        with self._intake.incoming.wake(transport) as waking:
            wake_id = request.wake_id or f"wake-{new_uuid()}"
            told: dict[str, Any] = {"by": by, "payer": payer, "traceparent": traceparent}
            try:
                async with self._admission.room.unless_trouble():
                    known = await self._archive.run_of(wake_id) is not None
                    async with self._admission.quotas.wake(payer, known=known):
                        return await self._wake(wake_id, request, waking, known=known, **told)
            except WakeConflict as error:
                raise await self._conflict(error, payer) from error

    async def _conflict(self, error: WakeConflict, payer: str) -> Exception:
        run = await self._store.load(error.run_id)
        if run and run.state.brief.caller == payer:
            return error
        return Refusal(409, "wake_id_taken", "this wake_id names another request: use a new wake_id", field="wake_id")

    async def _wake(
        self,
        wake_id: str,
        request: WakeRequest,
        waking: Waking,
        *,
        known: bool,
        **told: Any,
    ) -> WakeAnswer:
        flaw = await self._executors.callbacks.flaw(request.callback) if request.callback and not known else ""
        if flaw:
            text = f"the gateway would never send to this callback: {flaw} (gateway.outbound.callbacks.network)"
            waking.refused_as = "callback_refused"
            raise Refusal(422, "callback_refused", text, field="callback")
        if not known:
            await self._admission.room.check()
        run_id, accepted = await self._intake.wake(wake_id, request.start(), known=known, **told)
        waking.duplicate = accepted is None
        self._background.start(self._intake.follow(accepted))
        return WakeAnswer(run_id=run_id, wake_id=wake_id, status_url=f"/v1/runs/{run_id}")

    async def status(self, run_id: str) -> RunView:
        state = await self._state(run_id)
        present = await self._present() if state.pending else None
        trouble = await self._trouble(state, present or frozenset())
        history = await self.reader.history(run_id, state.version)
        shown = run_view(state, history, trace_url=self._intake.new_runs.trace_url, present=present, trouble=trouble)
        return shown if state.final else shown.model_copy(update={"stopped": self._admission.brake.why})

    async def brief(self, run_id: str) -> StandingAnswer:
        state = await self._intake.standing(run_id)
        if state is None:
            raise await absent(self._store, run_id)
        return StandingAnswer(
            run_id=run_id, status=state.status, stopped="" if state.final else self._admission.brake.why
        )

    async def callback(self, run_id: str) -> CallbackAnswer:
        run = await self._store.load(run_id)
        return CallbackAnswer(run_id=run_id, callback=run.state.brief.callback if run else None)

    async def page(self, wanted: Wanted, *, limit: int, cursor: str | None = None) -> RunPage:
        if cursor and not (self._archive.version(cursor) or await self.is_gone(cursor)):
            raise Refusal(422, "invalid", "cursor: is no `next_cursor` of this list: begin it again", field="cursor")
        lines = await self._archive.runs(wanted, limit=limit + 1, before=cursor)
        shown = tuple(lines[:limit])
        return RunPage(runs=shown, next_cursor=shown[-1].run_id if len(lines) > limit else None)

    async def counts(self) -> RunCounts:
        by_status = await self._archive.counts()
        oldest: list[RunState] = []
        with suppress(Damaged):  # it is left alone from now on, and another is the oldest
            oldest = [await self._state(run_id) for run_id in await self._store.queued(1)]
        return RunCounts(
            by_status=by_status,
            needs_person=await self._inbox.count(),
            oldest_queued_at=oldest[0].accepted_at if oldest else None,
            stopped=self._admission.brake.why,
        )

    async def entries(self, run_id: str, *, after: int, limit: int) -> EntryPage:
        newest = self._archive.version(run_id)
        if not newest:
            raise await absent(self._store, run_id)
        if after > newest:
            raise Refusal(422, "invalid", f"after: the run has only {newest} entries", field="after", run_id=run_id)
        records = await self.reader.records(run_id, after, limit + 1)
        shown = tuple(map(entry_view, records[:limit]))
        return EntryPage(entries=shown, next_after=shown[-1].seq if len(records) > limit else None)

    async def check(self, run_id: str) -> None:
        """Refuses an id that no run has (404), or none any more (410)."""
        await self._state(run_id)

    async def standing(self, run_id: str) -> Status:
        return (await self._state(run_id)).status

    async def is_gone(self, run_id: str) -> bool:
        return await self._store.tombstone(run_id) is not None

    async def check_kept(self, run_id: str) -> None:
        if tombstone := await self._store.tombstone(run_id):
            raise gone(tombstone)

    async def check_artifacts_kept(self, run_id: str, path: str) -> None:
        """Refuses (410) an artifact that is kept no longer, also where a copy is left that goes later."""
        if is_artifact_path(path) and (gone_with := await self._store.artifacts_gone(run_id)):
            raise Refusal(410, "artifacts_gone", str(gone_with), run_id=run_id)

    async def cancel(self, run_id: str, request: CancelRequest, *, by: str) -> CancelAnswer:
        """Answers once it is durable, and again when it is repeated. Refuses (409) a run that ended otherwise."""
        await self._state(run_id)
        self._go_on(await self._intake.cancel(request.cancel(run_id), by=by))
        state = await self._state(run_id)
        if state.status is not Status.CANCELLED:
            raise Refusal(409, "run_has_ended", f"the run has ended already: it is {state.status}", run_id=run_id)
        return CancelAnswer(run_id=run_id, status=state.status)

    async def signal(self, run_id: str, said: Said, *, by: str) -> SignalAnswer:
        """Answers once it is durable, and again when it is repeated. Refuses (409) what the run did not hear."""
        await self._state(run_id)
        signal = said.signal(run_id)
        heard = await self._intake.signal(signal, by=by)
        self._go_on(heard)
        if why := not_heard(signal, heard):
            raise Refusal(409, "not_heard", why, run_id=run_id)
        if heard.ignored:
            await self._check_said_before(signal)
        state = await self._state(run_id)
        return SignalAnswer(run_id=run_id, signal_id=signal.signal_id, status=state.status)

    async def _check_said_before(self, signal: Signal) -> None:
        """Refuses (409) one whose id has named another signal, which was heard in its place."""
        events = [entry.decoded() for entry in await self._archive.signals(signal.run_id, signal.signal_id)]
        said = [event.signal for event in events if isinstance(event, SignalReceived)]
        if all(one.model_copy(update={"by": signal.by}) != signal for one in said):
            why = "this signal_id has named another signal to this run: use a new signal_id"
            raise Refusal(409, "signal_id_taken", why, field="signal_id", run_id=signal.run_id)

    async def _state(self, run_id: str) -> RunState:
        return (await present(self._store, run_id)).state

    async def _present(self) -> frozenset[str]:
        with suppress(TryAgain):  # nobody has told a tool yet
            await self._executors.skills.catalog()
        return self._executors.skills.present()

    async def _trouble(self, state: RunState, present: frozenset[str]) -> str:
        executor = executor_of(state, state.pending) if state.pending else None
        if state.pending is None or executor not in present:
            return ""
        if utc_now() - state.pending.requested_at < SOON:
            return ""
        return await self._executors.troubles.of(executor, run_id=state.run_id, step=state.pending.step)

    def _go_on(self, transition: Transition) -> None:
        self._background.start(self._intake.follow(transition))
