"""Events that fit a run as it stands, with defaults, and runs in various states.

The names read as sentences after `>>`: `frames`, `plans`, `returns`, `errs`, `cancel`, `due`.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from agent_service.core.brief import Brief, Continuations, Limits
from agent_service.core.events import (
    CancelRequested,
    Event,
    ModelReplied,
    ModelUnavailable,
    ModelUsage,
    QuoteCheck,
    RunStarted,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.events import CapabilityCheck as Capable
from agent_service.core.facts import CallReserved
from agent_service.core.framing import parse_places
from agent_service.core.phases import (
    Action,
    AskPerson,
    Decision,
    Digest,
    Framing,
    ItemClaim,
    ItemRetraction,
    ModelRefusal,
    Next,
    Plan,
    Proof,
    Reflection,
    Unusable,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.waiting import Approval, CallReserve, Pending
from agent_service.errors import Remedy
from agent_service.run.children import result_of
from agent_service.run.children import wake as wake_of
from agent_service.run.intake import tools_of
from schemas import catalog
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Constraints, Signal, SignalKind, ToolError, ToolOutput, ToolResult
from tests.core.script import NOON, Cue, Script, asked_for_anew

DEADLINE = NOON + timedelta(hours=1)
RUN_ID = "run_01JD7Z0000000000000000000A"


def tool(name: str, *, route: str, tier: Literal["read", "write"] = "read", idempotent: bool = False) -> ToolOffer:
    """An idempotent tool has a local effect, too."""
    command = ToolCommand(name="handle", tier=tier, idempotent=idempotent, effect="local" if idempotent else None)
    return ToolOffer(name=name, route=route, commands=(command,), timeout_s=60.0, output="trusted")


FETCH = tool("fetch", route="jina-reader")
POST = tool("post", route="mailer", tier="write")
SAVE = tool("save", route="notebook", tier="write", idempotent=True)
ITSELF = tool("helper", route="agentic-loop")
BROWSE = FETCH.model_copy(update={"name": "browse", "output": "untrusted"})
"""Brings untrusted content."""
LEDGER = ToolOffer(
    name="ledger",
    route="ledger",
    output="trusted",
    commands=(ToolCommand(name="handle", tier="write"), ToolCommand(name="look", tier="read")),
)
"""Can be looked into, to see whether a write was carried out."""
TOOLS = (FETCH, POST, SAVE, ITSELF, BROWSE, LEDGER)

SHELF = tool("knowledge", route="shelf")
LOOK = tool("look", route="window")
SKILLS = (FETCH, POST, SAVE, BROWSE, LEDGER, SHELF, LOOK)
AGENT = catalog.agent_tool()
FAMILY = (FETCH, POST, BROWSE, AGENT)

# Events


def made(cue: Cue, script: Script) -> Event:
    return cue(script) if callable(cue) else cue


def limits(**numbers: Any) -> Limits:
    """Generous limits, except for `numbers`."""
    return replace(Limits(deadline_at=DEADLINE), **numbers)


OF_A_BRIEF = {field.name for field in fields(Brief)}


def wake(*, run_id: str = RUN_ID, wake_id: str = "wake-1", **details: Any) -> WakeAccepted:
    """A wake at noon; `details` are fields of its brief, and limits."""
    about: dict[str, Any] = {"goal": "critique example.org", "context": {"tone": "constructive"}}
    about |= {name: value for name, value in details.items() if name in OF_A_BRIEF}
    numbers = {name: value for name, value in details.items() if name not in OF_A_BRIEF}
    return WakeAccepted(at=NOON, run_id=run_id, wake_id=wake_id, brief=Brief(limits=limits(**numbers), **about))


def started(tools: Iterable[ToolOffer] = TOOLS) -> Cue:
    return lambda script: RunStarted(at=script.now, skills=tools_of(script.state.brief, tuple(tools)))


def replies(
    decision: Decision,
    *,
    plan: Next | Unusable | None = None,
    call: int | None = None,
    tokens: int = 100,
    cost: float | None = 0.01,
    words: int | None = None,
    seen: tuple[QuoteCheck, ...] = (),
) -> Cue:
    """The model answers the open call, or another one.

    `words`: how many messages of people its prompt contained; by default all.
    """

    def cue(script: Script) -> Event:
        read, written = tokens - tokens // 4, tokens // 4
        usage = ModelUsage(input_tokens=read, output_tokens=written, cost_usd=cost, cache_read_tokens=read // 2)
        return ModelReplied(
            at=script.now,
            call=call or script.state.calls,
            model="scripted",
            usage=usage,
            decision=decision,
            plan=plan,
            words=script.state.words if words is None else words,
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
    items = tuple(ItemClaim(item=item, evidence=evidence) for item, evidence in (met or {}).items())
    return Reflection(verdict=Verdict(verdict), summary="looked at the result", met=items, facts=facts)


def frames(*items: str, **reply: Any) -> Cue:
    return replies(framing(*items), **reply)


def plans(name: str = "fetch", command: str = "handle", **arguments: Any) -> Cue:
    return replies(plan(name, command, **arguments))


def reflects(verdict: str, met: dict[str, str] | None = None, **reply: Any) -> Cue:
    return replies(reflection(verdict, met), **reply)


def goes_on(name: str = "fetch", **arguments: Any) -> Cue:
    return replies(reflection("continue"), plan=plan(name, **arguments))


def garbles(reason: str = "not JSON", **reply: Any) -> Cue:
    return replies(Unusable(reason=reason, raw="Sure! Here is"), **reply)


def unavailable(remedy: Remedy, **details: Any) -> Cue:
    known: dict[str, Any] = {"error_class": "overloaded", "message": "529"} | details
    return lambda script: ModelUnavailable(at=script.now, remedy=remedy, **({"call": script.state.calls} | known))


def returns(
    status: Literal["ok", "error", "continuation"] = "ok",
    *,
    output: dict[str, Any] | None = None,
    error: ToolError | None = None,
    place: str = "",
    malformed: bool = False,
    of: Pending | None = None,
    proof: Capable | None = None,
    **correlation: Any,
) -> Cue:
    """A result of the pending attempt, or of `of`; `correlation` (step, tool, attempt) makes it another's."""

    def cue(script: Script) -> Event:
        state = script.state
        known: dict[str, Any] = {"step": max(state.step, 1), "tool": "fetch", "attempt": 1}
        if state.pendings:
            asked = {name: correlation[name] for name in ("step", "task", "round") if correlation.get(name)}
            pending = of or next((p for p in state.pendings if asked.items() <= p.ref.items()), state.pendings[0])
            known = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
            known |= {"task": pending.task, "round": pending.round} if pending.task else {}
        elif state.completed:
            newest = state.completed[-1]
            known = {"step": newest.step, "tool": newest.tool, "attempt": max(newest.attempt, 1)}
        brought = {"summary": f"result of step {known['step']}"} if output is None else output
        result = ToolResult(
            run_id=state.run_id,
            status=status,
            result=ToolOutput.model_validate(brought),
            error=error,
            completed_at=script.now,
            **(known | correlation),
        )
        return ToolReturned(at=script.now, result=result, place=str(place), malformed=malformed, proof=proof)

    return cue


def errs(error_class: str = "tool_error", *, retryable: bool = False, **correlation: Any) -> Cue:
    error = ToolError(error_class=error_class, message="it broke", retryable=retryable)
    return returns("error", output={}, error=error, **correlation)


def garbled(**correlation: Any) -> Cue:
    """A result with nothing readable but its correlation."""
    error = ToolError(error_class="invalid_result", message="status: Field required", retryable=True)
    return returns("error", output={}, error=error, malformed=True, **correlation)


def cancel(reason: str = "no longer needed", *, by: str = "") -> Cue:
    return lambda script: CancelRequested(at=script.now, reason=reason, by=by)


def signal(kind: SignalKind, *, by: str = "os user ann", said_at: datetime | None = None, **details: Any) -> Cue:
    """`details`: fields of the signal, and constraints."""
    more = {name: details[name] for name in Constraints.model_fields if name in details}
    told = {name: value for name, value in details.items() if name not in more}
    told |= {"run_id": RUN_ID, "kind": kind, "constraints": Constraints(**more) if more else None}

    def cue(script: Script) -> Event:
        said = Signal.model_validate({"signal_id": f"signal-{len(script.story)}"} | told)
        return SignalReceived(at=script.now, signal=said, by=by, said_at=said_at)

    return cue


def resume() -> Cue:
    return signal("resume")


def breaks(reason: str = "a fault of the agent") -> Cue:
    return lambda script: TurnBroke(at=script.now, reason=reason)


def extend_deadline(seconds: float = 600.0, *, ago: float = 0.0) -> Cue:
    def cue(script: Script) -> Event:
        since, script.now = script.now - timedelta(seconds=ago), script.now + timedelta(seconds=seconds)
        return StoodStill(at=script.now, since=since, by="ann", reason="it mails everybody")

    return cue


def due(script: Script) -> Event:
    """The run's timer, at its due instant."""
    assert script.state.due_at is not None, "the run waits for no instant"
    script.now = max(script.now, script.state.due_at)
    return TimerFired(at=script.now)


def too_early(script: Script) -> Event:
    """A timer before anything is due."""
    return TimerFired(at=script.now)


# Runs that have come as far as their name says


def queued(**details: Any) -> Script:
    return Script() >> wake(**details)


def a_framing_run(**details: Any) -> Script:
    return queued(**details) >> started()


def a_planning_run(**details: Any) -> Script:
    return a_framing_run(**details) >> frames()


def a_waiting_run(name: str = "fetch", **details: Any) -> Script:
    return a_planning_run(**details) >> plans(name)


def a_reflecting_run(**details: Any) -> Script:
    return a_waiting_run(**details) >> returns()


def a_paused_run(**details: Any) -> Script:
    return a_reflecting_run(**details) >> unavailable("pause")


def a_run_paused_while_waiting(name: str = "fetch", **details: Any) -> Script:
    return a_waiting_run(name, on_budget="pause", **details).wait(hours=1) >> too_early


def a_retrying_run(**details: Any) -> Script:
    return a_waiting_run(**details) >> errs("upstream", retryable=True)


def a_finished_run(**details: Any) -> Script:
    return a_reflecting_run(**details) >> reflects("done", PROOF)


def reserves(
    tokens: int = 400,
    cost: float | None = 0.04,
    *,
    call: int | None = None,
    if_lost: tuple[int, float | None] | None = None,
) -> Cue:
    """The reserve of a call that waited."""

    def cue(script: Script) -> Event:
        reserve = CallReserve(tokens=tokens, cost_usd=cost, if_lost=if_lost)
        return CallReserved(at=script.now, call=call or script.state.calls, model="priced", reserve=reserve)

    return cue


def opens(first: Plan | Unusable | None = None, *items: str, **reply: Any) -> Cue:
    """A framing with its first plan."""
    return replies(framing(*items), plan=first or plan(), **reply)


def digests(*memory: str, **reply: Any) -> Cue:
    return replies(Digest(memory=memory), **reply)


def refuses(category: str = "cyber", explanation: str = "") -> Cue:
    return replies(ModelRefusal(category=category, explanation=explanation))


def too_long() -> Cue:
    return unavailable("shrink", error_class="prompt_too_long", message="413")


def page(number: int, length: int = 500) -> dict[str, Any]:
    """A result of about `length` characters."""
    return {"summary": f"page {number}: {'x' * length}"}


def a_run_of(steps: int, *, length: int = 500, **details: Any) -> Script:
    """A run after `steps` steps with results of `length` characters, whose notes are compacted as needed.

    It waits for the reflection on its newest step, or for a digest before it.
    """
    script = a_reflecting_run(**({"max_steps": 300, "max_attempts_of_run": 300} | details))
    for number in range(2, steps + 1):
        if script.outcomes == ("ask compact",):
            script = script >> digests(*(f"fact {n}, known at step {number}" for n in range(30)))
        script = script >> goes_on(number=number) >> returns(output=page(number, length))
    return script


def a_compacting_run(**details: Any) -> Script:
    """A run after eight steps that asks for a digest, because its notes are too long."""
    return a_run_of(8, **({"max_notes": 2000} | details))


QUESTION = AskPerson(
    question="Which of the two?", choices=("the old one", "the new one"), would_change="what is fetched"
)


def asks_a_person(question: AskPerson = QUESTION, **reply: Any) -> Cue:
    return lambda script: _comes_next(script, question, reply)


def waits(seconds: float | None = 600.0, *, until: datetime | None = None, **reply: Any) -> Cue:
    return lambda script: _comes_next(script, Wait(why="the job runs", seconds=seconds, until=until), reply)


def _comes_next(script: Script, chosen: AskPerson | Wait, reply: dict[str, Any]) -> Event:
    reflecting = script.state.open_call is not None and script.state.open_call.phase == "reflect"
    along = replies(reflection("continue"), plan=chosen, **reply)
    return made(along if reflecting else replies(chosen, **reply), script)


def approves(**details: Any) -> Cue:
    return _rules("approve", details)


def rejects(**details: Any) -> Cue:
    return _rules("reject", details)


def _rules(kind: Any, details: dict[str, Any]) -> Cue:
    def cue(script: Script) -> Event:
        ask = script.state.ask
        name = ask.subject_hash if isinstance(ask, Approval) else "0" * 32
        return made(signal(kind, **({"arguments_hash": name} | details)), script)

    return cue


def answer(message: str | None = "the new one", **details: Any) -> Cue:
    return signal("answer", message=message, **details)


# Runs that have come as far as their name says


def a_run_for_approval(**details: Any) -> Script:
    run = a_waiting_run("browse", **details) >> returns()
    return run >> replies(reflection("continue")) >> plans("post")


def a_run_for_answer(**details: Any) -> Script:
    return a_planning_run(**details) >> asks_a_person()


def a_run_for_time(**details: Any) -> Script:
    return a_reflecting_run(**details) >> waits()


def a_run_in_doubt(name: str = "ledger", **details: Any) -> Script:
    return a_waiting_run(name, **details) >> errs("in_doubt")


def several(*tools: str, **arguments: Any) -> Plan:
    """A plan of one action for each of `tools`, all different."""
    numbered = enumerate(tools, start=1)
    actions = [Action(tool=tool, command="handle", arguments={"page": n} | arguments) for n, tool in numbered]
    return Plan(action=actions[0], also=tuple(actions[1:]), rationale="the halves are independent")


def plans_several(*tools: str) -> Cue:
    return replies(several(*tools))


def a_run_that_may_read(most: int = 3, **limits: Any) -> Script:
    return a_planning_run(parallel_reads=most, **limits)


def a_task(name: str, plugin: str = "", after: tuple[str, ...] = (), **arguments: Any) -> dict[str, Any]:
    """A task of a continuation: of a `plugin`, or else a retrieval."""
    asked: dict[str, Any] = {"action": "retrieve", "query": name}
    if plugin:
        asked = {"action": "plugin", "plugin": plugin, "input": arguments or {"name": name}}
    return {"id": name, **asked, "depends_on": list(after)}


def multi_step(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"action": "multi-step", "tasks": list(tasks)}


def retrieve(query: str = "more") -> dict[str, Any]:
    return {"action": "retrieve", "query": query}


def a_gathering_run(*tasks: dict[str, Any], first: str = "fetch", **limits: Any) -> Script:
    """A run whose first step's tool has asked for these tasks, or for one retrieval."""
    run = queued(**limits) >> started(SKILLS) >> frames() >> plans(first)
    return run >> continues(multi_step(*tasks) if tasks else retrieve())


def budget(**numbers: Any) -> dict[str, Any]:
    """Limits with this budget for continuations."""
    return {"continuations": Continuations(**numbers)}


def comes(task: str = "", *, status: Any = "ok", **fields: Any) -> Cue:
    """A result of that request, or of the open one; None leaves a field out."""
    output = {"summary": f"result of {task or 'the step'}"} if status == "ok" else {}
    return returns(status, **({"output": output, "task": task or None} | fields))


def continues(asked: dict[str, Any], task: str = "", **names: Any) -> Cue:
    """A continuation in answer to that request."""
    return comes(task, status="continuation", output={"continuation": asked}, **names)


def fails(task: str = "", error_class: str = "no_such_thing", *, retryable: bool = False, **names: Any) -> Cue:
    error = ToolError(error_class=error_class, message="it broke", retryable=retryable)
    return comes(task, status="error", error=error, **names)


def asks_agents(*goals: str, **arguments: Any) -> Cue:
    """A plan of one agent for each of `goals`."""
    actions = [Action(tool="agent", command="run", arguments={"goal": goal} | arguments) for goal in goals]
    return replies(Plan(action=actions[0], also=tuple(actions[1:])))


def a_parent(**limits: Any) -> Script:
    """A run that may plan its first step, agents among its tools."""
    given: dict[str, Any] = {"max_depth": 1, "parallel_reads": 4, **limits}
    return queued(**given) >> started(FAMILY) >> frames()


def a_waiting_parent(goal: str = "find a name", *, call: dict[str, Any] | None = None, **limits: Any) -> Script:
    return a_parent(**limits) >> asks_agents(goal, **(call or {}))


def wakes_of(script: Script) -> list[WakeAccepted]:
    return [wake_of(script.state, pending, at=script.now) for pending in asked_for_anew(script.story[-1])]


def child_of(script: Script, number: int = 0) -> Script:
    child = Script()
    child.now = script.now
    return child >> wakes_of(script)[number] >> started(FAMILY) >> frames()


def told_by(child: Script) -> ToolResult:
    told = result_of(child.state)
    assert told is not None, "it has not ended"
    return told


def comes_home(child: Script) -> Cue:

    def cue(script: Script) -> Event:
        script.now = max(script.now, child.now)
        return takes(told_by(child))(script)

    return cue


def takes(told: ToolResult) -> Callable[[Script], Event]:
    """A result in its executor's words."""
    return lambda script: ToolReturned(at=script.now, result=told)


# Proofs

ARTIFACT = "artifacts/report.md"


def framed(*proofs: Proof) -> Framing:
    items = ("the price is known", "the report is kept", "somebody agreed")
    usual = (Proof(kind="value", tool="fetch"), Proof(kind="artifact"), Proof(kind="person"))
    return Framing(goal_statement="Report the price.", definition_of_done=items, proofs=proofs or usual)


def claims(
    *met: ItemClaim, verdict: str = "continue", unmet: tuple[ItemRetraction, ...] = (), seen: Any = True, **reply: Any
) -> Cue:
    """A reflection with claims; every quote is found everywhere unless `seen` says otherwise."""
    reflection = Reflection(verdict=Verdict(verdict), summary="looked at the result", met=met, unmet=unmet)

    def cue(script: Script) -> Event:
        places = {place for claim in met for place in parse_places(claim.evidence, script.state.artifacts)}
        found = [QuoteCheck(evidence=p, quote=c.quote, found=bool(seen)) for c in met for p in sorted(places)]
        return made(replies(reflection, seen=tuple(found), **reply), script)

    return cue


def finds(reason: str = "it is shown", *, holds: bool = True, doubted: Iterable[str] = (), **reply: Any) -> Cue:
    return replies(Verification(holds=holds, reason=reason, doubted=tuple(doubted)), **reply)
