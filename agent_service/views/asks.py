"""What a run asks of people, as the API shows it."""

from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.people.reopening import closes_at
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, Status
from agent_service.history.plain import View
from agent_service.run.petition import petition


class AsksView(View):
    """What `agent.waiting` says, by the same names. `kind` says what is asked for.

    `approval`: of `command` of `tool` with `arguments`, or (without a tool) of a framing, which `arguments` then hold;
    an approval names `arguments_hash`. `question`: an answer. `budget`: more of it. `in_doubt`: whether `step` was
    carried out. `expires_at`: when it is decided without anybody; null where it is not. `task` and `round`: what is
    asked about is that sub-request of the step.
    """

    kind: Literal["approval", "question", "budget", "in_doubt"]
    reason: str
    step: int | None
    task: str | None
    round: int | None
    tool: str | None
    command: str | None
    arguments: dict[str, JsonValue] | None
    arguments_json: str | None
    """The same as JSON: to be shown where a reader of JSON would round its numbers."""
    arguments_hash: str | None
    question: str | None
    choices: tuple[str, ...]
    tried: str | None
    would_change: str | None
    expires_at: datetime | None


def asks_view(run: RunState) -> AsksView | None:
    asked = petition(run)
    return AsksView.model_validate(asked, from_attributes=True) if asked else None


def reopens_until(run: RunState) -> datetime | None:
    waiting = run.waiting
    return closes_at(run, waiting) if isinstance(waiting, Ended) and waiting.status is Status.ESCALATED else None
