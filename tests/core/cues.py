"""What can be fed to a `Script`: events with sane defaults, that fit the run as it stands unless told otherwise.

The names read as sentences after `>>`: `frames`, `plans`, `returns`, `errs`, `cancel`, `due`.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from agent_service.core.brief import Limits
from agent_service.core.events import (
    CancelRequested,
    Event,
    ModelReplied,
    ModelUnavailable,
    ModelUsage,
    Proof,
    RunStarted,
    Seen,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.phases import Action, Decision, Framing, Met, Next, Plan, Reflection, Unusable, Verdict
from agent_service.core.tools.attempts import Pending
from agent_service.errors import Remedy
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Constraints, Signal, SignalKind, ToolError, ToolOutput, ToolResult
from schemas.events import Outcome as SaidOutcome
from tests.core.script import NOON, Cue, Script

DEADLINE = NOON + timedelta(hours=1)
RUN_ID = "run_01JD7Z0000000000000000000A"


def tool(name: str, *, route: str, tier: Literal["read", "write"] = "read", idempotent: bool = False) -> ToolOffer:
    """An idempotent one stays in the house, too."""
    command = ToolCommand(name="handle", tier=tier, idempotent=idempotent, effect="local" if idempotent else None)
    return ToolOffer(name=name, route=route, commands=(command,), timeout_s=60.0, output="trusted")


FETCH = tool("fetch", route="jina-reader")
POST = tool("post", route="mailer", tier="write")
SAVE = tool("save", route="notebook", tier="write", idempotent=True)
ITSELF = tool("helper", route="agentic-loop")
BROWSE = FETCH.model_copy(update={"name": "browse", "output": "untrusted"})
"""Brings what strangers wrote."""
LEDGER = ToolOffer(
    name="ledger",
    route="ledger",
    output="trusted",
    commands=(ToolCommand(name="handle", tier="write"), ToolCommand(name="look", tier="read")),
)
"""Can be looked into, to see whether a write was carried out."""
TOOLS = (FETCH, POST, SAVE, ITSELF, BROWSE, LEDGER)

# Events


def limits(**numbers: Any) -> Limits:
    """Generous limits, but for `numbers`."""
    return replace(Limits(deadline_at=DEADLINE), **numbers)


def wake(
    *,
    fused: bool = True,
    depth: int = 0,
    announce: bool = False,
    untrusted: bool = False,
    verify: bool = False,
    **numbers: Any,
) -> WakeAccepted:
    """A run is asked for at noon; `numbers` are limits."""
    return WakeAccepted(
        at=NOON,
        run_id=RUN_ID,
        wake_id="wake-1",
        goal="critique example.org",
        limits=limits(**numbers),
        announce=announce,
        fused=fused,
        depth=depth,
        untrusted=untrusted,
        verify=verify,
        context={"tone": "constructive"},
    )


def started(tools: Iterable[ToolOffer] = TOOLS) -> Cue:
    return lambda script: RunStarted(at=script.now, skills=tuple(tools))


def replies(
    decision: Decision,
    *,
    plan: Next | Unusable | None = None,
    call: int | None = None,
    tokens: int = 100,
    cost: float | None = 0.01,
    heard: int | None = None,
    seen: tuple[Seen, ...] = (),
) -> Cue:
    """The model answers the call that is asked, or another one.

    `heard`: of how many words of people its prompt told; by default of all.
    """

    def cue(script: Script) -> Event:
        asked = script.state.asking.call if script.state.asking else script.state.calls
        read, written = tokens - tokens // 4, tokens // 4
        usage = ModelUsage(input_tokens=read, output_tokens=written, cost_usd=cost, cache_read_tokens=read // 2)
        return ModelReplied(
            at=script.now,
            call=call or asked,
            model="scripted",
            usage=usage,
            decision=decision,
            plan=plan,
            heard=script.state.heard if heard is None else heard,
            seen=seen,
        )

    return cue


def framing(*items: str) -> Framing:
    done = items or ("the page is fetched", "the critique is written", "it has two paragraphs")
    return Framing(goal_statement="Write a critique of example.org.", definition_of_done=done)


def plan(name: str = "fetch", command: str = "handle", **arguments: Any) -> Plan:
    action = Action(tool=name, command=command, arguments=arguments or {"url": "https://example.org"})
    return Plan(action=action, outline=("fetch", "write"), rationale="the page is needed")


PROOF = {"d1": "step:1", "d2": "step:1", "d3": "step:1"}
"""Every item of `framing()`, proved by the first step."""


def reflection(verdict: str, met: dict[str, str] | None = None, *, facts: tuple[str, ...] = ()) -> Reflection:
    items = tuple(Met(item=item, evidence=evidence) for item, evidence in (met or {}).items())
    return Reflection(verdict=Verdict(verdict), summary="looked at the result", met=items, facts=facts)


def frames(*items: str, **reply: Any) -> Cue:
    return replies(framing(*items), **reply)


def plans(name: str = "fetch", command: str = "handle", **arguments: Any) -> Cue:
    return replies(plan(name, command, **arguments))


def reflects(verdict: str, met: dict[str, str] | None = None, **reply: Any) -> Cue:
    return replies(reflection(verdict, met), **reply)


def goes_on(name: str = "fetch", **arguments: Any) -> Cue:
    """A fused reply: a reflection that continues, and its plan."""
    return replies(reflection("continue"), plan=plan(name, **arguments))


def garbles(reason: str = "not JSON", **reply: Any) -> Cue:
    return replies(Unusable(reason=reason, raw="Sure! Here is"), **reply)


def unavailable(remedy: Remedy, **details: Any) -> Cue:
    def cue(script: Script) -> Event:
        call = script.state.asking.call if script.state.asking else script.state.calls
        known: dict[str, Any] = {"call": call, "error_class": "overloaded", "message": "529"}
        return ModelUnavailable(at=script.now, remedy=remedy, **(known | details))

    return cue


def returns(
    status: Literal["ok", "error", "continuation"] = "ok",
    *,
    output: dict[str, Any] | None = None,
    error: ToolError | None = None,
    place: str = "",
    malformed: bool = False,
    of: Pending | None = None,
    proof: Proof | None = None,
    **correlation: Any,
) -> Cue:
    """The pending attempt returns, or that of `of`; `correlation` (step, tool, attempt) makes it another's result."""

    def cue(script: Script) -> Event:
        state = script.state
        known: dict[str, Any] = {"step": max(state.step, 1), "tool": "fetch", "attempt": 1}
        if state.pendings:
            asked = correlation.get("step")
            pending = of or next((p for p in state.pendings if p.step == asked), state.pendings[0])
            known = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
            known |= {"task": pending.task, "round": pending.round} if pending.task else {}
        elif state.completed:
            newest = state.completed[-1]
            known = {"step": newest.step, "tool": newest.tool, "attempt": newest.attempt}
        brought = {"summary": f"result of step {known['step']}"} if output is None else output
        result = ToolResult(
            run_id=state.run_id,
            status=status,
            result=ToolOutput.model_validate(brought),
            error=error,
            completed_at=script.now,
            **(known | correlation),
        )
        return ToolReturned(at=script.now, result=result, place=place, malformed=malformed, proof=proof)

    return cue


def errs(error_class: str = "tool_error", *, retryable: bool = False, **correlation: Any) -> Cue:
    error = ToolError(error_class=error_class, message="it broke", retryable=retryable)
    return returns("error", output={}, error=error, **correlation)


def garbled(**correlation: Any) -> Cue:
    """A result comes of which no more than what it relates to can be read."""
    error = ToolError(error_class="invalid_result", message="status: Field required", retryable=True)
    return returns("error", output={}, error=error, malformed=True, **correlation)


def cancel(reason: str = "no longer needed", *, by: str = "") -> Cue:
    return lambda script: CancelRequested(at=script.now, reason=reason, by=by)


def signal(
    kind: SignalKind,
    *,
    signal_id: str | None = None,
    message: str | None = None,
    arguments_hash: str | None = None,
    step: int | None = None,
    outcome: SaidOutcome | None = None,
    untrusted: bool = False,
    by: str = "os user ann",
    **constraints: Any,
) -> Cue:
    def cue(script: Script) -> Event:
        said = Signal(
            run_id=RUN_ID,
            signal_id=signal_id or f"signal-{len(script.story)}",
            kind=kind,
            message=message,
            constraints=Constraints(**constraints) if constraints else None,
            arguments_hash=arguments_hash,
            step=step,
            outcome=outcome,
            untrusted=untrusted,
        )
        return SignalReceived(at=script.now, signal=said, by=by)

    return cue


def resume() -> Cue:
    return signal("resume")


def breaks(reason: str = "a fault of the agent") -> Cue:
    return lambda script: TurnBroke(at=script.now, reason=reason)


def stood_still(seconds: float = 600.0) -> Cue:
    """Everything was stopped for so long, and goes on."""

    def cue(script: Script) -> Event:
        since, script.now = script.now, script.now + timedelta(seconds=seconds)
        return StoodStill(at=script.now, since=since, by="ann", reason="it mails everybody")

    return cue


def due(script: Script) -> Event:
    """The run's timer: the clock moves on to the instant that it waits for."""
    assert script.state.due_at is not None, "the run waits for no instant"
    script.now = max(script.now, script.state.due_at)
    return TimerFired(at=script.now)


def too_early(script: Script) -> Event:
    """A timer that fires before anything is due."""
    return TimerFired(at=script.now)


# Runs that have come as far as their name says


def queued(**details: Any) -> Script:
    return Script() >> wake(**details)


def a_framing_run(**details: Any) -> Script:
    return queued(**details) >> started()


def a_planning_run(**details: Any) -> Script:
    return a_framing_run(**details) >> frames()


def a_waiting_run(name: str = "fetch", **details: Any) -> Script:
    """The first step's tool is asked for."""
    return a_planning_run(**details) >> plans(name)


def a_reflecting_run(**details: Any) -> Script:
    """The first step is done."""
    return a_waiting_run(**details) >> returns()


def a_paused_run(**details: Any) -> Script:
    """Paused with a model call put off."""
    return a_reflecting_run(**details) >> unavailable("pause")


def a_run_paused_while_waiting(name: str = "fetch", **details: Any) -> Script:
    """The first step's tool is asked for, and the deadline has passed."""
    return a_waiting_run(name, on_budget="pause", **details).wait(hours=1) >> too_early


def a_retrying_run(**details: Any) -> Script:
    """The first attempt failed; the second waits to be sent."""
    return a_waiting_run(**details) >> errs("upstream", retryable=True)


def a_finished_run(**details: Any) -> Script:
    return a_reflecting_run(**details) >> reflects("done", PROOF)
