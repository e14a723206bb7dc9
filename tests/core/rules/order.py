"""Rules of order: entries, statuses and keys; a run ends once, with proof; its journal can be read back."""

from itertools import pairwise

from pydantic_core import to_json

from agent_service.core.events import (
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    ToolReturned,
)
from agent_service.core.facts import CallReserved
from agent_service.core.waiting import NeedsPerson, Status, Stop
from agent_service.run import journal, messages
from schemas import subjects
from schemas.events import envelope_of
from tests.core.rules.reading import Story, after, entries, finals, granted, is_entry, name_of, reopened, requests_of
from tests.core.script import commits_of


def every_entry_counts_one_version(story: Story) -> None:
    assert [after(change).version for change in entries(story)] == list(range(1, len(entries(story)) + 1))


def an_ignored_event_changes_nothing(story: Story) -> None:
    for change in story:
        assert is_entry(change) or change.transition.state is change.before


def no_key_is_used_twice(story: Story) -> None:
    keys = [one.key for change in story for one in change.messages]
    assert len(keys) == len(set(keys))


def a_signal_is_heard_once(story: Story) -> None:
    heard = [m.event.signal.signal_id for m in entries(story) if isinstance(m.event, SignalReceived)]
    assert len(heard) == len(set(heard))


def a_run_ends_once_and_nothing_follows(story: Story) -> None:
    """An escalated run may be reopened by an answer."""
    for change, other in pairwise(story):
        if not after(change).final:
            assert after(other).final == bool(finals(other))
        elif reopened(other):
            assert after(change).status is Status.ESCALATED
            assert isinstance(other.event, SignalReceived)
            assert other.event.signal.kind == "answer"
            assert not after(other).final
        else:
            assert after(other).final
            assert not other.messages
            assert not other.asks
            assert not is_entry(other) or isinstance(other.event, ToolReturned)
    assert all(len(finals(change)) <= 1 for change in story)


def a_late_result_is_recorded_once(story: Story) -> None:
    """It is recorded again if the outcome of its request was unknown."""
    came = [m.event.result for m in entries(story) if isinstance(m.event, ToolReturned) and m.before and m.before.final]
    late = [result for result in came if not (result.error and result.error.error_class == "in_doubt")]
    assert len(late) == len({(name_of(result), result.attempt, result.tool) for result in late})


def a_cancel_ends_any_run(story: Story) -> None:
    for change in story:
        if isinstance(change.event, CancelRequested) and change.before and not change.before.final:
            assert finals(change) == ["agent.cancelled"]


def a_run_is_completed_only_with_proof_of_every_item(story: Story) -> None:
    for place, change in enumerate(story):
        for completed in change.published("agent.completed"):
            items = completed["definition_of_done"]
            assert len(items) >= 3
            assert all(item["done"] and item["evidence"] for item in items)
            assert {proof for item in items for proof in item["evidence"]} <= _proofs(story[:place])


def _proofs(story: Story) -> set[str]:
    """Evidence of a run: successful steps, also by a person's word, and artifacts."""
    results = [change.event.result for change in entries(story) if isinstance(change.event, ToolReturned)]
    good = [result for result in results if result.status == "ok"]
    named = {result.result.artifact_path for result in good if result.result and result.result.artifact_path}
    by_word = {record.step for change in story if reopened(change) for record in after(change).completed}
    return {f"step:{step}" for step in {result.step for result in good} | by_word} | named


def a_live_run_has_a_timer_no_later_than_its_deadline(story: Story) -> None:
    for change, limits in granted(story):
        state = after(change)
        if state.status in (Status.QUEUED, Status.RUNNING):
            assert state.due_at is not None
            assert state.due_at <= limits.deadline_at
        elif isinstance(state.waiting, NeedsPerson) and not isinstance(state.ask, Stop):
            assert state.due_at
            assert state.due_at <= (state.waiting.expires_at or state.due_at)
            assert state.due_at <= limits.deadline_at or not limits.deadline_named
        else:
            assert state.due_at is None


def a_paused_run_asks_for_nothing(story: Story) -> None:
    for change in story:
        if after(change).status is Status.PAUSED:
            assert not change.asks
            assert not requests_of(change)


def calls_count_up(story: Story) -> None:
    calls = [change.asks.call for change in story if change.asks]
    assert calls == sorted(calls)
    assert set(calls) <= set(range(1, after(story[-1]).calls + 1))


def only_the_reply_that_is_waited_for_counts(story: Story) -> None:
    for change in entries(story):
        if isinstance(change.event, CallReserved | ModelReplied | ModelUnavailable):
            assert change.before is not None
            assert change.before.status is Status.RUNNING
            assert change.before.open_call is not None
            assert change.before.open_call.call == change.event.call


def a_run_is_framed_before_anything_else_is_asked(story: Story) -> None:
    for change in story:
        asking = after(change).open_call
        assert asking is None or asking.phase == "frame" or after(change).framing is not None


def the_journal_folds_to_the_same_states_and_the_same_facts(story: Story) -> None:
    commits = commits_of(story)
    replayed = list(journal.replay(commit.entry for commit in commits))
    assert [change.state for change in replayed] == [commit.state for commit in commits]
    assert [change.facts for change in replayed] == [commit.facts for commit in commits]
    assert replayed[-1].state == after(story[-1])
    assert journal.flaw_in_chain([commit.entry for commit in commits]) is None


def states_and_events_survive_being_written_and_read(story: Story) -> None:
    brief = ""
    grown: dict[str, list[str]] = {}
    for change, commit in zip(entries(story), commits_of(story), strict=True):
        brief = journal.encode_brief(commit.brief) if commit.brief else brief
        for growth in commit.growth:
            grown[growth.field] = [*grown.get(growth.field, [])[growth.dropped :], *growth.added]
        assert commit.entry.decoded() == change.event
        if commit.entry.seq % 5 == 0:
            items = [(field, item) for field, some in grown.items() for item in some]
            assert journal.decode_state(journal.encode_state(commit.state), brief, items) == commit.state


def what_is_said_is_what_its_model_would_write_byte_for_byte(story: Story) -> None:
    for one in (message for change in story for message in change.messages):
        kind = subjects.TOOL_REQUEST if one.subject.startswith(subjects.TOOL_REQUEST) else one.subject
        body = to_json({"type": one.subject, "payload": one.payload, "dedupe_key": one.key})
        assert envelope_of(kind).model_validate_json(body).body() == body


def what_is_said_again_was_said_before_word_for_word(story: Story) -> None:
    said = {one.key: one for change in story for one in change.messages}
    for change in story:
        for again in messages.outstanding(after(change)):
            assert after(change).status is Status.QUEUED or said[again.key] == again
