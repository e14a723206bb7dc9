"""Stories in which a run rests for a person: for an approval, an answer, or because nobody knows what a write did."""

from dataclasses import replace
from typing import Literal

from agent_service.core.events import Event, SignalReceived, WakeAccepted
from agent_service.core.phases import Ask
from agent_service.core.waiting import ForApproval
from schemas.events import Signal
from tests.core.cues import RUN_ID, due, framing, replies, started
from tests.core.cues import plan as planned
from tests.core.script import Cue, Script
from tests.projections.journals import asked_for, second_by_second

QUESTION = Ask(
    question="Which of the two sensors is meant?",
    choices=("hall", "cellar"),
    tried="Both are called door.",
    would_change="which of them is read",
)
POSTING = planned("post", to="ann@example.org", text="The page is up.")


def from_strangers(run_id: str = RUN_ID) -> WakeAccepted:
    """Somebody from outside asks for the run."""
    return replace(asked_for("tell ann that the page is up", run_id=run_id), untrusted=True)


def rules(kind: Literal["approve", "reject"], message: str | None = None, by: str = "token ops") -> Cue:
    """A person decides about what waits for approval."""

    def cue(script: Script) -> Event:
        waiting = script.state.waiting
        assert isinstance(waiting, ForApproval), "nothing waits for approval"
        said = Signal(
            run_id=script.state.run_id,
            signal_id=f"signal-{len(script.story)}",
            kind=kind,
            message=message,
            arguments_hash=waiting.subject_hash,
        )
        return SignalReceived(at=script.now, signal=said, by=by, strict=True)

    return cue


def a_run_that_needs_approval(run_id: str = RUN_ID) -> Script:
    return second_by_second(from_strangers(run_id), started(), replies(framing()), replies(POSTING))


def a_run_that_asks(run_id: str = RUN_ID) -> Script:
    return second_by_second(asked_for("read the door", run_id=run_id), started(), replies(framing()), replies(QUESTION))


def a_run_in_doubt(run_id: str = RUN_ID) -> Script:
    """Its mail was sent, or not: no answer came in time."""
    asked = asked_for("tell ann that the page is up", run_id=run_id)
    return second_by_second(asked, started(), replies(framing()), replies(POSTING), due)
