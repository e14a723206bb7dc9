"""Rules of order: entries, statuses and keys; a run moves as the table says, and ends once, with proof."""

from itertools import pairwise

from agent_service.core.decide import TABLE
from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    ToolReturned,
)
from agent_service.core.waiting import NeedsPerson, Status, Stop
from tests.core.rules.reading import Story, after, entries, finals, granted, is_entry, name_of, reopened, requests_of


def every_entry_counts_one_version(story: Story) -> None:
    assert [after(moment).version for moment in entries(story)] == list(range(1, len(entries(story)) + 1))


def an_ignored_event_changes_nothing(story: Story) -> None:
    for moment in story:
        assert is_entry(moment) or moment.transition.state is moment.before


def no_key_is_used_twice(story: Story) -> None:
    keys = [one.key for moment in story for one in moment.messages]
    assert len(keys) == len(set(keys))


def a_signal_is_heard_once(story: Story) -> None:
    heard = [m.event.signal.signal_id for m in entries(story) if isinstance(m.event, SignalReceived)]
    assert len(heard) == len(set(heard))


def a_run_ends_once_and_nothing_follows(story: Story) -> None:
    """Once for good; after it was handed to a person only an answer lets it go on."""
    for moment, other in pairwise(story):
        if not after(moment).final:
            assert after(other).final == bool(finals(other))
        elif reopened(other):
            assert after(moment).status is Status.ESCALATED
            assert isinstance(other.event, SignalReceived)
            assert other.event.signal.kind == "answer"
            assert not after(other).final
        else:
            assert after(other).final
            assert not other.messages
            assert not other.asks
            assert not is_entry(other) or isinstance(other.event, ToolReturned)
    assert all(len(finals(moment)) <= 1 for moment in story)


def a_late_result_is_recorded_once(story: Story) -> None:
    """Once more where it was not known first what came of it."""
    came = [m.event.result for m in entries(story) if isinstance(m.event, ToolReturned) and m.before and m.before.final]
    late = [result for result in came if not (result.error and result.error.error_class == "in_doubt")]
    assert len(late) == len({(name_of(result), result.attempt, result.tool) for result in late})


def a_cancel_ends_any_run(story: Story) -> None:
    for moment in story:
        if isinstance(moment.event, CancelRequested) and moment.before and not moment.before.final:
            assert finals(moment) == ["agent.cancelled"]


def a_run_is_completed_only_with_proof_of_every_item(story: Story) -> None:
    for place, moment in enumerate(story):
        for completed in moment.published("agent.completed"):
            items = completed["definition_of_done"]
            assert len(items) >= 3
            assert all(item["done"] and item["evidence"] for item in items)
            assert {proof for item in items for proof in item["evidence"]} <= _proofs(story[:place])


def _proofs(story: Story) -> set[str]:
    """What a run can point to: steps that went well, or did by a person's word, and artifacts."""
    results = [moment.event.result for moment in entries(story) if isinstance(moment.event, ToolReturned)]
    good = [result for result in results if result.status == "ok"]
    named = {result.result.artifact_path for result in good if result.result and result.result.artifact_path}
    by_word = {record.step for moment in story if reopened(moment) for record in after(moment).completed}
    return {f"step:{step}" for step in {result.step for result in good} | by_word} | named


def a_run_moves_as_the_table_says(story: Story) -> None:
    for moment in story:
        rule = TABLE[type(moment.before.waiting) if moment.before else None][type(moment.event)]
        assert moment.transition.ignored or type(after(moment).waiting) in rule.to


def a_live_run_has_a_timer_no_later_than_its_deadline(story: Story) -> None:
    for moment, limits in granted(story):
        state = after(moment)
        if state.status in (Status.QUEUED, Status.RUNNING):
            assert state.due_at is not None
            assert state.due_at <= limits.deadline_at
        elif isinstance(state.waiting, NeedsPerson) and not isinstance(state.ask, Stop):
            assert state.due_at == state.waiting.expires_at
            assert state.due_at
            assert state.due_at <= limits.deadline_at or not limits.deadline_named
        else:
            assert state.due_at is None


def a_paused_run_asks_for_nothing(story: Story) -> None:
    for moment in story:
        if after(moment).status is Status.PAUSED:
            assert not moment.asks
            assert not requests_of(moment)


def calls_count_up(story: Story) -> None:
    calls = [moment.asks.call for moment in story if moment.asks]
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
