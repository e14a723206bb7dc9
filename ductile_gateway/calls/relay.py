"""A tool request, from the bus to the tool and back.

    request ─▶ ledger: known? ─▶ admit ─▶ intent durable, tool ─▶ artifacts, answer durable ─▶ publish ─▶ (ack)

An answered call is never run again: its answer is published again. An intent is durable right before the tool starts,
with what its runner needs to find the call; without an answer it is looked for, never simply run.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container
from datetime import timedelta
from functools import partial
from weakref import WeakValueDictionary

from ductile_gateway.calls import policy, results
from ductile_gateway.calls.answers import Answers
from ductile_gateway.calls.call import (
    AlreadyStarted,
    Answer,
    Asked,
    Intent,
    Past,
    Receipt,
    ToolCall,
    ToolOutcome,
    Unacceptable,
    Unknown,
    Unwanted,
    Verdict,
)
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.waiting import A_MOMENT, FULL, Lanes, Standstill, WaitingCalls, check_wanted, waited
from ductile_gateway.ports import Artifacts, Bus, HasEnded, Observer, Offers, Ownership, ToolRunner
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.service.machine import utc_now
from schemas.values import dataclass, replace

PUBLISHED_AGAIN = timedelta(seconds=60)
"""How far back results are published once more: a power cut may have cost the bus what it had acknowledged."""
PUBLISHED_AT_ONCE = 32

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Relay:
    """`escalated`: tools whose repeated writes are put to a person."""

    offers: Offers
    runner: ToolRunner
    lanes: Lanes
    escalated: Container[str] = frozenset()
    ledger: Ledger
    artifacts: Artifacts
    bus: Bus
    has_ended: HasEnded
    ownership: Ownership
    standstill: Standstill
    observer: Observer

    def __post_init__(self) -> None:
        self.answers = Answers(self.ledger, self.artifacts, self.bus, self.ownership, self.observer)
        self.waiting = WaitingCalls()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, asked: Asked, check: Callable[[], Awaitable[None]] | None = None) -> None:
        """One request, until its result is published. `check`: whether it may be taken at all, once it is known whether
        it writes. Raises Unacceptable, TryAgain, Broken or Misconfigured."""
        async with self._locks.setdefault(asked.key, asyncio.Lock()):
            try:
                with self.waiting.noted(asked):
                    self._check_known(asked)
                    if check:
                        await check()
                    past = await self.ledger.find(asked.key)
                    await self._publish(await self._answer(asked, past))
            except TryAgain:
                self.observer.put_off(asked)
                raise

    def _check_known(self, asked: Asked) -> None:
        if why := self.offers.awaited(asked.request.tool):
            raise TryAgain(why)

    def begin_no_more(self) -> None:
        self.standstill.close()
        self.lanes.close()

    async def say_again(self) -> None:
        """Publish the answers of late: the bus may have forgotten them. The request of one that was never published is
        delivered again."""
        since = utc_now() - PUBLISHED_AGAIN
        answers = await self.ledger.answers_to_publish(since)
        if answers:
            log.info("saying again", extra={"to_publish": len(answers)})
        for first in range(0, len(answers), PUBLISHED_AT_ONCE):
            await asyncio.gather(*map(self._publish, answers[first : first + PUBLISHED_AT_ONCE]))

    async def _answer(self, asked: Asked, past: Past) -> Answer:
        if past is None:
            return await self.answers.record(asked, await self._first(asked))
        if (past.asked.digest if isinstance(past, Intent) else past.digest) != asked.digest:
            raise Unacceptable(f"protocol violation: another request was made before under the key {asked.key}")
        if isinstance(past, Intent):  # it is not judged again: it was when it was new
            return await self.answers.record(asked, await self._taken_up(past))
        self.observer.known(asked)
        return results.brought_back(past, asked.request.capability)

    async def _first(self, asked: Asked) -> ToolOutcome:
        if why := self.standstill.why:
            with self.waiting.in_line(asked, why):
                await self.standstill.over()
        asked = self.standstill.without_it(asked)
        request = asked.request
        async with contextlib.AsyncExitStack() as place:
            with self.waiting.in_line(asked, FULL.format(tool=request.tool)):
                await place.enter_async_context(self.lanes.enter(request.run_id, request.tool))
            self.standstill.check()
            offer, flaw = self.offers.find(request.tool), self.offers.flaw(asked)
            admitted = policy.admit(asked, offer, flaw=flaw, now=utc_now())
            if isinstance(admitted, Intent):
                return await self._run(admitted)
            told = {"error_class": admitted.error_class, "why": admitted.message}
            log.warning("refused", extra=asked.facts() | told)
            return policy.having_waited(admitted, self.waiting.why(asked.key))

    async def _run(self, intent: Intent) -> ToolOutcome:
        call = await self._call(intent)
        if isinstance(call, ToolOutcome):
            return call
        try:
            return await self._start(intent, call)
        except AlreadyStarted:  # a crash took the intent of the call, and not what the runner remembers
            return await self._resumed(intent, call) or await self._start(intent, call)

    async def _call(self, intent: Intent) -> ToolCall | ToolOutcome:
        request = intent.asked.request
        command = self.offers.command(request.tool, request.tool_command)
        payload = await self.answers.arguments(intent.asked, command)
        return ToolCall.of(intent, payload) if isinstance(payload, dict) else payload

    async def _start(self, intent: Intent, call: ToolCall) -> ToolOutcome:
        doubt = self.ownership.doubt(intent.asked)
        try:
            if waited(intent) > A_MOMENT:  # its run may have ended, and what is away is waited for
                await check_wanted(intent, self.has_ended)
            if doubt and not intent.may_repeat:
                verdict: Verdict = Unknown(doubt)
            else:
                verdict = await self._verdict(call, self.runner.run(call, partial(self._begin, intent)))
        except Unwanted:
            return policy.UNWANTED
        return self._of_reruns(policy.after_run(verdict, intent), intent)

    async def _begin(self, intent: Intent, receipt: Receipt | None = None) -> None:
        await check_wanted(intent, self.has_ended)
        self.standstill.check()
        await self.ownership.held()
        if receipt or not intent.may_repeat:  # else, if a crash takes it, the call is repeated: it may be
            await self.ledger.intend(intent, receipt)
            await self.ownership.held()  # a process may have been stopped while it was written
        self.observer.begun(intent.asked)

    def _of_reruns(self, outcome: ToolOutcome, intent: Intent) -> ToolOutcome:
        if outcome.job.was_rerun and not intent.may_repeat:
            facts = {"job_id": outcome.job.job_id, "attempts": outcome.job.attempts}
            log.warning("a write was run more than once", extra=intent.asked.facts() | facts)
        escalates = intent.asked.request.tool in self.escalated
        return policy.after_reruns(outcome, intent, escalates=escalates)

    async def _taken_up(self, intent: Intent) -> ToolOutcome:
        """What came of a call that was begun before. Raises TryAgain while another gateway lives that began it. It is
        adopted only where it can be found from here, or repeated, so that a crash of this one leaves it in doubt as
        well."""
        anywhere = intent.may_repeat or self.runner.finds_anywhere
        lost = await self.ownership.lost(intent, anywhere=anywhere)
        if lost and not anywhere:
            return policy.after_run(Unknown(lost), intent)
        if lost:
            await self.ledger.adopt(intent)
        log.info("resuming", extra=intent.asked.facts())
        call = await self._call(intent)
        if isinstance(call, ToolOutcome):
            call = replace(ToolCall.of(intent, intent.asked.request.tool_payload), complete=False)
        return await self._resumed(intent, call) or await self._first(intent.asked)

    async def _resumed(self, intent: Intent, call: ToolCall) -> ToolOutcome | None:
        """What came of a call that may have been started; None where it may be started anew."""
        outcome = policy.after_resume(await self._verdict(call, self.runner.resume(call)), intent)
        if outcome:
            return self._of_reruns(outcome, intent)
        await self.runner.forget(call.key)
        return None

    async def _verdict(self, call: ToolCall, running: Awaitable[Verdict]) -> Verdict:
        try:
            verdict = await running
        except (AlreadyStarted, Unwanted, TryAgain, Broken, Misconfigured):
            raise
        except Exception as error:  # whatever failed there, the tool may have run, and the agent has to hear of it
            log.exception("the runner failed", extra=call.facts())
            return Unknown(f"the gateway failed while it ran ({type(error).__name__})")
        reads = results.reads_form(self.offers.find(call.asked.request.tool))
        return results.in_words(verdict, plugin=call.plugin, reads=reads)

    async def _publish(self, answer: Answer) -> None:
        await self.answers.publish(answer)
        await self.runner.forget(answer.key)
