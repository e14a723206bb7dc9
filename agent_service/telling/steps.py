"""Steps that are not finished: who was asked, and which one a run left when it ended. Pure."""

from dataclasses import dataclass

from agent_service.core.phases import Action
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Sent, and never completed."""

    step: int
    attempt: int
    action: Action


def unfinished(run: RunState) -> Unfinished | None:
    """The step that was under way when the run ended; None while it goes on, and when all were finished."""
    if not run.final or run.plan is None or run.step == 0 or run.has_finished(run.step):
        return None
    attempts = run.attempts - sum(record.attempt for record in run.completed)
    return Unfinished(step=run.step, attempt=attempts, action=run.plan.action)


def executor_of(run: RunState, pending: Pending) -> str | None:
    """Who was asked for the pending attempt, by its name where it is known."""
    skill = run.brief.skill(pending.action.tool)
    return skill.executor if skill else None
