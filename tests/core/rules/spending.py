"""Rules of spending: no limit is exceeded, nothing is asked after the deadline, and what was paid is counted."""

from agent_service.core.events import ModelReplied, ModelUnavailable, SignalReceived
from agent_service.core.phases import Reflection, Verdict
from tests.core.rules.reading import (
    Story,
    after,
    entries,
    finals,
    granted,
    pauses,
    questions_of,
    requests_of,
    sent,
    total,
    usages,
)
from tests.core.script import Moment


def no_more_steps_and_attempts_are_taken_than_granted(story: Story) -> None:
    for request in sent(story):
        limits = granted(story, request.place)
        assert request.step <= limits.max_steps
        assert request.attempt <= limits.max_attempts


def the_attempts_of_the_run_are_bounded(story: Story) -> None:
    """First questions of tasks cost none: they are bounded by what a step may gather."""
    counted = [request for request in sent(story) if request.attempt > 1 or not request.task]
    assert len(counted) <= granted(story, len(story)).max_attempts_of_run


def no_more_reframes_are_made_than_granted(story: Story) -> None:
    made = 0
    for place, moment in enumerate(story):
        made += _is_reframe(moment)
        assert made <= granted(story, place).max_reframes


def _is_reframe(moment: Moment) -> bool:
    """Whether the model wanted to frame anew, and was let."""
    event, before = moment.event, moment.before
    if not isinstance(event, ModelReplied) or moment.transition.ignored or before is None or before.asking is None:
        return False
    if event.heard is not None and event.heard < before.heard:
        return False
    wanted = isinstance(event.decision, Reflection) and event.decision.verdict is Verdict.REFRAME
    return wanted and before.asking.phase == "reflect" and not finals(moment) and not pauses(moment)


def no_model_call_is_made_when_the_money_is_spent(story: Story) -> None:
    for place, moment in enumerate(story):
        if questions_of(moment):
            limits, paid = granted(story, place), usages(story[: place + 1])
            tokens = sum(usage.input_tokens + usage.output_tokens for usage in paid)
            assert limits.max_tokens is None or tokens < limits.max_tokens
            known = [usage.cost_usd for usage in paid if usage.cost_usd is not None]
            assert limits.max_cost_usd is None or len(known) < len(paid) or sum(known) < limits.max_cost_usd


def no_model_call_is_made_when_a_limited_cost_is_unknown(story: Story) -> None:
    for place, moment in enumerate(story):
        if questions_of(moment) and granted(story, place).max_cost_usd is not None:
            assert all(usage.cost_usd is not None for usage in usages(story[: place + 1]))


def every_paid_call_is_counted(story: Story) -> None:
    for place, moment in enumerate(story):
        paid, spent = usages(story[: place + 1]), after(moment).spent
        assert spent.calls == len(paid)
        assert spent.input_tokens == sum(usage.input_tokens for usage in paid)
        assert spent.output_tokens == sum(usage.output_tokens for usage in paid)
        assert spent.cache_read_tokens == sum(usage.cache_read_tokens for usage in paid)
        assert spent.cost_usd == total([usage.cost_usd for usage in paid])


def nothing_is_asked_at_or_after_the_deadline(story: Story) -> None:
    for place, moment in enumerate(story):
        if questions_of(moment) or requests_of(moment):
            assert moment.event.at < granted(story, place).deadline_at


def model_calls_are_bounded_by_the_limits(story: Story) -> None:
    limits = granted(story, len(story))
    resumed = sum(isinstance(moment.event, SignalReceived | ModelUnavailable) for moment in entries(story))
    phases = 2 + 2 * limits.max_reframes + 3 * limits.max_steps + limits.max_refused_done + resumed
    assert after(story[-1]).calls <= phases * (limits.max_repairs + 1)
