"""Rules of the end: once, for good, and with proof."""

from itertools import pairwise

from agent_service.core.events import CancelRequested, SignalReceived, ToolReturned
from agent_service.core.waiting import Status
from tests.core.rules.reading import Story, after, entries, finals, is_entry, name_of, reopened


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
            assert not other.effects
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
