"""Intake: turns bus messages and API calls into events of their runs.

An accepted run is durable and starts by itself (`recovery`), so its message is acknowledged before. A start is
identified by its `wake_id`, else its dedupe key (without `agentic:start:`), else its `Nats-Msg-Id` with its content,
else its place in the stream: delivered or published twice, it is one run. An unreadable or ungranted message is refused
with a reason and nothing is stored; an unreadable result with a readable correlation ends its run's wait.
"""

import hashlib
import json
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from typing import Any, NoReturn

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent_service.admission.limits import Capacity, LimitPolicy, Quotas
from agent_service.core import events
from agent_service.core.brief import Brief, Parent
from agent_service.core.people import ASKED_FOR, RAISING
from agent_service.core.state import RunState
from agent_service.errors import LimitRefused, VersionMoved, WakeConflict
from agent_service.metrics import IncomingMetrics
from agent_service.run.children import DEPTH, WAKE_PREFIX
from agent_service.run.human_tasks import remedy
from agent_service.run.inbound import InboundMessage, InvalidMessage, UnknownRun
from agent_service.run.ports import Skills
from agent_service.run.turn import Turns
from agent_service.settings import BUS, AgentSettings
from agent_service.trust import identity
from groundwork.telemetry.span import context_of
from schemas import catalog, keys, subjects
from schemas.bounded import json_object
from schemas.catalog import ToolOffer
from schemas.envelope import CAPABILITY, MSG_ID, RETRIED_BY, TRACEPARENT, Misshapen, expected_form, to_envelope
from schemas.events import (
    BROUGHT_BY,
    INBOUND,
    MAX_MESSAGE_BYTES,
    AgenticStart,
    Cancel,
    Correlation,
    Envelope,
    Signal,
    ToolError,
    ToolResult,
    envelope_of,
)
from schemas.fields import Id, validation_flaws
from schemas.values import dataclass

_ID: TypeAdapter[str] = TypeAdapter(Id, config=ConfigDict(defer_build=True))
START_PREFIX = keys.start("")


@dataclass(slots=True)
class Intake:
    turns: Turns
    skills: Skills
    settings: AgentSettings
    incoming: IncomingMetrics
    policy: LimitPolicy = field(init=False)
    capacity: Capacity = field(init=False)
    quotas: Quotas = field(init=False)

    def __post_init__(self) -> None:
        self.policy, self.quotas = LimitPolicy(self.settings), self.turns.model_caller.limits.quotas
        self.capacity = Capacity(self.turns.store.counts, max_queued=self.settings.http.max_queued)

    def receive(self, arrival: InboundMessage) -> Awaitable[None]:
        """Handles one message with its whole turn; a start only until its run is durable. Raises TryAgain, or
        InvalidMessage (dead letter; its kind UnknownRun may pass by itself).
        """
        try:
            envelope = _parse(arrival)
        except InvalidMessage as error:
            return self._end_wait(arrival, error)
        match envelope.payload:
            case ToolResult() as result:
                return self._on_result(result, arrival, envelope.dedupe_key or "")
            case AgenticStart() as start:
                return self._on_start(arrival, start, _wake_id(start, envelope.dedupe_key, arrival))
            case Cancel() as cancel:
                return self._on_cancel(cancel, arrival)
        return self._on_signal(envelope.payload, arrival)

    async def wake(
        self,
        wake_id: str,
        start: AgenticStart,
        *,
        known: bool,
        by: str,
        payer: str = "",
        traceparent: str | None = None,
        announce: bool = True,
    ) -> tuple[str, events.Transition | None]:
        """Stores a run; returns its id and the transition to perform. `known`: the wake id exists, so limits were
        granted before. `by`: caller, for the record. `payer`: owner of the quota. Raises LimitRefused, WakeConflict and
        TryAgain (Stopped too); then nothing is stored.
        """
        settings, policy = self.settings, self.policy
        if wake_id.startswith(WAKE_PREFIX):
            raise LimitRefused("wake_id", f"may not begin with {WAKE_PREFIX}, which names runs that a run started")
        depth, limits, at = 0, policy.defaults, self.turns.clock.now()
        run_id = self.turns.clock.new_run_id(at)
        if not known:
            self.turns.kill_switch.check()
            try:
                parent = await self.turns.state(start.parent_run_id) if start.parent_run_id else None
                depth = depth_of(start, parent, deepest=policy.defaults.max_depth)
                limits = policy.grant(start.constraints, context=start.context, at=at)
            except LimitRefused:
                if await self.turns.store.run_by_wake(wake_id) is None:  # else it comes again, and was granted before
                    raise
        brief = Brief(
            goal=start.goal,
            limits=limits,
            context=start.context,
            fused=settings.phases == "fused",
            short_rules=settings.model.prompt == "short",
            verify=settings.verify,
            depth=depth,
            parent=Parent(run_id=start.parent_run_id) if start.parent_run_id else None,
            callback=start.callback,
            announced=announce,
            trace_url=identity.trace_url(settings.trace_url, run_id),
            caller=payer,
            untrusted=start.untrusted,
        )
        linked = traceparent if context_of(traceparent) else None
        asked_by = identity.by(by, says=start.by)
        event = events.WakeAccepted(at=at, run_id=run_id, wake_id=wake_id, brief=brief, by=asked_by, traceparent=linked)
        return await self.turns.accept(event, _digest(start))

    async def cancel(self, cancel: Cancel, *, by: str) -> events.Transition:
        """Commits the cancel; the caller performs it. `ignored` says why there was nothing to cancel."""
        reason, who = cancel.reason or "cancelled on request", identity.by(by, says=cancel.by)
        event = events.CancelRequested(at=self.turns.clock.now(), reason=reason, by=who)
        return await self.turns.commit(cancel.run_id, event)

    async def signal(self, signal: Signal, *, by: str, said_at: datetime | None = None) -> events.Transition:
        """Commits the signal; the caller performs it. Raises LimitRefused."""
        if signal.constraints:
            if signal.kind not in RAISING:
                why = f"do not belong to a signal of kind {signal.kind}: send them with raise_budget, or an answer"
                raise LimitRefused("constraints", why)
            self.policy.check_caps(signal.constraints, at=self.turns.clock.now())
        who = identity.by(by, says=signal.by)
        event = events.SignalReceived(at=self.turns.clock.now(), signal=signal, by=who, said_at=said_at)
        return await self.turns.commit(signal.run_id, event)

    async def begin(self, run_id: str) -> events.Transition:
        """Commits the start of a queued run; the caller performs it. Raises TryAgain while no tool catalog is known."""
        offered = (await self.skills.catalog()).tools
        state = await self.turns.state(run_id)
        skills = tools_of(state.brief, offered) if state else ()
        return await self.turns.commit(run_id, events.RunStarted(at=self.turns.clock.now(), skills=skills), ends=True)

    async def _on_result(
        self, result: ToolResult, arrival: InboundMessage, key: str, *, malformed: bool = False
    ) -> None:
        """Raises InvalidMessage for a result that is not authentic."""
        transition = None
        # A result is judged by the pending requests: again if they have changed meanwhile.
        while transition is None:
            state = await self.turns.state(result.run_id)
            event = self._result_event(result, state, arrival, key, malformed=malformed)
            with suppress(VersionMoved):
                transition = await self.turns.commit(result.run_id, event, state, ends=True)
        if transition.state is None:
            raise UnknownRun(result.run_id)
        await self.turns.follow(transition)
        if transition.refused:
            raise InvalidMessage(str(transition.ignored))
        if transition.ignored:
            is_finished = transition.state.has_finished(result.step)
            self.incoming.dedupe.add("result_duplicate" if is_finished else "result_stale")

    def _result_event(
        self, result: ToolResult, state: RunState | None, arrival: InboundMessage, key: str, *, malformed: bool
    ) -> events.ToolReturned:
        named = keys.task_of_result(key, result.run_id, result.step)
        if named and named[0] and result.round is None and result.task in (None, named[0]):
            result = result.model_copy(update={"task": named[0], "round": named[1]})
        given = result.capability or arrival.headers.get(CAPABILITY)
        result, proof = self.turns.publisher.capabilities.of_result(result, given, state)
        is_named = malformed or named is not None or result.round is not None
        place = "" if result.attempt and is_named else arrival.place
        return events.ToolReturned(
            at=self.turns.clock.now(), result=result, malformed=malformed, place=place, proof=proof
        )

    async def _end_wait(self, arrival: InboundMessage, invalid: InvalidMessage) -> NoReturn:
        """Ends the wait for an unreadable result, and raises `invalid`."""
        if found := _correlation_of(arrival) if arrival.subject == subjects.TOOL_RESULT else None:
            about, key = found
            error = ToolError(error_class="invalid_result", message=str(invalid), retryable=True)
            result = ToolResult(**about.model_dump(), status="error", error=error, completed_at=self.turns.clock.now())
            with suppress(InvalidMessage):
                await self._on_result(result, arrival, key, malformed=True)
        raise invalid

    async def _on_cancel(self, cancel: Cancel, arrival: InboundMessage) -> None:
        await self.turns.follow(_known(cancel.run_id, await self.cancel(cancel, by=_sender(arrival))))

    async def _on_signal(self, signal: Signal, arrival: InboundMessage) -> None:
        brought = BROUGHT_BY.get(signal.kind)
        if signal.kind not in ASKED_FOR and brought and not getattr(signal, brought):  # a run says what a ruling lacks
            raise InvalidMessage(f"a signal of kind `{signal.kind}` brings `{brought}`, and this one has none")
        try:
            transition = await self.signal(signal, by=_sender(arrival), said_at=arrival.at)
        except LimitRefused as refusal:
            raise InvalidMessage(str(refusal)) from refusal
        _known(signal.run_id, transition)
        if signal.kind in ASKED_FOR and (why := why_ignored(signal, transition)):  # its sender has to know
            raise InvalidMessage(why)
        await self.turns.follow(transition)

    async def _on_start(self, arrival: InboundMessage, start: AgenticStart, wake_id: str) -> None:
        if start.run_id is not None:  # announced by an agent, which starts it from its store
            if await self.turns.state(start.run_id) is None:
                raise UnknownRun(start.run_id)
            return
        self.turns.kill_switch.check()
        await self.capacity.check(by_bus=True)
        try:
            with self.incoming.wake("stream") as waking:
                about: dict[str, Any] = {"by": _sender(arrival), "payer": BUS, "announce": False}
                async with self.quotas.wake(BUS):
                    caller = arrival.headers.get(TRACEPARENT)
                    _, accepted = await self.wake(wake_id, start, known=False, traceparent=caller, **about)
                waking.duplicate = accepted is None
        except (LimitRefused, WakeConflict) as refusal:
            raise InvalidMessage(str(refusal)) from refusal
        await self.turns.follow(accepted)


def _parse(arrival: InboundMessage) -> Envelope[Any]:
    """Raises InvalidMessage."""
    if len(arrival.body) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"a message of {len(arrival.body)} bytes: at most {MAX_MESSAGE_BYTES} are taken")
    if arrival.subject not in INBOUND:
        raise InvalidMessage(f"subject {arrival.subject} carries nothing that the agent takes")
    try:
        body = to_envelope(arrival.subject, arrival.body, arrival.headers)
        envelope = envelope_of(arrival.subject).model_validate_json(body)
    except (ValidationError, Misshapen) as error:
        flaws = validation_flaws(error) if isinstance(error, ValidationError) else str(error)
        raise _invalid(arrival, flaws) from error
    if envelope.type != arrival.subject:
        raise _invalid(arrival, f"a message of another type came on subject {arrival.subject}")
    return envelope


def _invalid(arrival: InboundMessage, flaws: str) -> InvalidMessage:
    return InvalidMessage(f"not a valid {arrival.subject}: {flaws}; {expected_form(arrival.subject)}")


def _correlation_of(arrival: InboundMessage) -> tuple[Correlation, str] | None:
    """Correlation of an unreadable result, and its dedupe key, which may name the sub-request that it does not."""
    with suppress(Misshapen, ValidationError):
        found = json_object(to_envelope(arrival.subject, arrival.body, arrival.headers)) or {}
        payload, key = found.get("payload"), str(found.get("dedupe_key") or "")
        with suppress(ValidationError):
            return Correlation.model_validate(payload), key
        if isinstance(payload, dict):  # its sub-request may be what cannot be read
            bare = Correlation.model_validate(payload | {"task": None, "round": None})
            task, _ = keys.task_of_result(key, bare.run_id, bare.step) or (None, None)
            return (bare, key) if task else None
    return None


def why_ignored(signal: Signal, transition: events.Transition) -> str:
    state = transition.state
    if not transition.ignored or state is None or signal.signal_id in state.signals:
        return ""
    final = "a run that has ended is final: start a new one" if state.final else ""
    now = remedy(state) or final
    return f"the run took no notice: {transition.ignored}" + (f"; {now}" if now else "")


def _sender(arrival: InboundMessage) -> str:
    return identity.by(BUS, repeated_by=arrival.headers.get(RETRIED_BY))


def _known(run_id: str, transition: events.Transition) -> events.Transition:
    if transition.state is None:
        raise UnknownRun(run_id)
    return transition


def _wake_id(start: AgenticStart, dedupe_key: str | None, arrival: InboundMessage) -> str:
    if start.wake_id:
        return start.wake_id
    external = (dedupe_key or "").removeprefix(START_PREFIX)
    if not external:
        msg_id = arrival.headers.get(MSG_ID)
        digest = hashlib.sha256(f"{msg_id}\n".encode() + arrival.body).hexdigest()[:40] if msg_id else ""
        return f"nats-{digest or arrival.place}"
    return id_of(external)


def id_of(text: str) -> str:
    try:
        return _ID.validate_python(text)
    except ValidationError:
        return f"key-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _digest(start: AgenticStart) -> str:
    asked = start.model_dump(mode="json", exclude={"run_id", "wake_id", "by"})
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def depth_of(start: AgenticStart, parent: RunState | None, *, deepest: int) -> int:
    """Recursion depth, at least one more than the parent's. `parent`: the named run, if it is here. An invalid depth
    counts as the deepest. Raises LimitRefused for a parent that is unknown or has ended, and for a depth above
    `deepest`.
    """
    given = start.context.get(DEPTH, 0)
    in_context = given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else deepest
    if start.parent_run_id is None and not start.depth:
        return in_context
    if start.parent_run_id and (parent is None or parent.final):
        raise LimitRefused("parent_run_id", f"{start.parent_run_id} is not a run that is under way here")
    depth = max(start.depth, in_context, parent.brief.depth + 1 if parent else 0)
    if depth > deepest:
        raise LimitRefused("depth", f"would be {depth}, and agents may call each other {deepest} times in a row")
    return depth


def tools_of(brief: Brief, offered: Sequence[ToolOffer]) -> tuple[ToolOffer, ...]:
    """Offered tools that the run may use. At the deepest level it may not call agents."""
    named = [tool for tool in offered if brief.tools is None or tool.name in brief.tools]
    if brief.may_have_children:
        return tuple(named)
    return tuple([tool for tool in named if (tool.name, tool.route) != (catalog.NAME, subjects.SERVICE_AGENT)])
