"""Rules of waiting: a run moves as the table says, and never waits beyond its deadline."""

from agent_service.core.decide import TABLE
from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable
from agent_service.core.waiting import ForAnswer, ForApproval, Status
from tests.core.rules.reading import Story, after, entries, granted, questions_of, requests_of


def a_run_moves_as_the_table_says(story: Story) -> None:
    for moment in story:
        rule = TABLE[type(moment.before.waiting) if moment.before else None][type(moment.event)]
        assert moment.transition.ignored or type(after(moment).waiting) in rule.to


def a_live_run_has_a_timer_no_later_than_its_deadline(story: Story) -> None:
    for place, moment in enumerate(story):
        state = after(moment)
        if state.status in (Status.QUEUED, Status.RUNNING):
            assert state.due_at is not None
            assert state.due_at <= granted(story, place).deadline_at
        elif isinstance(state.waiting, ForApproval | ForAnswer):
            assert state.due_at == state.waiting.expires_at
            assert state.due_at <= granted(story, place).deadline_at or not granted(story, place).deadline_named
        else:
            assert state.due_at is None


def a_paused_run_asks_for_nothing(story: Story) -> None:
    for moment in story:
        if after(moment).status is Status.PAUSED:
            assert not questions_of(moment)
            assert not requests_of(moment)


def only_the_call_that_is_asked_is_made_and_calls_count_up(story: Story) -> None:
    calls = []
    for moment in story:
        for question in questions_of(moment):
            asking = after(moment).asking
            assert asking is not None
            assert (asking.call, asking.phase) == (question.call, question.phase)
            calls.append(question.call)
    assert calls == sorted(calls)
    assert set(calls) <= set(range(1, after(story[-1]).calls + 1))


def only_the_reply_that_is_waited_for_counts(story: Story) -> None:
    for moment in entries(story):
        if isinstance(moment.event, CallReserved | ModelReplied | ModelUnavailable):
            assert moment.before is not None
            assert moment.before.status is Status.RUNNING
            assert moment.before.asking is not None
            assert moment.before.asking.call == moment.event.call


def a_run_is_framed_before_anything_else_is_asked(story: Story) -> None:
    for moment in story:
        asking = after(moment).asking
        assert asking is None or asking.phase == "frame" or after(moment).framing is not None
