"""The ask of a run that waits for a person, and what a person does about a run that stopped."""

import json
import shlex
from datetime import datetime

from pydantic import JsonValue

from agent_service.core.brief import Parent
from agent_service.core.phases import Action, Framing, Plan
from agent_service.core.state import RunState
from agent_service.core.waiting import OF_BUDGETS, Acting, Approval, Ended, NeedsPerson, Question, Status, Stop
from schemas.events import Waiting as HumanTask
from schemas.values import dataclass

NEVER = "never type passwords or keys here: the answer is kept, and shown to the model"
LONGEST_GOAL = 300
"""Characters of a goal in a command; a longer one is put in by hand."""
RAISED_BY = {
    "budget_steps": "--max-steps",
    "budget_reframes": "--max-reframes",
    "budget_tokens": "--max-tokens",
    "budget_cost": "--max-cost-usd",
    "budget_time": "--deadline",
}
"""The option with which a caller grants more, by the class of the ending."""
FINAL = "this one is final"


def human_task(state: RunState) -> HumanTask | None:
    if state.final and state.brief.as_step:
        return None
    match state.waiting:
        case NeedsPerson(ask=Approval() as approval, expires_at=at):
            return _for_approval(state, approval, at)
        case NeedsPerson(ask=Question() as question, expires_at=at):
            return _for_answer(state, question, at)
        case NeedsPerson(ask=Stop() as stop) if stop.ending_class.startswith(OF_BUDGETS):
            return _of(state, "budget", reason=str(stop.reason), step=state.step)
        case Ended(stop=stop, held=Acting(pendings=pendings)) as ended if stop.ending_class == "in_doubt":
            doubted = {(came.step, came.task or "", came.round or 0) for came in ended.came}
            pending = next((one for one in pendings if one.name in doubted), pendings[0])
            about = _named(pending.step, pending.task, pending.round)
            return _of(state, "in_doubt", reason=str(stop.reason), **about, **_call(pending.action))
    return None


def _of(state: RunState, kind: str, **fields: object) -> HumanTask:
    has_callback = state.brief.callback is not None
    about = {"run_id": state.run_id, "kind": kind, "trace_url": state.brief.trace_url, "has_callback": has_callback}
    return HumanTask.model_validate(about | fields)


def _for_approval(state: RunState, asked: Approval, expires_at: datetime | None) -> HumanTask:
    fields = {"reason": str(asked.reason), "arguments_hash": asked.subject_hash, "expires_at": expires_at}
    match asked.proposal:
        case Plan(action=action):
            about = _named(asked.step or state.step + 1, asked.task, asked.round)
            return _of(state, "approval", **about, **_call(action), **fields)
        case Framing() as framing:
            proposed: dict[str, JsonValue] = {
                "goal_statement": framing.goal_statement,
                "definition_of_done": [*framing.definition_of_done],
                "constraints": [*framing.constraints],
            }
            return _of(state, "approval", **_arguments(proposed), **fields)


def _named(step: int, task: str, asked_in: int) -> dict[str, object]:
    return {"step": step, "task": task or None, "round": asked_in or None}


def _call(action: Action) -> dict[str, object]:
    return {"tool": action.tool, "command": action.command, **_arguments(action.payload)}


def _arguments(sent: dict[str, JsonValue]) -> dict[str, object]:
    text = json.dumps(sent, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return {"arguments": sent, "arguments_json": text}


def _why_asked(state: RunState) -> str:
    steps = ", ".join(f"step {doubt.step} ({doubt.tool})" for doubt in state.doubts)
    settles = f"; an answer with the outcome ran or did_not_run settles whether {steps} was carried out"
    warned = (
        f"; {state.tainted_by} brought what strangers wrote, who may be behind the question" if state.tainted_by else ""
    )
    return f"the model asks{settles if steps else ''}{warned}; {NEVER}"


def _for_answer(state: RunState, question: Question, expires_at: datetime | None) -> HumanTask:
    ask = question.ask
    return _of(
        state,
        "question",
        reason=_why_asked(state),
        question=ask.question,
        choices=ask.choices,
        tried=ask.tried or None,
        would_change=ask.would_change or None,
        expires_at=expires_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What a person does now about a run that stopped, and the command with which it goes on."""

    text: str
    command: str

    def __str__(self) -> str:
        return f"{self.text}: {self.command}"


def remedy(state: RunState) -> Remedy | None:
    if state.status is Status.PAUSED:
        return _of_a_paused_run(state)
    if state.brief.as_step and state.status in (Status.ESCALATED, Status.FAILED):
        return _of_a_child(state.brief.as_step)
    if state.status is Status.ESCALATED:
        return _of_an_escalated_run(state)
    if state.status is Status.FAILED:
        return Remedy(text=f"mend what the reason names, then ask for a new run; {FINAL}", command=_new_run(state))
    return None


def _of_a_child(parent: Parent) -> Remedy:
    text = f"nothing: it was step {parent.step} of another run, which has heard of it and decides what follows"
    return Remedy(text=text, command=f"agentic show {parent.run_id}")


def _of_a_paused_run(state: RunState) -> Remedy:
    match state.waiting:
        case NeedsPerson(ask=Approval()):
            text = f"allow it, or refuse it with `agentic reject {state.run_id}`"
            return Remedy(text=text, command=f"agentic approve {state.run_id}")
        case NeedsPerson(ask=Question()):
            return Remedy(text=f"answer it{_of_doubts(state)}, and it goes on", command=_answer(state))
    if option := RAISED_BY.get(state.ending_class):
        command = f"agentic signal {option} … {state.run_id} raise_budget"
        return Remedy(text="grant it more, and it goes on", command=command)
    return Remedy(text="once that is mended, let it go on", command=f"agentic signal {state.run_id} resume")


def _of_doubts(state: RunState) -> str:
    steps = ", ".join(f"step {doubt.step} ({doubt.tool})" for doubt in state.doubts)
    return f", with --ran or --did-not-run if it says whether {steps} was carried out" if steps else ""


def _of_an_escalated_run(state: RunState) -> Remedy:
    days = state.brief.limits.reopen_days
    if not days:
        return Remedy(text=f"{_first(state)}, then ask for a new run; {FINAL}", command=_new_run(state))
    within = f"; an answer sets it going again within {days:g} days"
    if state.ending_class == "in_doubt":
        return _in_doubt(state, within)
    if option := RAISED_BY.get(state.ending_class):
        return Remedy(text=f"grant it more, and it goes on{within}", command=_answer(state, "go on", f"{option} … "))
    return Remedy(text=f"{_first(state)}, then tell it so{within}", command=_answer(state))


def _first(state: RunState) -> str:
    match state.ending_class:
        case "configuration" | "not_allowed":
            return "mend what the reason names"
        case "tool_exhausted" | "budget_attempts":
            return f"see why {_tool(state)} fails: `agentic entries {state.run_id}` has every attempt"
        case "unanswered" | "approval_expired":
            return "decide what the reason asks for"
        case "in_doubt":
            return _found_out(state)
    if option := RAISED_BY.get(state.ending_class):
        return f"decide what it may have more ({option})"
    return "read in decisions.md of its workspace how it came to this, and decide what goal or context should say more"


def _in_doubt(state: RunState, within: str) -> Remedy:
    text = (
        f"{_found_out(state)}, then say so with --ran (and what it brought) or --did-not-run; with --look it looks by "
        f"itself before anything is repeated{within}"
    )
    return Remedy(text=text, command=_answer(state, "", "--look "))


def _found_out(state: RunState) -> str:
    return (
        f"find out whether {_in_question(state)} was done: by what it should have changed, and by its job "
        "in Ductile if the reason names one (`ductile job inspect JOB`)"
    )


def _in_question(state: RunState) -> str:
    asked = human_task(state)
    if asked and asked.task:
        return f"step {asked.step}, {asked.task} of round {asked.round} ({asked.tool} {asked.command})"
    return f"step {state.step} ({_tool(state)})"


def _answer(state: RunState, words: str = "TEXT", options: str = "") -> str:
    return f"agentic answer {options}{state.run_id}" + (f" '{words}'" if words else "")


def _tool(state: RunState) -> str:
    return f"{state.plan.action.tool} {state.plan.action.command}" if state.plan else "the tool"


def _new_run(state: RunState) -> str:
    goal = state.brief.goal
    return f"agentic run {shlex.quote(goal) if len(goal) <= LONGEST_GOAL else 'GOAL'}"
