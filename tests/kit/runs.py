"""Builders of events, commits and whole runs. The real core decides everything; nothing is random."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_service.core.brief import Brief, Limits, Parent
from agent_service.core.decide import decide
from agent_service.core.events import (
    Event,
    ModelReplied,
    ModelUnavailable,
    ModelUsage,
    RunStarted,
    ToolReturned,
    WakeAccepted,
)
from agent_service.core.phases import Action, Decision, Framing, ItemClaim, Plan, Reflection, Verdict
from agent_service.run.journal import Commit, Run, commit_of
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import ToolOutput, ToolResult

NOON = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FRAMING = Framing(goal_statement="Know the answer.", definition_of_done=("It is found", "It is checked", "It is told"))
SEARCH = ToolOffer(
    name="search",
    route="web-search",
    description="Searches the web.",
    commands=(
        ToolCommand(
            name="query",
            description="Pages that match, best first.",
            tier="read",
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ),
    ),
)


def run_id(number: int) -> str:
    """Returns a valid id; a larger number is a later run."""
    return f"run_{number:026d}"


DIGEST = "digest"


def accepted(
    number: int = 1,
    *,
    wake_id: str | None = None,
    goal: str = "Find the answer.",
    caller: str = "",
    parent: Parent | None = None,
    at: datetime | None = None,
    **limited: Any,
) -> Commit:
    """The first commit of run `number`, by default accepted that many seconds after noon; `limited` adds to its
    limits."""
    at = at or NOON + number * SECOND
    limits = Limits(**{"deadline_at": at + timedelta(hours=1)} | limited)
    context: dict[str, Any] = {"background": "asked by a test"}
    brief = Brief(goal=goal, limits=limits, announced=True, context=context, caller=caller, parent=parent)
    event = WakeAccepted(at=at, run_id=run_id(number), wake_id=wake_id or f"wake-{number}", brief=brief)
    return commit_of(None, decide(None, event))


def after(commit: Commit, event: Event) -> Commit:
    """Commits `event` after `commit`. Raises ValueError for an event that changes nothing."""
    return commit_of(Run(state=commit.state, head=commit.entry.hash), decide(commit.state, event))


def started(commit: Commit) -> Commit:
    return after(commit, RunStarted(at=_later(commit), skills=(SEARCH,)))


def replied(commit: Commit, decision: Decision, plan: Plan | None = None) -> Commit:
    asking = commit.state.open_call
    assert asking is not None, "the run waits for no model"
    usage = ModelUsage(input_tokens=900, output_tokens=200, cost_usd=0.01)
    reply = ModelReplied(
        at=_later(commit), call=asking.call, model="scripted", usage=usage, decision=decision, plan=plan
    )
    return after(commit, reply)


def returned(commit: Commit, **told: Any) -> Commit:
    """The result of the tool that `commit` waits for; `told` adds to it."""
    pending = commit.state.pending
    assert pending is not None, "the run waits for no tool"
    result = ToolResult(
        run_id=commit.state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="ok",
        result=ToolOutput(content_type="text/plain", excerpt=f"Page {pending.step} says a part of the answer.", **told),
        completed_at=_later(commit),
        attempt=pending.attempt,
    )
    return after(commit, ToolReturned(at=_later(commit), result=result))


def plan(step: int) -> Plan:
    return Plan(
        action=Action(tool="search", command="query", arguments={"text": f"part {step} of the answer"}),
        outline=("search", "compare", "tell"),
        expected_outcome="one more part is known",
        rationale="the parts so far do not suffice",
    )


def whole_run(number: int = 1, *, steps: int = 1, **told: Any) -> Sequence[Commit]:
    """All commits of a run with `steps` steps, whose results add `told`: 4 + 2 per step."""
    commits = [accepted(number)]
    commits.append(started(commits[-1]))
    commits.append(replied(commits[-1], FRAMING))
    commits.append(replied(commits[-1], plan(1)))
    for step in range(1, steps + 1):
        commits.append(returned(commits[-1], **told))
        commits.append(replied(commits[-1], *_reflection(step, last=step == steps)))
    return commits


def stopped(number: int = 1, remedy: Any = "escalate", error_class: str = "model_refused") -> Sequence[Commit]:
    begun = started(accepted(number))
    at = NOON + number * SECOND
    away = ModelUnavailable(at=at, call=1, remedy=remedy, error_class=error_class, message="no answer")
    return [accepted(number), begun, after(begun, away)]


def _reflection(step: int, *, last: bool) -> tuple[Reflection, Plan | None]:
    if not last:
        found = Reflection(verdict=Verdict.CONTINUE, summary=f"part {step} is known", facts=(f"fact {step}",))
        return found, plan(step + 1)
    met = tuple(ItemClaim(item=f"d{n}", evidence=f"step:{step}") for n in range(1, len(FRAMING.definition_of_done) + 1))
    return Reflection(verdict=Verdict.DONE, summary="all is known", met=met, outcome="The answer is 42."), None


def _later(commit: Commit) -> datetime:
    return commit.entry.at + SECOND
