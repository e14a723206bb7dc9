"""Stories in which a run waits for a person: an approval, an answer, a write in doubt."""

from dataclasses import replace
from typing import Any

from agent_service.core.events import WakeAccepted
from agent_service.core.phases import AskPerson
from agent_service.views.inbox import DeadLetter
from schemas import subjects
from schemas.events import Outcome
from tests.core.cues import RUN_ID, due, framing, limits, replies, signal, started
from tests.core.cues import plan as planned
from tests.core.script import NOON, Cue, Script
from tests.projections.journals import asked_for, second_by_second

QUESTION = AskPerson(
    question="Which of the two sensors is meant?",
    choices=("hall", "cellar"),
    tried="Both are called door.",
    would_change="which of them is read",
)
POSTING = planned("post", to="ann@example.org", text="The page is up.")

LETTER = DeadLetter(
    id=7,
    buried=NOON,
    headers={"Dead-Letter-Subject": subjects.TOOL_RESULT, "Dead-Letter-Reason": "status: Field required"},
    size=2,
)


def answers(message: str | None = None, outcome: Outcome | None = None) -> Cue:
    """A person answers a question, or an escalation."""
    return signal("answer", message=message, outcome=outcome, by="token ops")


def a_run_that_needs_approval(run_id: str = RUN_ID, **arguments: Any) -> Script:
    """An untrusted page leads to a write."""
    wake = asked("tell ann that the page is up", run_id, untrusted=True)
    plan = planned("post", **arguments) if arguments else POSTING
    return second_by_second(wake, started(), replies(framing()), replies(plan))


def a_run_that_asks(run_id: str = RUN_ID) -> Script:
    return second_by_second(asked("read the door", run_id), started(), replies(framing()), replies(QUESTION))


def a_run_in_doubt(run_id: str = RUN_ID) -> Script:
    """A mail without an answer in time."""
    wake = asked("tell ann that the page is up", run_id, limits=limits(reopen_days=36_500))
    return second_by_second(wake, started(), replies(framing()), replies(POSTING), due)


def asked(goal: str, run_id: str = RUN_ID, **details: Any) -> WakeAccepted:
    wake = asked_for(goal, run_id=run_id)
    return replace(wake, wake_id=f"wake-{run_id}", brief=replace(wake.brief, **details))
