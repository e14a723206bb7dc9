"""Runs that wait for a person: an approval, an answer, a write in doubt."""

from typing import Any

from agent_service.core.phases import AskPerson
from agent_service.views.inbox import DeadLetter
from schemas import subjects
from schemas.events import Outcome
from tests.core.cues import RUN_ID, due, plans, replies, signal
from tests.core.script import NOON, Cue, Script
from tests.core.words import run_at
from tests.projections.journals import on

QUESTION = AskPerson(
    question="Which of the two sensors is meant?",
    choices=("hall", "cellar"),
    tried="Both are called door.",
    would_change="which of them is read",
)
POSTING = {"to": "ann@example.org", "text": "The page is up."}

LETTER = DeadLetter(
    id=7,
    buried=NOON,
    headers={"Dead-Letter-Subject": subjects.TOOL_RESULT, "Dead-Letter-Reason": "status: Field required"},
    size=2,
)


def answers(message: str | None = None, outcome: Outcome | None = None) -> Cue:
    return signal("answer", message=message, outcome=outcome, by="token ops")


def a_run_that_needs_approval(run_id: str = RUN_ID, **arguments: Any) -> Script:
    """An untrusted page leads to a write."""
    return on(_framed("tell ann that the page is up", run_id, "untrusted=true"), plans("post", **arguments or POSTING))


def a_run_that_asks(run_id: str = RUN_ID) -> Script:
    return on(_framed("read the door", run_id), replies(QUESTION))


def a_run_in_doubt(run_id: str = RUN_ID) -> Script:
    """A mail without an answer in time."""
    return on(_framed("tell ann that the page is up", run_id, "reopen_days=36500"), plans("post", **POSTING), due)


def _framed(goal: str, run_id: str, details: str = "") -> Script:
    about = f'goal="{goal}" run_id={run_id} wake_id=wake-{run_id} announced=true context={{}} {details}'
    return run_at(f"wake {about} ; start ; frame", pace=1)
