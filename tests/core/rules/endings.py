"""Rules of the end: once, for good, and with proof."""

from agent_service.core.events import CancelRequested, ToolReturned
from tests.core.rules.reading import Story, after, entries, finals, is_entry


def a_run_ends_once_and_nothing_follows(story: Story) -> None:
    ends = [place for place, moment in enumerate(story) for _ in finals(moment)]
    assert len(ends) <= 1
    for place, moment in enumerate(story):
        assert after(moment).final == (bool(ends) and place >= ends[0])
        if ends and place > ends[0]:
            assert not moment.effects
            assert not is_entry(moment) or isinstance(moment.event, ToolReturned)


def a_late_result_is_recorded_once(story: Story) -> None:
    late = [m.event.result for m in entries(story) if isinstance(m.event, ToolReturned) and m.before and m.before.final]
    assert len(late) == len({(result.step, result.attempt) for result in late})


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
    """What a run can point to: steps that went well, and artifacts."""
    results = [moment.event.result for moment in entries(story) if isinstance(moment.event, ToolReturned)]
    good = [result for result in results if result.status == "ok"]
    named = {result.result.artifact_path for result in good if result.result and result.result.artifact_path}
    return {f"step:{result.step}" for result in good} | named
