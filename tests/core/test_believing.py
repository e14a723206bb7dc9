"""Which results count that do not prove which request they answer, and which never do."""

from typing import Any

import pytest

from tests.core.cues import FETCH, POST, frames, plans, returns, started, wake
from tests.core.script import Script, asks, escalates, ignores

ECHO, PLAIN = FETCH.model_copy(update={"echoes_capability": True}), POST
FORGED = "counts for nothing"


def asking(tool: str) -> Script:
    """A run that waits for a tool that echoes capabilities (`fetch`), or for one that does not (`post`)."""
    return Script() >> wake() >> started((ECHO, PLAIN)) >> frames() >> plans(tool)


BREACHES = ({"step": 999}, {"tool": "post"}, {"tool": "nobodys"}, {"attempt": 2})


@pytest.mark.attack(50, 98)
@pytest.mark.parametrize("forged", [{}, {"status": "error"}, *BREACHES])
def test_of_a_tool_that_echoes_them_nothing_without_its_capability_moves_a_run(forged: dict[str, Any]) -> None:
    run = asking("fetch")
    before = run.state
    run >> returns(**forged, proof="none") << ignores(FORGED)
    assert run.state is before
    run >> returns(proof="named") << asks("reflect")


@pytest.mark.attack(50)
def test_whoever_was_asked_something_else_cannot_answer_this() -> None:
    asking("fetch") >> returns(proof="another") << ignores(FORGED)


@pytest.mark.parametrize("breach", BREACHES)
def test_who_is_known_by_the_capability_of_what_it_was_asked_can_break_the_protocol(breach: dict[str, Any]) -> None:
    asking("fetch") >> returns(**breach, proof="another") << escalates("protocol_violation")


def test_where_nothing_is_asked_a_stranger_ends_no_run() -> None:
    run = Script() >> wake() >> started((ECHO,)) >> frames()
    run >> returns(step=1, tool="fetch", proof="none") << ignores(FORGED)
    run >> returns(step=1, tool="nobodys", proof="none") << ignores(FORGED)


def test_a_tool_that_does_not_echo_them_answers_in_the_plain_shape() -> None:
    asking("post") >> returns(proof="none") << asks("reflect")


@pytest.mark.parametrize("breach", [{"step": 999}, {"tool": "nobodys"}, {"attempt": 2}])
def test_on_plain_routes_a_breach_of_protocol_escalates(breach: dict[str, Any]) -> None:
    run = Script() >> wake() >> started((PLAIN,)) >> frames() >> plans("post")
    run >> returns(**breach, proof="none") << escalates("protocol_violation")


def test_what_nobody_looked_at_when_it_was_written_counts_as_it_did() -> None:
    asking("fetch") >> returns() << asks("reflect")
