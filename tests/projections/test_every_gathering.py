"""Whatever a step gathers, and however that goes, it can be told, and every telling has the same requests."""

from random import Random

from hypothesis import HealthCheck, given, settings

from agent_service.core.tools.flights import flights
from agent_service.run.moments import retell
from agent_service.telling.acts import item_of
from agent_service.telling.answers.step_in_full import step_detail
from agent_service.telling.history.timeline import Timeline
from agent_service.telling.spans.trace import spans
from agent_service.telling.tasks import Tasks, going_on
from tests.core.gathering import CHANCES, TREES, Gathering, Part, play

ANY_COURSE = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
OPEN = {"waiting", "pending"}


def played(root: Part, chance: Random, *, moves: int = 10_000) -> Gathering:
    gathering = Gathering(root)
    play(gathering, chance, loses=bool(chance.getrandbits(1)), moves=moves)
    return gathering


@ANY_COURSE
@given(TREES, CHANCES)
def test_open_is_at_any_time_what_the_run_waits_for(root: Part, chance: Random) -> None:
    tasks, timeline = Tasks(), Timeline()
    for moment in retell(played(root, chance).entries()):
        tasks.hear([moment])
        timeline.hear([moment])
        items = {item.id for item in timeline.view(moment.entry.run_id).items if item.ended_at is None}
        under_way = flights(moment.after.waiting)
        sent = {item_of(f.pending.name) + f":attempt:{f.pending.attempt}" for f in under_way if f.retry_at is None}
        assert {item for item in items if ":attempt:" in item} == sent
        still = {name[1:] for name in going_on(moment.after) if name[1]}
        assert {view.key for view in tasks.of(1) if view.status in OPEN} == still


@ANY_COURSE
@given(TREES, CHANCES)
def test_each_request_that_was_sent_is_in_every_telling(root: Part, chance: Random) -> None:
    moments = list(retell(played(root, chance).entries()))
    sent = {(pending.name, pending.attempt) for moment in moments for pending in moment.sent}
    detail, timeline = step_detail(moments, 1), Timeline()
    assert detail is not None
    told = {((1, "", 0), attempt.attempt) for attempt in detail.attempts}
    told |= {((1, *task.key), attempt.attempt) for task in detail.tasks for attempt in task.attempts}
    assert told == sent
    timeline.hear(moments)
    items = {item.id for item in timeline.view(moments[0].entry.run_id).items if item.kind == "attempt"}
    names = {f"{item_of(name)}:attempt:{number}" for name, number in sent}
    assert {item for item in items if ":attempt:" in item} == names


@ANY_COURSE
@given(TREES, CHANCES)
def test_the_spans_are_one_tree_in_which_nothing_outlasts_what_it_belongs_to(root: Part, chance: Random) -> None:
    told = list(spans(retell(played(root, chance).entries())))
    known = {span.span_id: span for span in told}
    assert len(known) == len(told)
    for span in told:
        if span.parent_id and "execute_tool" in known[span.parent_id].name:
            above = known[span.parent_id]
            assert above.started_at <= span.started_at
            assert span.ended_at <= above.ended_at
