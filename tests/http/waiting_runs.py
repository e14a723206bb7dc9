"""Runs that wait for a person: with a mail to be allowed, a question to be answered, or handed over."""

from collections.abc import Sequence

from agent_service.core.events import ModelUnavailable, RunStarted
from agent_service.core.phases import Action, Ask, Plan
from agent_service.run.journal import Commit
from schemas.catalog import ToolCommand, ToolOffer
from tests.kit.runs import FRAMING, SEARCH, SECOND, accepted, after, replied, started

MAIL = ToolOffer(
    name="mail",
    route="mail",
    commands=(ToolCommand(name="send", tier="write", approve="always", input_schema={"type": "object"}),),
)
LETTER = Action(tool="mail", command="send", arguments={"to": "ann@example.org", "text": "The page is up."})
QUESTION = Ask(question="Which sensor is meant?", choices=("hall", "cellar"), tried="Both are called door.")


def framed(number: int) -> Sequence[Commit]:
    first = accepted(number)
    begun = after(first, RunStarted(at=first.entry.at + SECOND, skills=(SEARCH, MAIL)))
    return [first, begun, replied(begun, FRAMING)]


def with_a_letter(number: int = 1) -> Sequence[Commit]:
    """It wants to send a mail, which a person must allow."""
    commits = framed(number)
    return [*commits, replied(commits[-1], Plan(action=LETTER))]


def with_a_question(number: int = 1) -> Sequence[Commit]:
    commits = framed(number)
    return [*commits, replied(commits[-1], QUESTION)]


def handed_over(number: int = 1) -> Sequence[Commit]:
    """It has escalated."""
    begun = started(accepted(number))
    refused = ModelUnavailable(
        at=begun.entry.at + SECOND, call=1, remedy="escalate", error_class="model_refused", message="no answer"
    )
    return [accepted(number), begun, after(begun, refused)]
