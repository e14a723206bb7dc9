"""Approval: what a person must allow before it is done.

The operator's rule comes first. In a tainted run a write that leaves the house or cannot be undone is asked for, and
a read that may carry data out (see `egress`). An approval is of one command with its arguments.
"""

from itertools import takewhile
from typing import Literal

from agent_service.core import acting, egress, endings
from agent_service.core.phases import Action, Framing, Plan
from agent_service.core.state import Ruling, RunState
from agent_service.core.waiting import Acting, Approval
from agent_service.sentences import Text, say
from schemas.catalog import Approve, ToolCommand
from schemas.values import replace

Verdict = Literal["approved", "rejected", "expired"]
MOST_RULINGS = 50
MOST_REFUSED = 5
"""In a row: then the run hands itself to a person."""


def rule_of(command: ToolCommand) -> Approve:
    if command.approve is not None:
        return command.approve
    return "never" if command.tier == "read" or command.effect == "local" else "untrusted"


def is_allowed(state: RunState, proposal: Plan | Framing) -> bool:
    named = (hash_of(proposal), "approved", state.step + 1 if isinstance(proposal, Plan) else 0, state.words)
    return any((r.subject_hash, r.verdict, r.step, r.words) == named for r in state.rulings)


def why_needed(state: RunState, action: Action) -> Text:
    command = state.brief.command(action)
    rule = rule_of(command) if command else "never"
    if rule == "always":
        return say("always_asked", tool=action.tool, command=action.command)
    if not state.tainted_by or command is None:
        return ""
    why: Text = say("leaves_the_house") if rule == "untrusted" else ""
    if command.tier == "read" and command.approve is None:
        why = egress.why_needed(state, command, action)
    return why and say("tainted", tool=action.tool, command=action.command, why=why, tainted_by=state.tainted_by)


def with_ruling(state: RunState, ruling: Ruling) -> RunState:
    return replace(state, rulings=(*state.rulings, ruling)[-MOST_RULINGS:])


def refused_in_a_row(state: RunState) -> int:
    return sum(1 for _ in takewhile(lambda ruling: ruling.verdict != "approved", reversed(state.rulings)))


def flaws_of(state: RunState, action: Action) -> tuple[Text, ...]:
    if not state.rulings:
        return ()
    what = say("these_arguments", tool=action.tool, command=action.command)
    return refusals_of(state, acting.name_of_call(action), what)


def refusals_of(state: RunState, subject_hash: str, what: Text) -> tuple[Text, ...]:
    rulings = [ruling for ruling in state.rulings if ruling.subject_hash == subject_hash][-1:]
    refused = (ruling for ruling in rulings if ruling.verdict != "approved" and ruling.words >= state.words)
    return tuple(refusal(what, ruling) for ruling in refused)


def refusal(what: Text, ruling: Ruling) -> Text:
    return say("not_approved", what=what, verdict=ruling.verdict, why=ruling.reason)


def hash_of(proposal: Plan | Framing) -> str:
    if isinstance(proposal, Plan):
        return acting.name_of_call(proposal.action)
    return acting.digest([proposal.goal_statement, proposal.definition_of_done, proposal.constraints])


def _subject_of(state: RunState, proposal: Plan | Framing, of: tuple[int, str, int]) -> str:
    call, (step, task, asked_in) = hash_of(proposal), of
    allowed = any((r.subject_hash, r.verdict, r.step) == (call, "approved", step) for r in state.rulings)
    return acting.digest([call, task, asked_in]) if task and allowed else call


def ask_approval(
    state: RunState,
    proposal: Plan | Framing,
    why: Text,
    *,
    held: Acting | None = None,
    of: tuple[int, str, int] = (0, "", 0),
) -> RunState:
    """`held`, `of`: what goes on then, and the sub-request that it is about."""
    step, task, asked_in = of
    subject = _subject_of(state, proposal, of)
    ask = Approval(proposal=proposal, subject_hash=subject, reason=why, step=step, task=task, round=asked_in)
    summary = say("waits_for_approval", why=why)
    return endings.ask_person(state, ask, summary, patience_s=state.brief.limits.approval_s, held=held)
