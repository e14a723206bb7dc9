"""Operations on runs, over HTTP and on the bus: wake, show, list, sum, cancel, signal; what others read of a run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from agent_service.api import requests
from agent_service.api.errors import REFUSED, ApiError, Code, Gone, named_by
from agent_service.api.requests import Caller, LongPoll, SignalAnswer
from agent_service.background import Background
from agent_service.core.events import SignalReceived, Transition
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, NewerVersion, WakeConflict
from agent_service.history.history import History
from agent_service.history.text import View
from agent_service.history.words import executor_of
from agent_service.run.intake import Intake, why_ignored
from agent_service.run.journal import JournalRecord, Run
from agent_service.run.ports import Skills
from agent_service.store.lines import RunFilter, RunLine, Sum
from agent_service.store.runs import RunStore
from agent_service.views.run import RunView, run_view
from groundwork.service.errors import TryAgain
from groundwork.service.machine import new_uuid, utc_now
from schemas.events import Signal
from schemas.fields import Instant
from schemas.values import dataclass

SOON = timedelta(seconds=2)
REMEMBERED_RUNS = 64

Accepted = tuple[str, Transition | None]
SignalBody = requests.SignalRequest | requests.ApprovalRequest | requests.AnswerRequest


class RunsQuery(requests.Query):
    """A page of runs that match all given filters."""

    status: tuple[Status, ...] = ()
    """Any of these statuses; may be repeated."""
    state: Annotated[tuple[Status, ...], Field(json_schema_extra={"deprecated": True})] = ()
    """The same, under the name of card 105."""
    text: Annotated[str, Field(max_length=200)] = ""
    """Part of the goal, the summary or the run id."""
    run: Annotated[str, Field(max_length=30)] = ""
    """Part of the run id."""
    tool: Annotated[str, Field(max_length=200)] = ""
    """Used by a step, or planned for one."""
    since: Instant | None = None
    """Accepted at this instant or later."""
    until: Instant | None = None
    """Accepted before this instant."""
    wake_id: Annotated[str, Field(max_length=128)] = ""
    """The `wake_id` of the run."""
    caller: Annotated[str, Field(max_length=200)] = ""
    """The caller, such as `token ci`."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Maximum number of runs."""
    cursor: Annotated[str | None, Field(pattern=r"^run_[0-7][0-9A-HJKMNP-TV-Z]{25}$")] = None
    """`next_cursor` of the page before."""

    @field_validator("until")
    @classmethod
    def _after_since(cls, until: Instant | None, others: ValidationInfo) -> Instant | None:
        if until and (since := others.data.get("since")) and until <= since:
            raise ValueError("must be later than `since`")
        return until

    def wanted(self) -> RunFilter:
        asked = self.model_dump(include={"text", "run", "tool", "since", "until", "wake_id", "caller"})
        return RunFilter(statuses=frozenset(self.status + self.state), **asked)


class RunPage(BaseModel):
    """Runs, newest first. `next_cursor` asks for the next page; null if there is none."""

    runs: tuple[RunLine, ...]
    next_cursor: str | None


class RunCounts(BaseModel):
    """Number of runs by status, and of runs in the inbox (`needs_person`).

    `oldest_queued_at` is the acceptance of the oldest queued run; null if none is queued. `stopped` says by whom, since
    when and why everything is stopped; empty if nothing is.
    """

    by_status: dict[Status, int]
    needs_person: int
    oldest_queued_at: Instant | None
    stopped: str = ""


class UsageQuery(requests.Query):
    """The days of a usage report."""

    days: Annotated[int, Field(ge=1, le=92)] = 14
    """Number of days, up to today."""


class UsageOfDay(View):
    """Sums over the runs that were accepted on a day (UTC); the cost of a run is that of its whole life."""

    day: date
    sums: tuple[Sum, ...]


class UsageDays(View):
    """Newest first."""

    days: tuple[UsageOfDay, ...]


async def present(store: RunStore, run_id: str) -> Run:
    """The current run. Refuses an unknown id (404), and that of a deleted run (410)."""
    run = await store.load(run_id)
    if run is None:
        raise await absent(store, run_id)
    return run


async def absent(store: RunStore, run_id: str) -> ApiError:
    tombstone = await store.tombstone(run_id)
    if tombstone is None:
        return ApiError(Code.UNKNOWN_RUN, "there is no run of this id")
    about = Gone.model_validate(tombstone, from_attributes=True)
    return ApiError(Code.GONE, str(tombstone), run_id=run_id, gone=about)


async def answering(skills: Skills) -> frozenset[str]:
    """Executors that answer the catalog query."""
    with suppress(TryAgain):  # no catalog yet
        await skills.catalog()
    return skills.present()


class JournalReader:
    """Caches histories of the runs read last, and extends them by new entries."""

    def __init__(self, journals: RunStore) -> None:
        self._journals = journals
        self._history_of = lru_cache(REMEMBERED_RUNS)(lambda _: History())

    async def records(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[JournalRecord]:
        return [entry.record() for entry in await self._journals.entries(run_id, after, limit)]

    async def history(self, run_id: str, version: int) -> History:
        """The history with at least the entries up to `version`. Raises TryAgain if they were deleted meanwhile."""
        history: History = self._history_of(run_id)
        if history.seq < version:
            history.extend(await self.records(run_id, history.seq, version - history.seq))
        if history.seq < version:
            raise TryAgain(f"run {run_id} was deleted while it was read: ask again")
        return history


@dataclass(slots=True)
class RunCalls:
    store: RunStore
    intake: Intake
    skills: Skills
    step_trouble: Callable[..., Awaitable[str]]
    """Reason why an executor has not begun the step `step` of `run_id`; empty if there is none or it does not say."""
    callback_flaw: Callable[[str], Awaitable[str]]
    """Reason why nothing would be sent to an address; empty if there is none or it is unknown."""
    background: Background
    rest: Callable[[str, LongPoll], Awaitable[None]]
    """Returns once the run rests, or the wait ends. Refuses an unknown id (404)."""
    reader: JournalReader

    async def wake(
        self,
        caller: Caller,
        request: requests.WakeRequest,
        key: str | None = None,
        traceparent: str | None = None,
        wait: LongPoll | None = None,
    ) -> requests.WakeAnswer:
        """Answers once the run is durable; repeat it under the same `wake_id` after a failure.

        With `wait`, it answers once the run has ended (200), or waits for a person or longer than `wait` (202), with
        the run in `run`; the token then needs the scope `read`, too. An `Idempotency-Key` is the `wake_id` of a body
        without one. The answer names the run even if it was deleted.
        """
        if wait:
            requests.check_scopes(caller.token, caller.scopes, ["read"])
        made = "" if request.wake_id or key else f"wake-{new_uuid()}"
        wake_id, key = request.wake_id or key or made, None if request.wake_id else key
        try:
            with self.intake.incoming.wake(caller.transport) as waking:
                async with self.intake.capacity.unless_trouble():
                    known = await self.store.run_by_wake(wake_id) is not None
                    async with self.intake.quotas.wake(caller.payer, known=known) as place:
                        if not known:
                            if request.callback:
                                await self._check_callback(request.callback)
                            await self.intake.capacity.check()
                        about: dict[str, Any] = {"by": caller.by, "payer": caller.payer, "traceparent": traceparent}
                        asked = self.intake.wake(wake_id, request.start(), known=known, **about)
                        run_id, accepted = await asyncio.shield(self._accept(asked, place.pop_all()))
                        waking.duplicate = accepted is None
        except REFUSED as error:
            refusal = await self._conflict(error, caller.payer) if isinstance(error, WakeConflict) else error
            raise named_by(key, refusal, made=made) from error
        answer = requests.WakeAnswer(run_id=run_id, wake_id=wake_id, status_url=f"/v1/runs/{run_id}")
        with suppress(TryAgain, ApiError):  # it is durable, so the caller must learn its name, also of a deleted run
            if wait:
                return answer.model_copy(update={"run": await self.show_run(run_id, wait)})
        return answer

    async def _accept(self, asked: Awaitable[Accepted], place: ExitStack) -> Accepted:
        """Goes on if the wake is given up: a run that is stored later counts, and begins, as any other."""
        with place:
            run_id, accepted = await asked
        self.background.start(self.intake.turns.follow, accepted)
        return run_id, accepted

    async def _check_callback(self, url: str) -> None:
        if flaw := await self.callback_flaw(url):
            text = f"the gateway would never send to this callback: {flaw} (gateway.outbound.callbacks.network)"
            raise ApiError(Code.CALLBACK_REFUSED, text, field="callback")

    async def _conflict(self, error: WakeConflict, payer: str) -> Exception:
        run = await self.store.load(error.run_id)
        if run and run.state.brief.caller == payer:
            return error
        text = "this wake_id names another request: use a new wake_id"
        return ApiError(Code.WAKE_ID_TAKEN, text, field="wake_id")

    async def show_run(self, run_id: str, wait: LongPoll | None = None) -> RunView:
        """Answers at once, or with `wait` once the run has ended or waits for a person."""
        if wait:
            await self.rest(run_id, wait)
        state = (await present(self.store, run_id)).state
        present_now = await answering(self.skills) if state.pending else None
        trouble = await self._trouble(state, present_now or frozenset())
        history = await self.reader.history(run_id, state.version)
        shown = run_view(state, history, present=present_now, trouble=trouble)
        return shown.model_copy(update={"stopped": self._stopped(state)})

    async def standing(self, run_id: str) -> requests.StandingAnswer:
        state = await self.intake.turns.current(run_id)
        if state is None:
            raise await absent(self.store, run_id)
        return requests.StandingAnswer(run_id=run_id, status=state.status, stopped=self._stopped(state))

    def _stopped(self, state: RunState) -> str:
        return "" if state.final else self.intake.turns.kill_switch.stopped_by

    async def callback(self, run_id: str) -> requests.CallbackAnswer:
        run = await self.store.load(run_id)
        return requests.CallbackAnswer(run_id=run_id, callback=run.state.brief.callback if run else None)

    async def list_runs(self, query: RunsQuery) -> RunPage:
        lines = await self.store.runs(query.wanted(), limit=query.limit + 1, before=query.cursor)
        shown = tuple(lines[: query.limit])
        return RunPage(runs=shown, next_cursor=shown[-1].run_id if len(lines) > query.limit else None)

    async def count_runs(self) -> RunCounts:
        by_status = await self.store.counts()
        oldest: Sequence[RunState] = ()
        with suppress(Damaged, NewerVersion):  # from now on another run is the oldest
            oldest = [(await present(self.store, run_id)).state for run_id in await self.store.queued(1)]
        return RunCounts(
            by_status=by_status,
            needs_person=await self.store.count_for_people(),
            oldest_queued_at=oldest[0].accepted_at if oldest else None,
            stopped=self.intake.turns.kill_switch.stopped_by,
        )

    async def show_usage(self, query: UsageQuery) -> UsageDays:
        """Numbers and costs of runs for each day, by status, failure, tool and model."""
        today = self.intake.turns.clock.now().date()
        days = [today - timedelta(days=ago) for ago in range(query.days)]
        return UsageDays(days=tuple([UsageOfDay(day=day, sums=tuple(await self.store.sums(day))) for day in days]))

    async def cancel_run(self, caller: Caller, run_id: str, request: requests.CancelRequest) -> requests.StandingAnswer:
        """The run is cancelled when the answer comes; a repetition changes nothing. A run that ended otherwise stays as
        it is (409)."""
        state = await self._followed(run_id, await self.intake.cancel(request.cancel(run_id), by=caller.by))
        if state.status is not Status.CANCELLED:
            text = f"the run has ended already: it is {state.status}"
            raise ApiError(Code.RUN_HAS_ENDED, text, run_id=run_id)
        return requests.StandingAnswer(run_id=run_id, status=state.status)

    async def signal_run(
        self, caller: Caller, run_id: str, request: requests.SignalRequest, key: str | None = None
    ) -> SignalAnswer:
        """A repeated `signal_id` counts once."""
        return await self._send_signal(caller, run_id, request, key)

    async def rule_on_run(
        self, caller: Caller, run_id: str, request: requests.ApprovalRequest, key: str | None = None
    ) -> SignalAnswer:
        """Names the hash in `asks` of the run. If the run does not wait, or asks something else by now, the ruling is
        refused (409 `not_heard`). The journal records the caller."""
        return await self._send_signal(caller, run_id, request, key)

    async def answer_run(
        self, caller: Caller, run_id: str, request: requests.AnswerRequest, key: str | None = None
    ) -> SignalAnswer:
        """An answer to an escalation reopens the run. If a budget ended it, the answer must raise the budget. A run
        that is done, failed or cancelled stays closed (409 `not_heard`).
        """
        return await self._send_signal(caller, run_id, request, key)

    async def _send_signal(self, caller: Caller, run_id: str, body: SignalBody, key: str | None) -> SignalAnswer:
        """Answers once the signal is durable. Refuses a signal that the run ignores (409)."""
        key = None if body.signal_id else key
        try:
            signal = body.signal(run_id, key)
            transition = await self.intake.signal(signal, by=caller.by)
            state = await self._followed(run_id, transition)
            if why := why_ignored(signal, transition):
                raise ApiError(Code.NOT_HEARD, why, run_id=run_id)
            if transition.ignored:
                await self._check_repetition(signal)
        except REFUSED as error:
            raise named_by(key, error) from error
        return SignalAnswer(run_id=run_id, signal_id=signal.signal_id, status=state.status)

    async def _check_repetition(self, signal: Signal) -> None:
        """Refuses a signal whose id has named another one (409)."""
        entries = await self.store.entries(signal.run_id)
        events = [entry.decoded() for entry in entries if entry.kind == SignalReceived.__name__]
        asked = signal.model_dump(exclude={"by"})
        if all(one.signal.model_dump(exclude={"by"}) != asked for one in events if isinstance(one, SignalReceived)):
            why = "this signal_id has named another signal to this run: use a new signal_id"
            raise ApiError(Code.SIGNAL_ID_TAKEN, why, field="signal_id", run_id=signal.run_id)

    async def _trouble(self, state: RunState, present_now: frozenset[str]) -> str:
        executor = executor_of(state, state.pending.action.tool) if state.pending else None
        if state.pending is None or executor not in present_now or utc_now() - state.pending.requested_at < SOON:
            return ""
        return await self.step_trouble(executor, run_id=state.run_id, step=state.pending.step)

    async def _followed(self, run_id: str, transition: Transition) -> RunState:
        """The state after the transition, which is performed meanwhile. Refuses an unknown or deleted run."""
        if transition.state is None:
            raise await absent(self.store, run_id)
        self.background.start(self.intake.turns.follow, transition)
        return transition.state
