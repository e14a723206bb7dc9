"""What a person does about a run that stopped."""

import shlex
from dataclasses import dataclass

from agent_service.core.brief import Parent
from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, NeedsPerson, Question, Status
from agent_service.run.petition import petition

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
    asked = petition(state)
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
