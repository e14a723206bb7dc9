"""Model calls: bounded in number, cancellable, and always ended by an event.

A call holds a slot while it runs; an abandoned or unrequested call returns nothing. Its reserve is committed before it
is made, so a reserve without a reply was left by a dead process. Plan arguments are checked against the tool's JSON
Schema here: a flaw goes back to the model and never to the tool.
"""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from agent_service.admission.limits import SharedLimits
from agent_service.core.brief import Brief
from agent_service.core.decide import with_reserve
from agent_service.core.events import ModelReplied, ModelUnavailable, Transition
from agent_service.core.facts import CallReserved
from agent_service.core.phases import Action, Decision, Next, Plan, Reflection, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import OpenCall
from agent_service.errors import ModelError
from agent_service.kill_switch import KillSwitch
from agent_service.run.citations import CitationChecker
from agent_service.run.ports import RATE_ERRORS, Clock, Model, ModelCall, ModelQuestion, ReservedFunds
from schemas.argument_schemas import LONGEST_FLAW, argument_flaws, validator_of
from schemas.bounded import storable
from schemas.values import dataclass, replace

DECISIONS: TypeAdapter[tuple[Decision, Next | Unusable | None]] = TypeAdapter(
    tuple[Decision, Next | Unusable | None], config=ConfigDict(defer_build=True, ser_json_inf_nan="constants")
)

CallEvent = CallReserved | ModelReplied | ModelUnavailable
"""Outcome of one half of a model call: reserve, then call."""
MOST_BYTES = 128 * 1024
"""Bytes of a reply: a request must fit into a message (1 MiB), and the journal keeps it for ever."""
MOST_FLAWS = 8
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")
"""In JSON; behind another backslash it is the text of a program, such as `[^\\u0000]`."""
UNUSABLE = frozenset({"model_auth", "model_not_found"})
TROUBLE_FOR = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admitted:
    call: ModelCall
    tokens: int
    funds: ReservedFunds | None = None
    stored_in: int
    """Entry of the reserve."""


@dataclass(slots=True)
class ModelCaller:
    model: Model
    citations: CitationChecker
    clock: Clock
    kill_switch: KillSwitch
    limits: SharedLimits
    slots: asyncio.Semaphore
    _in_flight: dict[tuple[str, int], tuple[int, asyncio.Timeout]] = field(init=False, default_factory=dict)
    """By run and call: the version of the run that requested it, and what ends it."""
    _admitted: dict[tuple[str, int], _Admitted] = field(init=False, default_factory=dict)
    _trouble: tuple[datetime, str] | None = field(init=False, default=None)

    @property
    def trouble(self) -> str:
        if self._trouble is None or self.clock.now() - self._trouble[0] > TROUBLE_FOR:
            return ""
        return self._trouble[1]

    async def think(self, state: RunState, open_call: OpenCall) -> CallEvent | None:
        """None if the call is already in flight here, or was abandoned. Raises Stopped while all is stopped."""
        key = state.run_id, open_call.call
        if key in self._in_flight:
            return None
        is_ours = key in self._admitted  # else a dead process has left the reserve, and its call may have cost
        try:
            async with asyncio.timeout(None) as ending:
                self._in_flight[key] = state.version, ending
                async with self.slots:
                    return await self._next_half(key, state, open_call)
        except ModelError as error:
            if not is_ours and (left := state.reserve):
                error.lost = error.lost or left.if_lost or (left.tokens, left.cost_usd)
            return self._unavailable(error, open_call.call)
        except TimeoutError:
            if not ending.expired():
                raise
            return None  # abandoned: only the call ends, not the turn that made it
        finally:
            if self._in_flight.get(key, (0, None))[1] is ending:  # else it was abandoned, and may be made again
                del self._in_flight[key]

    def reserve(self, decided: Transition) -> Transition:
        """Adds the first half of the call that a transition asks for, if it need not wait; else `think` makes it."""
        state = decided.state
        if self.model.is_free or state is None or (calling := state.active_call) is None:
            return decided
        key, limits = (state.run_id, calling.call), self.limits
        waits = self.slots.locked() or self.kill_switch.blocked_by or key in self._in_flight
        if waits or limits.rate_limiter.is_limited or limits.spending.is_limited(state.brief.caller):
            return decided
        with suppress(Exception):  # `think` meets it again
            call = self.model.prepare(self._question(state, calling))
            if call.reserved and (reserving := with_reserve(decided, call.reserved)):
                tokens, entry = call.reserved.reserve.tokens, state.version
                self._admitted[key] = _Admitted(call=call, tokens=tokens, stored_in=entry)
                return reserving
        return decided

    @property
    def under_way(self) -> int:
        return len(self._in_flight)

    def calls_of(self, run_id: str) -> dict[int, int]:
        """Calls that are admitted or in flight here, with the run's entry that each belongs to."""
        admitted = {call: one.stored_in for (of, call), one in self._admitted.items() if of == run_id}
        return admitted | {call: version for (of, call), (version, _) in self._in_flight.items() if of == run_id}

    def abandon_all(self, run_id: str, up_to: int) -> None:
        for of, call in {*self._in_flight, *self._admitted}:
            if of == run_id and call <= up_to:
                self.abandon(run_id, call)

    def abandon(self, run_id: str, call: int) -> None:
        if admitted := self._admitted.pop((run_id, call), None):
            self.limits.rate_limiter.settle(admitted.tokens, 0)
            self.limits.spending.release(run_id, admitted.funds)
        if in_flight := self._in_flight.pop((run_id, call), None):
            in_flight[1].reschedule(0)

    async def _next_half(self, key: tuple[str, int], state: RunState, calling: OpenCall) -> CallEvent | None:
        admitted = self._admitted.get(key)
        if admitted and state.version < admitted.stored_in:
            return None  # its reserve is being committed; that turn makes the call
        self.kill_switch.check()
        if admitted and state.reserve:
            del self._admitted[key]
            return await self._second_half(admitted, state)
        call = self.model.prepare(self._question(state, calling))
        if call.reserved is None:
            return await self._checked_reply(await call.make(), state)
        tokens, usd = call.reserved.reserve.tokens, call.reserved.reserve.cost_usd
        funds = await self.limits.spending.admit(state, usd)
        try:
            await self.limits.rate_limiter.admit(tokens)
            if self.kill_switch.blocked_by:  # the limits may have taken a while
                self.limits.rate_limiter.settle(tokens, 0)
            self.kill_switch.check()
        except BaseException:
            self.limits.spending.release(key[0], funds)
            raise
        entry = state.version + 1
        self._admitted[key] = _Admitted(call=call, tokens=tokens, funds=funds, stored_in=entry)
        return replace(call.reserved, at=self.clock.now())

    async def _second_half(self, admitted: _Admitted, state: RunState) -> CallEvent:
        used = 0
        try:
            reply = await admitted.call.make()
            self._trouble = None
            used = reply.usage.input_tokens + reply.usage.output_tokens
        except ModelError as error:
            used = error.lost[0] if error.lost else 0
            if error.error_class in RATE_ERRORS and error.retry_after_s is not None:
                self.limits.rate_limiter.hold(error.retry_after_s, str(error))
            raise
        finally:
            self.limits.rate_limiter.settle(admitted.tokens, used)
        return await self._checked_reply(reply, state)

    def _question(self, state: RunState, calling: OpenCall) -> ModelQuestion:
        return ModelQuestion(state=state, call=calling.call, phase=calling.phase, now=self.clock.now())

    def _unavailable(self, error: ModelError, call: int) -> ModelUnavailable:
        if error.error_class in UNUSABLE:
            self._trouble = self.clock.now(), str(error)
        return ModelUnavailable(
            at=self.clock.now(),
            call=call,
            remedy=error.remedy,
            error_class=error.error_class,
            message=storable(str(error)),
            retry_after_s=error.retry_after_s,
            lost=error.lost,
        )

    async def _checked_reply(self, reply: ModelReplied, state: RunState) -> ModelReplied:
        decision, plan, seen = reply.decision, reply.plan, reply.seen
        if flaw := _unstorable(reply):
            decision, plan = Unusable(reason=flaw), None
        elif isinstance(decision, Plan):
            decision = _checked(state.brief, decision)
        elif isinstance(plan, Plan):
            plan = _checked(state.brief, plan)
        if isinstance(decision, Reflection) and decision.met:
            seen = await self.citations.check(state, decision.met)
        return replace(reply, at=self.clock.now(), decision=decision, plan=plan, seen=seen)


def _checked(brief: Brief, plan: Plan) -> Plan | Unusable:
    flaws, actions = list[str](), plan.actions
    for action in actions:
        flaws += flaws_of_arguments(brief, action)
    if not flaws:
        return plan
    tools = ", ".join(dict.fromkeys(action.tool for action in actions))
    return Unusable(reason=f"arguments of {tools}: {'; '.join(flaws)}", flaws=tuple(flaws))


def flaws_of_arguments(brief: Brief, action: Action) -> tuple[str, ...]:
    command = brief.command(action)
    if command is None or not command.input_schema:
        return ()
    try:
        validator = validator_of(command.input_schema)
    except ValueError as error:
        return (f"the schema of {action.tool} cannot be used: {error}"[:LONGEST_FLAW],)
    return argument_flaws(validator, action.arguments, most=MOST_FLAWS, whole="arguments")


def _unstorable(reply: ModelReplied) -> str | None:
    try:
        text = DECISIONS.dump_json((reply.decision, reply.plan))
        if b"NaN" in text or b"Infinity" in text:  # a number, or a word
            json.dumps(json.loads(text), allow_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        return f"the reply is not JSON in UTF-8: {str(error)[:200]}"
    if b"\\u0000" in text and _NUL.search(text):
        return "the reply contains a NUL character"
    if len(text) > MOST_BYTES:
        return f"the reply has {len(text)} bytes, more than {MOST_BYTES}: pass large content as an artifact"
    return None
