"""What people can say to a run while it runs or pauses."""

from typing import Literal

import pytest

from tests.core.cues import (
    a_paused_run,
    a_planning_run,
    a_waiting_run,
    queued,
    signal,
)
from tests.core.script import ignores


def test_the_newest_fifty_messages_are_kept() -> None:
    run = a_waiting_run()
    for n in range(51):
        run = run >> signal("message", message=f"message {n}")
    assert (len(run.state.messages), run.state.messages[-1]) == (50, "message 50")


@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_a_ruling_on_what_nobody_asked_is_refused(kind: Literal["approve", "reject"]) -> None:
    for run in (queued(), a_planning_run(), a_waiting_run(), a_paused_run()):
        run >> signal(kind) << ignores("nothing waits for an approval")


# What happens while a run is paused
