"""The ask of a run that waits for a person."""

import json
from datetime import datetime

from pydantic import JsonValue

from agent_service.core.phases import Action, Framing, Plan
from agent_service.core.state import RunState
from agent_service.core.waiting import OF_BUDGETS, Acting, Approval, Ended, NeedsPerson, Question, Stop
from schemas.events import Waiting as Petition

NEVER = "never type passwords or keys here: the answer is kept, and shown to the model"


def petition(state: RunState) -> Petition | None:
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


def _of(state: RunState, kind: str, **fields: object) -> Petition:
    has_callback = state.brief.callback is not None
    about = {"run_id": state.run_id, "kind": kind, "trace_url": state.brief.trace_url, "has_callback": has_callback}
    return Petition.model_validate(about | fields)


def _for_approval(state: RunState, asked: Approval, expires_at: datetime | None) -> Petition:
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
        f"; {state.strangers} brought what strangers wrote, who may be behind the question" if state.strangers else ""
    )
    return f"the model asks{settles if steps else ''}{warned}; {NEVER}"


def _for_answer(state: RunState, question: Question, expires_at: datetime | None) -> Petition:
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
