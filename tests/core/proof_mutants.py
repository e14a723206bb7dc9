"""Bugs in what becomes of a claim while somebody looks at it."""

from dataclasses import replace
from typing import Any

from agent_service.core.model import verifying
from agent_service.core.people import hearing
from agent_service.core.state import RunState
from tests.core.bugs import Bug, always, before
from tests.core.rules import Rule
from tests.core.rules import verifying as looked_at


def leaving_the_claim(right: Any) -> Any:
    """A message after which the claim still stands."""

    def told(state: RunState, event: Any) -> RunState:
        heard: RunState = right(state, event)
        return replace(heard, claim=state.claim, proposed=state.proposed)

    return told


PROOF_BUGS: dict[Rule, tuple[Bug, ...]] = {
    looked_at.a_claim_that_is_not_shown_is_refused_and_only_once: (
        Bug(
            "whatever was found, done counts",
            verifying,
            "_of_done",
            before(lambda state, claim, found: (state, claim, replace(found, holds=True))),
        ),
        Bug(
            "done is refused again and again",
            verifying,
            "look_at_done",
            before(lambda state, claim: (replace(state, unverified=0), claim)),
        ),
    ),
    looked_at.done_is_looked_at_where_that_is_wanted: (
        Bug("nobody is asked to look", verifying, "is_affordable", always(False)),
    ),
    looked_at.what_a_person_says_voids_what_is_claimed: (
        Bug("a message leaves the claim", hearing, "told", leaving_the_claim),
    ),
    looked_at.a_claim_stands_only_while_it_is_looked_at: (
        Bug(
            "a claim outlives its refusal",
            verifying,
            "_of_done",
            before(lambda state, claim, found: (replace(state, claim=claim), claim, found)),
        ),
    ),
}
