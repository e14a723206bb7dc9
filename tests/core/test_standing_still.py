"""After everything was stopped a run is where it was, and has the time that it had."""

from datetime import timedelta

import pytest

from tests.core.cues import frames, plans, queued, returns, started, stood_still, unavailable
from tests.core.read_cues import plans_several
from tests.core.script import Cue, Ignored, Script
from tests.core.task_cues import a_task, multi_step

AN_HOUR = timedelta(hours=1)
STILL = stood_still(AN_HOUR.total_seconds())
ASKS_MORE = returns("continuation", output={"continuation": multi_step(a_task("f", "fetch"))})


def as_far_as(*cues: Cue, **limits: object) -> Script:
    run = queued(**limits)
    for cue in (started(), frames(), *cues):
        run = run >> cue
    return run


@pytest.mark.parametrize(
    "story",
    [(), (unavailable("try_again"),), (plans(),), (plans_several("fetch", "fetch"),), (plans(), ASKS_MORE)],
    ids=["model", "model retry", "tool", "reads", "evidence"],
)
def test_it_is_where_it_was_and_every_end_is_later(story: tuple[Cue, ...]) -> None:
    run = as_far_as(*story, parallel_reads=2)
    before = run.state
    run >> STILL << ()
    after = run.state
    assert type(after.waiting) is type(before.waiting)
    assert after.brief.limits.deadline_at == before.brief.limits.deadline_at + AN_HOUR
    ends = zip(before.pendings, after.pendings, strict=True)
    assert all(later.deadline_at == earlier.deadline_at + AN_HOUR for earlier, later in ends)
    assert run.said == ["act: goes on: everything was stopped by ann (it mails everybody)"]


def test_the_same_stop_counts_once() -> None:
    run = as_far_as(plans()) >> STILL
    run >> run.story[-1].event << Ignored("it has heard of that already")


def test_a_run_that_was_accepted_later_has_nothing_to_make_up_for() -> None:
    run = queued() >> stood_still(0)
    run << Ignored("it was accepted afterwards")
