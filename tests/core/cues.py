"""Events that fit a run as it stands, with defaults. `words` reads them from text.

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
    command = ToolCommand(name="handle", tier=tier, idempotent=idempotent, effect="local" if idempotent else None)
    return ToolOffer(name=name, route=route, commands=(command,), timeout_s=60.0, output="trusted")


FETCH = tool("fetch", route="jina-reader")
POST = tool("post", route="mailer", tier="write")
SAVE = tool("save", route="notebook", tier="write", idempotent=True)
BROWSE = FETCH.model_copy(update={"name": "browse", "output": "untrusted"})
LEDGER = ToolOffer(
    name="ledger",
    route="ledger",
    output="trusted",
    commands=(ToolCommand(name="handle", tier="write"), ToolCommand(name="look", tier="read")),
)
"""Can be looked into, to see whether a write was carried out."""
TOOLS = (FETCH, POST, SAVE, tool("helper", route="agentic-loop"), BROWSE, LEDGER)
EVERY_TOOL = (*TOOLS, tool("knowledge", route="shelf"), tool("look", route="window"), catalog.agent_tool())


# The run begins


def limits(**numbers: Any) -> Limits:
    return replace(Limits(deadline_at=DEADLINE), **numbers)


OF_A_BRIEF = {field.name for field in fields(Brief)}


def wake(*, run_id: str = RUN_ID, wake_id: str = "wake-1", traceparent: str = "", **details: Any) -> WakeAccepted:
    """A wake at noon; `details` are fields of its brief, limits, and its `budget` for continuations."""
    if "budget" in details:
        details["continuations"] = Continuations(**details.pop("budget"))
    details |= {"deadline_named": True} if "deadline_at" in details else {}
    about: dict[str, Any] = {"goal": "critique example.org", "context": {"tone": "constructive"}}
    about |= {name: value for name, value in details.items() if name in OF_A_BRIEF}
    numbers = {name: value for name, value in details.items() if name not in OF_A_BRIEF}
    brief = Brief(limits=limits(**numbers), **about)
    return WakeAccepted(at=NOON, run_id=run_id, wake_id=wake_id, brief=brief, traceparent=traceparent)


def queued(**details: Any) -> Script:
    return Script() >> wake(**details)


def started(tools: Iterable[ToolOffer] = TOOLS) -> Cue:
    return lambda script: RunStarted(at=script.now, skills=tools_of(script.state.brief, tuple(tools)))


# The model answers


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


def _reply_in(more: dict[str, Any]) -> dict[str, Any]:
    return {name: more.pop(name) for name in ("tokens", "cost", "call", "words") if name in more}


def framing(*items: str) -> Framing:
    done = items or ("the page is fetched", "the critique is written", "it has two paragraphs")
    return Framing(goal_statement="Write a critique of example.org.", definition_of_done=done)


def plan(name: str = "fetch", command: str = "handle", **arguments: Any) -> Plan:
    action = Action(tool=name, command=command, arguments=arguments or {"url": "https://example.org"})
    return Plan(action=action, outline=("fetch", "write"), rationale="the page is needed")


def several(*tools: str, **arguments: Any) -> Plan:
    numbered = enumerate(tools, start=1)
    actions = [Action(tool=tool, command="handle", arguments={"page": n} | arguments) for n, tool in numbered]
    return Plan(action=actions[0], also=tuple(actions[1:]), rationale="the halves are independent")


def reflection(verdict: str, met: dict[str, str] | None = None, *, facts: tuple[str, ...] = ()) -> Reflection:
    items = tuple(ItemClaim(item=item, evidence=evidence) for item, evidence in (met or {}).items())
    return Reflection(verdict=Verdict(verdict), summary="looked at the result", met=items, facts=facts)


QUESTION = AskPerson(
    question="Which of the two?", choices=("the old one", "the new one"), would_change="what is fetched"
)
ALONG: dict[str, Next | Unusable | None] = {
    "": None,
    "unusable": Unusable(reason="two actions"),
    "cut": Unusable(reason="two actions", cut=True),
    "ask": QUESTION,
    "rest": Wait(why="later", seconds=60.0),
}


def _along(name: str) -> Next | Unusable | None:
    """Comes along with a decision: one of ALONG, or a plan of that tool."""
    return ALONG[name] if name in ALONG else plan(name)


def frames(*items: str, proofs: list[str] | None = None, plan: str = "", **more: Any) -> Cue:
    """`proofs`: a kind and perhaps a tool, one per item. `plan`: see `_along`. `more`: of the framing or the reply."""
    reply = _reply_in(more)
    split = [text.split() for text in proofs or ()]
    by = tuple(Proof(kind=kind, tool=" ".join(tool)) for kind, *tool in split)  # type: ignore[arg-type] # as written
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in more.items()}
    return replies(replace(framing(*items), proofs=by, **given), plan=_along(plan), **reply)


def plans(name: str = "fetch", command: str = "handle", **arguments: Any) -> Cue:
    return replies(plan(name, command, **arguments))


def goes_on(name: str = "fetch", **arguments: Any) -> Cue:
    return replies(reflection("continue"), plan=plan(name, **arguments))


def reflects(
    verdict: str, plan: str = "", facts: list[str] | None = None, outcome: str | None = None, **more: Any
) -> Cue:
    """`plan`: see `_along`. `more`: of the reply, or items with their evidence."""
    reply = _reply_in(more)
    found = replace(reflection(verdict, more, facts=tuple(facts or ())), outcome=outcome)
    return replies(found, plan=_along(plan), **reply)


def done(**more: Any) -> Cue:
    return reflects("done", d1="step:1", d2="step:1", d3="step:1", **more)


def claims(verdict: str = "continue", unmet: str = "", seen: bool = True, **said: list[str]) -> Cue:
    """Items with evidence and a quote, which is found (or not) in all named places."""
    met = tuple(ItemClaim(item=item, evidence=one[0], quote=one[1] if one[1:] else "") for item, one in said.items())
    refuted = (ItemRetraction(item=unmet, reason="the newer page says 13"),) if unmet else ()
    reflection = Reflection(verdict=Verdict(verdict), summary="looked at the result", met=met, unmet=refuted)

    def cue(script: Script) -> Cue:
        places = {place for claim in met for place in parse_places(claim.evidence, script.state.artifacts)}
        found = tuple(QuoteCheck(evidence=p, quote=c.quote, found=bool(seen)) for c in met for p in sorted(places))
        return replies(reflection, seen=found)

    return cue


def finds(reason: str = "it is shown", *, holds: bool = True, doubted: Iterable[str] = (), **reply: Any) -> Cue:
    return replies(Verification(holds=holds, reason=reason, doubted=tuple(doubted)), **reply)


def garbles(reason: str = "not JSON", **reply: Any) -> Cue:
    return replies(Unusable(reason=reason, raw="Sure! Here is"), **reply)


def digests(*memory: str, **reply: Any) -> Cue:
    return replies(Digest(memory=memory), **reply)


def refuses(category: str = "cyber", explanation: str = "") -> Cue:
    return replies(ModelRefusal(category=category, explanation=explanation))


def asks_a_person(question: str = "", choices: list[str] | None = None, **more: Any) -> Cue:
    asked = AskPerson(question=question, choices=tuple(choices or ()), **more) if question else QUESTION
    return lambda script: _comes_next(script, asked)


def rests(
    seconds: float | None = None, until: datetime | None = None, *, why: str = "the job runs", naive: bool = False
) -> Cue:
    until = until.replace(tzinfo=None) if until and naive else until
    return lambda script: _comes_next(script, Wait(why=why, seconds=seconds, until=until))


def _comes_next(script: Script, chosen: AskPerson | Wait) -> Cue:
    reflecting = script.state.open_call is not None and script.state.open_call.phase == "reflect"
    return replies(reflection("continue"), plan=chosen) if reflecting else replies(chosen)


def asks_agents(*goals: str, **arguments: Any) -> Cue:
    actions = [Action(tool="agent", command="run", arguments={"goal": goal} | arguments) for goal in goals]
    return replies(Plan(action=actions[0], also=tuple(actions[1:])))


def reserves(
    tokens: int = 400,
    cost: float | None = 0.04,
    *,
    call: int | None = None,
    if_lost: tuple[int, float | None] | None = None,
) -> Cue:
    def cue(script: Script) -> Event:
        reserve = CallReserve(tokens=tokens, cost_usd=cost, if_lost=if_lost)
        return CallReserved(at=script.now, call=call or script.state.calls, model="priced", reserve=reserve)

    return cue


def unavailable(remedy: Remedy, **details: Any) -> Cue:
    known: dict[str, Any] = {"error_class": "overloaded", "message": "529"} | details
    return lambda script: ModelUnavailable(at=script.now, remedy=remedy, **({"call": script.state.calls} | known))


# A tool answers


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


def errs(error_class: str = "tool_error", *flags: str, **correlation: Any) -> Cue:
    """`flags`: `retry` if it may be tried again."""
    error = ToolError(error_class=error_class, message="it broke", retryable="retry" in flags)
    return returns("error", output={}, error=error, **correlation)


def garbled(**correlation: Any) -> Cue:
    error = ToolError(error_class="invalid_result", message="status: Field required", retryable=True)
    return returns("error", output={}, error=error, malformed=True, **correlation)


def comes(task: str = "", *, status: Any = "ok", **fields: Any) -> Cue:
    """A result of that request, or of the open one; None leaves a field out."""
    output = {"summary": f"result of {task or 'the step'}"} if status == "ok" else {}
    return returns(status, **({"output": output, "task": task or None} | fields))


def fails(task: str = "", error_class: str = "no_such_thing", *flags: str, **names: Any) -> Cue:
    return errs(error_class, *flags, **({"task": task or None} | names))


def continues(asked: Any, task: str = "", **names: Any) -> Cue:
    """A continuation in answer to that request. `asked`: a query; or tasks as `name tool after,after`, with their
    arguments if they have any; or the JSON itself."""
    return comes(task, status="continuation", output={"continuation": _asked(asked)}, **names)


def wants(asked: Any) -> Cue:
    """A continuation of the oldest request that is out."""
    return returns("continuation", output={"continuation": _asked(asked)})


def _asked(form: Any) -> Any:
    if isinstance(form, list):
        return {"action": "multi-step", "tasks": [_task(*([text] if isinstance(text, str) else text)) for text in form]}
    return {"action": "retrieve", "query": form} if isinstance(form, str) else form


def _task(line: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    name, plugin, after = (*line.split(), "", "")[:3]
    asked: dict[str, Any] = {"action": "retrieve", "query": name}
    if plugin.strip("-"):
        asked = {"action": "plugin", "plugin": plugin, "input": arguments or {"name": name}}
    return {"id": name, **asked, "depends_on": list(filter(None, after.split(",")))}


def takes(brought: ToolResult) -> Callable[[Script], Event]:
    """A result in its executor's words."""
    return lambda script: ToolReturned(at=script.now, result=brought)


def nameless(place: str = "", **payload: Any) -> Cue:
    def cue(script: Script) -> Event:
        known = {"run_id": RUN_ID, "step": 1, "attempt": 1, "status": "ok", "completed_at": script.now}
        return ToolReturned(at=script.now, result=ToolResult.model_validate(known | payload), place=str(place))

    return cue


# A child of the run


def child_of(
    script: Script, number: int = 0, skills: Iterable[ToolOffer] = EVERY_TOOL, *, bare: bool = False
) -> Script:
    """A child that the newest event started; unless it is `bare`, it may plan."""
    child = Script()
    child.now = script.now
    asked = asked_for_anew(script.story[-1])[number]
    child = child >> wake_of(script.state, asked, at=script.now) >> started(skills)
    return child if bare else child >> frames()


def comes_home(child: Script) -> Cue:
    def cue(script: Script) -> Event:
        script.now = max(script.now, child.now)
        brought = result_of(child.state)
        assert brought is not None, "it has not ended"
        return takes(brought)(script)

    return cue


# A person, the clock, or a fault


def signal(kind: SignalKind, *, by: str = "os user ann", said_at: datetime | None = None, **details: Any) -> Cue:
    """`details`: fields of the signal, and constraints."""
    more = {name: details[name] for name in Constraints.model_fields if name in details}
    given = {name: value for name, value in details.items() if name not in more}
    given |= {"run_id": RUN_ID, "kind": kind, "constraints": Constraints(**more) if more else None}

    def cue(script: Script) -> Event:
        said = Signal.model_validate({"signal_id": f"signal-{len(script.story)}"} | given)
        return SignalReceived(at=script.now, signal=said, by=by, said_at=said_at)

    return cue


def answer(message: str | None = "the new one", **details: Any) -> Cue:
    return signal("answer", message=message, **details)


def approves(**details: Any) -> Cue:
    return _rules("approve", details)


def rejects(message: str | None = None, **details: Any) -> Cue:
    return _rules("reject", {"message": message, **details})


def _rules(kind: Any, details: dict[str, Any]) -> Cue:
    def cue(script: Script) -> Cue:
        ask = script.state.ask
        name = ask.subject_hash if isinstance(ask, Approval) else "0" * 32
        return signal(kind, **({"arguments_hash": name} | details))

    return cue


def cancel(reason: str = "no longer needed", *, by: str = "") -> Cue:
    return lambda script: CancelRequested(at=script.now, reason=reason, by=by)


def breaks(reason: str = "a fault of the agent") -> Cue:
    return lambda script: TurnBroke(at=script.now, reason=reason)


def extend_deadline(seconds: float = 600.0, *, ago: float = 0.0) -> Cue:
    def cue(script: Script) -> Event:
        since, script.now = script.now - timedelta(seconds=ago), script.now + timedelta(seconds=seconds)
        return StoodStill(at=script.now, since=since, by="ann", reason="it mails everybody")

    return cue


def due(script: Script) -> Event:
    assert script.state.due_at is not None, "the run waits for no instant"
    script.now = max(script.now, script.state.due_at)
    return TimerFired(at=script.now)


def too_early(script: Script) -> Event:
    return TimerFired(at=script.now)
