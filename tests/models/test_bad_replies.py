"""Of sixty replies that cannot be used, none needs a second repair for a reason that the first could have told."""

from collections import Counter

import pytest

from agent_service.core.phases import Unusable
from agent_service.core.replacing import replace
from agent_service.core.waiting import Asking, ForModel
from agent_service.models.prompts.judging import read
from agent_service.models.prompts.prompt import compose
from agent_service.ports import Question
from tests.models import bad_decisions, bad_json
from tests.models.faults_of_replies import Bad
from tests.models.test_replies import ASKED

BAD = [*bad_json.ALL, *bad_decisions.ALL]
each = pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.kind.replace(" ", "-"))


def unusable(bad: Bad) -> Unusable:
    """What is said of it; of a plan that came with a good decision, of the plan."""
    decision, beside = read(ASKED[bad.phase], bad.text)
    found = decision if isinstance(decision, Unusable) else beside
    assert isinstance(found, Unusable), f"it is used as {decision} with {beside}"
    return found


def repaired(bad: Bad) -> Question:
    """The question as it is asked again."""
    asked, found = ASKED[bad.phase], unusable(bad)
    asking = Asking(call=2, phase=bad.phase, flaws=found.flaws, rejected=found.raw, repairs=1)
    return replace(asked, state=replace(asked.state, waiting=ForModel(asking=asking)))


def test_there_are_sixty_of_twelve_kinds() -> None:
    assert Counter(Counter(bad.kind for bad in BAD).values()) == {5: 12}


@each
def test_everything_that_is_wrong_is_told_in_the_first_repair(bad: Bad) -> None:
    told = compose(repaired(bad)).tail.replace("&lt;", "<")
    because = told.partition("could not be used, because:")[2].partition("It was:")[0] or told
    assert [piece for piece in bad.told if piece not in because] == []


@each
def test_nothing_is_told_that_is_not_wrong(bad: Bad) -> None:
    assert [flaw for flaw in unusable(bad).flaws if not any(piece in flaw for piece in bad.told)] == []


@each
def test_the_reply_is_shown_as_it_was(bad: Bad) -> None:
    told = compose(repaired(bad)).tail
    assert not bad.text or f"<your_rejected_reply>\n{bad.text}\n</your_rejected_reply>" in told
