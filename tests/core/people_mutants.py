"""Bugs in what a run asks of people, and in how it hears them."""

from datetime import datetime
from typing import Any

from agent_service.core.effects import Transition
from agent_service.core.model import answering, thinking
from agent_service.core.people import approving, hearing
from agent_service.core.state import RunState
from agent_service.core.tools import doubting
from agent_service.core.waiting import ForApproval
from tests.core.bugs import Bug, always
from tests.core.rules import Rule, people


def approved_in_its_place(state: RunState, waiting: ForApproval, _ruling: Any, *, at: datetime) -> Transition:
    return hearing._approved(state, waiting, by="", at=at)


PEOPLE_BUGS: dict[Rule, tuple[Bug, ...]] = {
    people.no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it: (
        Bug("nothing needs an approval", approving, "why_needed", always("")),
        Bug("a refusal is taken for an approval", hearing, "_refused", lambda _: approved_in_its_place),
        Bug(
            "any approval allows everything",
            approving,
            "is_allowed",
            lambda _: lambda state, _plan: bool(state.rulings),
        ),
    ),
    people.what_was_refused_is_not_asked_for_again_until_somebody_says_more: (
        Bug("what was refused may be planned again at once", approving, "flaws_of", always(())),
    ),
    people.a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared: (
        Bug("a write in doubt bars nothing", doubting, "flaws_of", always(())),
    ),
    people.nothing_goes_past_what_a_person_said_meanwhile: (
        Bug("a reply goes past a message", thinking, "outrun", always(False)),
    ),
    people.no_more_questions_are_asked_than_granted: (
        Bug("any number of questions is asked", answering, "flaws_of", always(())),
    ),
}
