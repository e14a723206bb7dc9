"""Carries a tool request from the bus to the tool, and the result back.

    request ─▶ ledger: known? ─▶ admit ─▶ intent durable, tool ─▶ artifacts, answer durable ─▶ publish ─▶ (ack)

An answered call is never run again: its answer is published again. An intent is durable right before the tool starts,
with what its runner needs to find the call. A call with an intent and no answer is resumed, never simply run. Each step
from the outcome to the result may be repeated. If a call was answered before its end, a late result follows.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container, Iterable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from weakref import WeakValueDictionary

from pydantic import JsonValue

from ductile_gateway import ports
from ductile_gateway.bus.ownership import BusOwnership
from ductile_gateway.calls import artifacts, policy, results
from ductile_gateway.calls.admission import A_MOMENT, FULL, CallSlots, PauseGate, WaitingCalls, check_wanted
from ductile_gateway.calls.call import (
    ALONE,
    AlreadyStarted,
    Call,
    CallRequest,
    NeverStarted,
    Receipt,
    ToolCall,
    ToolOutcome,
    Unknown,
    Verdict,
    Withdrawn,
    failed,
)
from ductile_gateway.calls.ledger import CallVersion, Ledger
from ductile_gateway.calls.policy import Offers
from groundwork.service.errors import Broken, GiveUp, Misconfigured, NameTaken, NoRoom, TryAgain
from groundwork.service.machine import utc_now
from schemas import subjects
from schemas.values import dataclass, replace

PUBLISHED_AGAIN = timedelta(seconds=60)
"""Age of results that are published again: a power cut may have cost the bus what it had acknowledged."""
PUBLISHED_AT_ONCE = 32
_CHANGED = (
    "{argument}: what is stored as {path} is not what its tool made, by its SHA-256: somebody has replaced it, and the "
    "tool was not given it"
)

Check = Callable[[], Awaitable[None]]
"""May refuse a request by what is on offer."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Relay:
    """`escalated`: tools whose repeated writes are left to a person."""

    offers: Offers
    runner: ports.ToolRunner
    slots: CallSlots
    escalated: Container[str] = frozenset()
    ledger: Ledger
    artifacts: ports.ToolArtifactStore
    bus: ports.ResultBus
    has_ended: ports.HasEnded
    ownership: BusOwnership
    gate: PauseGate
    observer: ports.CallObserver

    def __post_init__(self) -> None:
        self.waiting = WaitingCalls()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, asked: CallRequest, check: Check | None = None) -> None:
        """Returns once the result is published. `check` runs as the request comes, and as it is admitted. Raises
        GiveUp, TryAgain, Broken or Misconfigured."""
        async with self._locks.setdefault(asked.key, asyncio.Lock()):
            try:
                await self._publish(await self._answer(asked, check))
            except TryAgain as error:
                self.waiting.put_off(asked, error)
                self.observer.put_off(asked)
                raise
            self.waiting.over(asked)

    def close(self) -> None:
        self.gate.close()
        self.slots.close()

    async def republish(self) -> None:
        """Publishes recent answers again: the bus may have lost them."""
        answers = await self.ledger.answers_to_publish(utc_now() - PUBLISHED_AGAIN)
        if answers:
            log.info("publishing results again", extra={"to_publish": len(answers)})
        for first in range(0, len(answers), PUBLISHED_AT_ONCE):
            await asyncio.gather(*map(self._publish, answers[first : first + PUBLISHED_AT_ONCE]))

    async def go_on(self) -> None:
        """Goes on with the calls that this gateway had begun. Their requests come again later, and of several gateways
        to any, and another one only waits for this one."""
        await asyncio.gather(*map(self._go_on, self.ledger.begun_here()))

    async def _go_on(self, begun: Call) -> None:
        try:
            await self.take(begun.begun_call().asked)
        except TryAgain:
            pass  # its request comes again
        except GiveUp as error:  # its request becomes a dead letter, if the bus still has it
            log.warning("a call that was begun is left to its request", extra=begun.facts() | {"why": str(error)})
        except (Broken, Misconfigured):
            raise
        except Exception:  # an error of one call must not end the gateway, at each of its starts
            log.exception("a call that was begun is left to its request", extra=begun.facts())

    async def report_late(self, key: str, verdict: Verdict) -> bool:
        """Publishes the end of a call that was answered at its deadline. Returns False if it is not answered yet."""
        answer = await self.ledger.find(key)
        if answer is None or answer.is_open:
            return False
        log.warning("a late result", extra=answer.facts() | {"ended": getattr(verdict, "status", str(verdict))})
        if isinstance(verdict, ToolOutcome) and (late := results.late_answer(answer, verdict)):
            await self._publish(late)
        return True

    async def _answer(self, asked: CallRequest, check: Check | None) -> Call:
        if why := self.offers.awaited.get(asked.route):
            raise TryAgain(why)
        if check:
            await check()
        row = CallVersion()
        if (known := await self.ledger.find(asked.key, row)) is None:
            return await self.record(asked, await self._admitted(asked, row, check), row)
        if known.digest != asked.digest:
            raise GiveUp(f"protocol violation: another request was made before under the key {asked.key}")
        if known.is_open:  # it is not admitted again: it was when it was new
            return await self.record(asked, await self._taken_up(known))
        self.observer.known(asked)
        return results.with_capability(known, asked.request.capability)

    async def _admitted(self, asked: CallRequest, row: CallVersion | None, check: Check | None) -> ToolOutcome:
        """Admits the call and runs it. `row`: None if an earlier run was cut short, and may be repeated."""
        if why := self.gate.why:
            with self.waiting.waiting(asked, why):
                await self.gate.wait_open()
        asked = self.gate.with_time_stopped(asked)
        run_id, tool = asked.request.run_id, asked.request.tool
        if not self.slots.take(run_id, tool):
            with self.waiting.waiting(asked, FULL.format(tool=tool)):
                await self.slots.acquire(run_id, tool)
        try:
            self.gate.check()
            if check:  # a write may be on offer since the call began to wait
                await check()
            call = self.offers.admit(asked, now=utc_now(), again=row is None)
            if isinstance(call, ToolOutcome):
                return self._refused(asked, call)
            if call.artifacts:
                payload = await self._arguments(asked, call.artifacts)
                if isinstance(payload, ToolOutcome):
                    return payload
                call = replace(call, payload=payload)
            try:
                return await self._start(call, row)
            except AlreadyStarted:  # a crash took the row of the call, and not the runner's record
                return await self._resumed(call) or await self._start(call)
        finally:
            self.slots.release(run_id, tool)

    def _refused(self, asked: CallRequest, refusal: ToolOutcome) -> ToolOutcome:
        if refusal.error_class == "not_allowed":
            self.ownership.leave_to_others(asked)
        log.warning("refused", extra=asked.facts | {"error_class": refusal.error_class, "why": refusal.message})
        why = self.waiting.why(asked.key) if refusal.error_class == "expired" else None
        return replace(refusal, message=f"{refusal.message}. It has waited: {why}") if why else refusal

    async def _start(self, call: ToolCall, row: CallVersion | None = None) -> ToolOutcome:
        doubt, now = self.ownership.doubt(call.asked), utc_now()
        try:
            if now - call.asked.request.requested_at > A_MOMENT:  # its run may have ended
                await check_wanted(call, self.has_ended)
                now = utc_now()
            if doubt and not call.may_repeat:
                verdict: Verdict = Unknown(doubt)
            elif call.deadline_at <= now:
                return failed("expired", "the deadline had passed before the tool was started", retryable=True)
            else:
                verdict = await self._verdict(call, self.runner.run(call, partial(self._begin, call, row)))
        except Withdrawn:
            return policy.UNWANTED
        return self._outcome(verdict, call)

    async def _begin(self, call: ToolCall, row: CallVersion | None, receipt: Receipt | None = None) -> None:
        await check_wanted(call, self.has_ended)
        self.gate.check()
        await self.ownership.lease.ensure_held()
        if receipt or not call.may_repeat:  # else the call is repeated after a crash
            await self.ledger.intend(call, receipt, row)
            await self.ownership.lease.ensure_held()  # a process may have been stopped while it was written
        if receipt and row:  # the runner changes the row, too
            row.stored = None
        self.observer.begun(call.asked)

    async def _taken_up(self, known: Call) -> ToolOutcome:
        """Outcome of a call that was begun before. Raises TryAgain while another gateway lives that began it. The call
        is adopted only if it can be found from here, or repeated: else it stays in doubt if this gateway crashes."""
        call = known.begun_call()
        is_ours = known.runner in ("", self.ledger.runner)
        anywhere = call.may_repeat or (is_ours and self.runner.finds_anywhere)
        lost = await self.ownership.lost(call, known.by or ALONE, anywhere=anywhere)
        if not (is_ours or call.may_repeat):
            lost = f"it was begun with `runner: {known.runner}`, and the settings say {self.ledger.runner} now"
        if lost and not anywhere:
            return policy.after_run(Unknown(lost), call)
        if lost:
            await self.ledger.adopt(known)
        log.info("resuming", extra=call.asked.facts)
        offered = self.offers.command(call.asked.request.tool, call.command)
        payload = await self._arguments(call.asked, offered.artifacts) if offered else None
        call = replace(call, payload=payload) if isinstance(payload, dict) else replace(call, complete=False)
        return await self._resumed(call) or await self._admitted(call.asked, None, None)

    async def _resumed(self, call: ToolCall) -> ToolOutcome | None:
        """Outcome of a call that may have been started; None if it may be started again."""
        verdict = await self._verdict(call, self.runner.resume(call))
        if isinstance(verdict, NeverStarted) or (isinstance(verdict, Unknown) and call.may_repeat):
            await self.runner.forget(call.key)
            await self.ledger.never_sent(call.key)
            return None
        return self._outcome(verdict, call)

    def _outcome(self, verdict: Verdict, call: ToolCall) -> ToolOutcome:
        return policy.after_run(verdict, call, escalates=call.asked.request.tool in self.escalated)

    async def _verdict(self, call: ToolCall, running: Awaitable[Verdict]) -> Verdict:
        try:
            verdict = await running
        except (AlreadyStarted, Withdrawn, TryAgain, Broken, Misconfigured):
            raise
        except Exception as error:  # the tool may have run, and the agent has to know
            log.exception("the runner failed", extra=call.asked.facts)
            return Unknown(f"the gateway failed while it ran ({type(error).__name__})")
        reads = policy.reads_form(self.offers.find(call.asked.request.tool))
        return results.with_markdown_form(verdict, plugin=call.plugin, reads=reads)

    async def _arguments(self, asked: CallRequest, paths: Iterable[str]) -> dict[str, JsonValue] | ToolOutcome:
        """Arguments with the contents of artifacts in the place of their `paths`; or the refusal."""
        request = asked.request
        payload = dict(request.tool_payload)
        for argument in paths:
            if (path := payload.get(argument)) is None:
                continue
            name = artifacts.artifact_name(path) or ""
            content = await self.artifacts.get(f"{request.run_id}/{name}")
            if content is None:
                return failed("not_found", f"{argument}: this run has no artifact {path}", retryable=False)
            recorded = await self.ledger.digest_of(request.run_id, name) or artifacts.digest_in_name(name)
            if not sha256(content).hexdigest().startswith(recorded):
                log.error("an artifact was replaced", extra=asked.facts | {"path": path})
                return failed("artifact_changed", _CHANGED.format(argument=argument, path=path), retryable=False)
            if (given := artifacts.artifact_argument(name, content)) is None:
                return failed("invalid_arguments", f"{argument}: {path} is not text", retryable=False)
            payload[argument] = given
        return payload

    async def record(self, asked: CallRequest, outcome: ToolOutcome, row: CallVersion | None = None) -> Call:
        """Stores the answer durably and returns it, or the first one. `row`: of the call, if it is known. Raises
        Misconfigured once another gateway owns the bus."""
        answer = None
        try:
            outcome = results.fit_for_event(outcome)
            if outcome.error_class == policy.UNKEPT:
                outcome = self._of_a_write(asked, outcome)
            if outcome.artifacts:
                outcome = await self._keep(asked, outcome)
            answer = results.answer_to(asked, outcome, at=utc_now())
        except NoRoom as error:
            outcome = results.not_stored(outcome, str(error))
        except (GiveUp, ValueError, RecursionError) as error:  # such as infinite numbers and deep nesting
            why = error if isinstance(error, GiveUp) else type(error).__name__
            message = f"the tool has run, but what it brought cannot be kept: {why}"
            lost = replace(failed(policy.UNKEPT, message, retryable=False), job=outcome.job)
            outcome = self._of_a_write(asked, lost)
        answer = answer or results.answer_to(asked, outcome, at=utc_now())
        with contextlib.suppress(TryAgain):
            await self.ownership.lease.ensure_held()
        answer = await self.ledger.answer(answer, row)
        self.observer.answered(asked, outcome)
        return answer

    def _of_a_write(self, asked: CallRequest, outcome: ToolOutcome) -> ToolOutcome:
        """A write has run whose result cannot be kept: the same one must not be planned again."""
        offered = self.offers.command(asked.request.tool, asked.request.tool_command)
        if offered is None or offered.may_repeat:
            return outcome
        return policy.in_doubt(asked, outcome.message or "", job=outcome.job)

    async def _keep(self, asked: CallRequest, outcome: ToolOutcome, *, unique: bool = False) -> ToolOutcome:
        """The outcome with its artifacts as they are stored: named uniquely in the run. A ledger that was restored, or
        has forgotten names, may give a name that has other content: then the `unique` ones are taken."""
        run_id, first = asked.request.run_id, -1 if unique else 0
        wanted = [
            (one, artifacts.name_candidates(one, asked, place=place)[first:])
            for place, one in enumerate(outcome.artifacts)
        ]
        names = await self.ledger.name_artifacts(run_id, asked.key, wanted, at=utc_now())
        kept = tuple(replace(one, name=name) for name, one in zip(names, outcome.artifacts, strict=True))
        try:
            for one in kept:
                await self.artifacts.put(f"{run_id}/{one.name}", one.content, one.content_type, over=unique)
        except NameTaken:
            return await self._keep(asked, outcome, unique=True)
        return replace(outcome, artifacts=kept)

    async def _publish(self, answer: Call) -> None:
        headers = results.headers_of(answer)
        await self.bus.publish(subjects.TOOL_RESULT, answer.body, key=answer.dedupe_key, headers=headers)
        await self.runner.forget(answer.key)
