"""The agent's front desk in the words of its contract: the same answers over HTTP and over the bus.

It asks Runs and shows what people may see; what cannot be served is a Refusal. It decides nothing about a run.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from agent_service.api.refusals import Refusal
from agent_service.api.requests import (
    CallbackAnswer,
    CancelAnswer,
    CancelRequest,
    SignalAnswer,
    SignalRequest,
    WakeAnswer,
    WakeRequest,
)
from agent_service.api.runs import Runs
from agent_service.core.remedies import remedy
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.telling.acts import executor_of
from agent_service.telling.entries import EntryView, JournalReader, entry_view
from agent_service.telling.moments import tell
from agent_service.telling.views import RunLineView, RunView, line_view, run_view

SOON = timedelta(seconds=2)


class RunPage(BaseModel):
    """Runs, newest first. `next_cursor` asks for those that follow; null when there are none."""

    runs: tuple[RunLineView, ...]
    next_cursor: str | None


class EntryPage(BaseModel):
    """Entries in order. `next_after` asks for those that follow; null when there are none yet."""

    entries: tuple[EntryView, ...]
    next_after: int | None


class Desk:
    """All methods raise Refusal, and what `refusal_of` makes one of."""

    def __init__(self, runs: Runs, *, trace_url: str | None = None) -> None:
        self._runs = runs
        self._reader = JournalReader(runs)
        self._trace_url = trace_url

    async def wake(self, request: WakeRequest) -> WakeAnswer:
        """Answers only once the run is durable."""
        order = request.order()
        if flaw := await self._runs.callback_flaw(order):
            text = f"the gateway would never send to this callback: {flaw} (gateway.outbound.callbacks.network)"
            raise Refusal(422, "callback_refused", text, field="callback")
        run_id = await self._runs.wake(order)
        return WakeAnswer(run_id=run_id, wake_id=order.wake_id, status_url=f"/v1/runs/{run_id}")

    async def status(self, run_id: str) -> RunView:
        """Where the run stands, by the journal who thought for it, and whether somebody is there whom it waits for."""
        state = await self._state(run_id)
        present = await self._runs.executors() if state.pending else None
        trouble = await self._trouble(state, present or frozenset())
        heard = await self._reader.heard(run_id)
        return run_view(state, heard, trace_url=self._trace_url, present=present, trouble=trouble)

    async def _trouble(self, state: RunState, present: frozenset[str]) -> str:
        """Why the run waits for somebody who is there, where it does so for longer than most tools take."""
        executor = executor_of(state, state.pending) if state.pending else None
        if state.pending is None or executor not in present:
            return ""
        if datetime.now(UTC) - state.pending.requested_at < SOON:
            return ""
        return await self._runs.trouble(executor, run_id=state.run_id, step=state.pending.step)

    async def callback(self, run_id: str) -> CallbackAnswer:
        """Where the run asked to have its ending sent."""
        state = await self._runs.state(run_id)
        return CallbackAnswer(run_id=run_id, callback=state.brief.callback if state else None)

    async def page(self, *, state: Status | None, limit: int, cursor: str | None) -> RunPage:
        """At most `limit` runs, from after the run that `cursor` names."""
        lines = await self._runs.page(status=state, limit=limit + 1, before=cursor)
        shown = tuple(map(line_view, lines[:limit]))
        return RunPage(runs=shown, next_cursor=shown[-1].run_id if len(lines) > limit else None)

    async def entries(self, run_id: str, *, after: int, limit: int) -> EntryPage:
        """At most `limit` entries after number `after`."""
        moments = await self._reader.moments(run_id, after, limit + 1)
        if not moments and not await self._runs.entries(run_id, 0, 1):
            raise unknown_run()
        shown = tuple(map(entry_view, moments[:limit]))
        return EntryPage(entries=shown, next_after=shown[-1].seq if len(moments) > limit else None)

    async def seen_to_the_end(self, run_id: str, seen: int) -> bool:
        """Whether a reader who saw entry `seen` has seen the run to its end. Refuses (422) the number of no entry."""
        state = await self._state(run_id)
        if seen > state.version:
            message = f"the run has only {state.version} entries"
            raise Refusal(422, "invalid", f"Last-Event-ID: {message}", field="Last-Event-ID")
        return state.final and seen == state.version

    async def follow(self, run_id: str, after: int) -> AsyncIterator[EntryView]:
        """Every entry after number `after`, each once and in order, as they come; ends with the run."""
        before = await self._reader.state_after(after, await self._state(run_id))
        async for entry in self._runs.follow(run_id, after):
            moment = tell(before, entry)
            before = moment.after
            yield entry_view(moment)

    async def check(self, run_id: str) -> None:
        """Refuses (404) an id that no run has."""
        await self._state(run_id)

    async def cancel(self, run_id: str, request: CancelRequest) -> CancelAnswer:
        """Answers once it is durable, and again when it is repeated. Refuses (409) a run that ended otherwise."""
        await self._state(run_id)
        await self._runs.cancel(run_id, request.reason)
        state = await self._state(run_id)
        if state.status is not Status.CANCELLED:
            raise Refusal(409, "run_has_ended", f"the run has ended already: it is {state.status}", run_id=run_id)
        return CancelAnswer(run_id=run_id, state=state.status)

    async def signal(self, run_id: str, request: SignalRequest) -> SignalAnswer:
        """Answers once it is durable, and again when it is repeated. Refuses (409) what the run did not hear."""
        await self._state(run_id)
        signal = request.signal(run_id)
        ignored = await self._runs.signal(signal)
        state = await self._state(run_id)
        if ignored and signal.signal_id not in state.signals:
            raise Refusal(409, "not_heard", _not_heard(state, ignored), run_id=run_id)
        return SignalAnswer(run_id=run_id, signal_id=signal.signal_id, state=state.status)

    async def _state(self, run_id: str) -> RunState:
        state = await self._runs.state(run_id)
        if state is None:
            raise unknown_run()
        return state


def _not_heard(state: RunState, why: str) -> str:
    """Why a signal changed nothing, and what would."""
    now = remedy(state) or (
        "a run that has ended is final: ask for a new one, with `agentic run`" if state.final else ""
    )
    return f"the run took no notice: {why}" + (f"; {now}" if now else "")


def unknown_run() -> Refusal:
    return Refusal(404, "unknown_run", "there is no run of this id")
