"""Human tasks: the open request to a person, and the remedy for a run that stopped."""

import json
import shlex

from pydantic import JsonValue

from agent_service.core import acting, limits
from agent_service.core.phases import Action, Framing, Plan
from agent_service.core.planning import subject_hash
from agent_service.core.state import RunState
from agent_service.core.waiting import BUDGET_PREFIX, Acting, Approval, Ended, NeedsPerson, Question, Status, Stop
from schemas.events import Waiting as HumanTask
from schemas.fields import Text
from schemas.values import dataclass

NEVER = "never type passwords or keys here: the answer is kept, and shown to the model"
LONGEST_GOAL = 300
"""Characters of a goal in a suggested command; a longer goal is left as a placeholder."""
RAISED_BY = {name: f"--{field.removesuffix('_at').replace('_', '-')}" for name, field in limits.RAISED.items()}
"""CLI option that raises the limit, by ending class."""
FINAL = "this one is final"


class OpenTask(HumanTask):
    """Open request to a person. `untrusted`: source of untrusted content in the run, whose author may be behind the
    request; empty if none. It may arrive while the request is open, so no event carries it.
    """

    untrusted: Text = ""


def open_task(state: RunState) -> OpenTask | None:
    task = human_task(state)
    return OpenTask(**dict(task), untrusted=str(state.tainted_by)) if task else None


def human_task(state: RunState) -> HumanTask | None:
    if state.final and state.brief.as_step:
        return None
    match state.waiting:
        case NeedsPerson(ask=Approval() as approval):
            return _for_approval(state, approval)
        case NeedsPerson(ask=Question() as question):
            return _for_answer(state, question)
        case NeedsPerson(ask=Stop() as stop) if stop.ending_class.startswith(BUDGET_PREFIX):
            return _of(state, "budget", reason=str(stop.reason), step=state.step)
        case Ended(stop=stop, held=Acting(pendings=pendings)) as ended if stop.ending_class == "in_doubt":
            pending = next((one for one in pendings if one.name == ended.doubted), pendings[0])
            called = _call(state, pending.action)
            return _of(state, "in_doubt", reason=str(stop.reason), **pending.correlation, **called)
    return None


def _of(state: RunState, kind: str, **fields: object) -> HumanTask:
    has_callback = state.brief.callback is not None
    about = {"run_id": state.run_id, "kind": kind, "trace_url": state.brief.trace_url, "has_callback": has_callback}
    return HumanTask.model_validate(about | fields)


def _for_approval(state: RunState, asked: Approval) -> HumanTask:
    fields = {"reason": str(asked.reason), "arguments_hash": asked.subject_hash, "expires_at": state.due_at}
    match asked.proposal:
        case Plan(action=action):
            about = asked.correlation | {"step": asked.step or state.step + 1}
            return _of(state, "approval", **about, **_call(state, action), **fields)
        case Framing() as framing:
            proposed: dict[str, JsonValue] = {
                "goal_statement": framing.goal_statement,
                "definition_of_done": [*framing.definition_of_done],
                "constraints": [*framing.constraints],
                "assumptions": [*framing.assumptions],
            }
            return _of(state, "approval", **_arguments(proposed), **fields)


def _call(state: RunState, action: Action) -> dict[str, object]:
    """Arguments follow the order of the tool's schema."""
    command, sent = state.brief.command(action), action.payload
    known = command.input_schema.get("properties") if command else None
    named = [name for name in known if name in sent] if isinstance(known, dict) else []
    return {"tool": action.tool, "command": action.command, **_arguments({name: sent[name] for name in named} | sent)}


def _arguments(sent: dict[str, JsonValue]) -> dict[str, object]:
    return {"arguments": sent, "arguments_json": json.dumps(sent, ensure_ascii=False, separators=(",", ":"))}


def _for_answer(state: RunState, question: Question) -> HumanTask:
    ask, steps = question.ask, _doubted(state)
    settles = f"; an answer with the outcome ran or did_not_run settles whether {steps} was carried out"
    return _of(
        state,
        "question",
        reason=f"the model asks{settles if steps else ''}; {NEVER}",
        question=ask.question,
        question_hash=subject_hash(ask),
        choices=ask.choices,
        tried=ask.tried or None,
        would_change=ask.would_change or None,
        expires_at=state.due_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Next action of a person for a stopped run, and the command that resumes it."""

    text: str
    command: str

    def __str__(self) -> str:
        return f"{self.text}: {self.command}"


_FIRST = {
    "configuration": "correct what the reason names",
    "not_allowed": "correct what the reason names",
    "tool_exhausted": "find out from the attempts of step {step} why {tool} fails",
    "budget_attempts": "find out from the attempts of step {step} why {tool} fails",
    "unanswered": "decide what the reason asks for",
    "approval_expired": "decide what the reason asks for",
    "in_doubt": "find out whether {asked} was done: look at what it changes, and at the job that the reason names",
    **dict.fromkeys(RAISED_BY, "decide how much more it may spend"),
}
"""First action, by ending class."""
_READ = "read in decisions.md how it came to this, and decide what goal or context should add"
_ANEW = f"then start a new run; {FINAL}", "agentic run {goal}"
_REMEDIES = {
    "approval": ("approve or reject it", "agentic approve --hash {hash} {run_id}"),
    "question": ("answer it{settles}", "agentic answer --hash {hash} {run_id} 'TEXT'"),
    "paused by a budget": ("raise its budget", "agentic signal {option} … {run_id} raise_budget"),
    "paused": ("resume it once that is corrected", "agentic signal {run_id} resume"),
    "child": (
        "nothing: it was step {parent.step} of another run, which decides what follows",
        "agentic show {parent.run_id}",
    ),
    "closed": ("{first}, " + _ANEW[0], _ANEW[1]),
    "in doubt": (
        "{first}; then say that it ran or did not run, or let it look before it repeats anything{within}",
        "agentic answer --look {run_id}  # or --ran, --did-not-run",
    ),
    "escalated by a budget": ("raise its budget{within}", "agentic answer {option} … {run_id} 'go on'"),
    "escalated": ("{first}, then tell it so{within}", "agentic answer {run_id} 'TEXT'"),
    "failed": ("correct what the reason names, " + _ANEW[0], _ANEW[1]),
}
"""Text and command, by `stop_kind`. The page shows only the text, so no text names a command."""


def remedy(state: RunState) -> Remedy | None:
    if not (stopped := stop_kind(state)):
        return None
    steps, goal = _doubted(state), state.brief.goal
    values = {
        "run_id": state.run_id,
        "option": RAISED_BY.get(state.ending_class),
        "parent": state.brief.as_step,
        "goal": shlex.quote(goal) if len(goal) <= LONGEST_GOAL else "GOAL",
        "within": f"; it can be answered for {state.brief.limits.reopen_days:g} days",
        "settles": f"; say also whether {steps} was carried out, if you know" if steps else "",
        "step": state.step,
        "tool": f"{state.plan.action.tool} {state.plan.action.command}" if state.plan else "the tool",
    }
    asked = human_task(state)
    values["hash"] = (asked.arguments_hash or asked.question_hash) if asked else None
    values["asked"] = "step {} ({})".format(state.step, values["tool"])
    if asked and asked.task:
        values["asked"] = f"step {asked.step}, {asked.task} of round {asked.round} ({asked.tool} {asked.command})"
    values["first"] = _FIRST.get(state.ending_class, _READ).format_map(values)
    text, command = (form.format_map(values) for form in _REMEDIES[stopped])
    return Remedy(text=text, command=command)


def stop_kind(state: RunState) -> str:
    """Key of `_REMEDIES`; empty for a run that goes on, is done or was cancelled."""
    by_a_budget = " by a budget" if state.ending_class in RAISED_BY else ""
    match state.status:
        case Status.PAUSED:
            return state.ask.kind if isinstance(state.ask, Approval | Question) else f"paused{by_a_budget}"
        case Status.ESCALATED | Status.FAILED if state.brief.as_step:
            return "child"
        case Status.ESCALATED if not state.brief.limits.reopen_days:
            return "closed"
        case Status.ESCALATED:
            return "in doubt" if state.ending_class == "in_doubt" else f"escalated{by_a_budget}"
        case Status.FAILED:
            return "failed"
    return ""


def _doubted(state: RunState) -> str:
    return ", ".join(f"step {doubt.step} ({doubt.tool})" for doubt in acting.doubts_asked_about(state))
