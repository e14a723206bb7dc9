"""Rules of spending: no limit is exceeded, what a call may cost is set aside, and what was paid or lost is counted."""

from collections.abc import Iterator

from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable
from agent_service.core.phases import Reflection, Verdict
from agent_service.core.waiting import Reserve, Status
from tests.core.rules.reading import (
    Story,
    after,
    entries,
    finals,
    granted,
    is_entry,
    pauses,
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
    places = [place for place, moment in enumerate(story) if _is_reframe(moment)]
    for made, place in enumerate(places, start=1):
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
        if moment.asks:
            limits, paid = granted(story, place), usages(story[: place + 1])
            tokens = sum(usage.input_tokens + usage.output_tokens for usage in paid)
            assert limits.max_tokens is None or tokens < limits.max_tokens
            known = [usage.cost_usd for usage in paid if usage.cost_usd is not None]
            assert limits.max_cost_usd is None or len(known) < len(paid) or sum(known) < limits.max_cost_usd


def no_model_call_is_made_when_a_limited_cost_is_unknown(story: Story) -> None:
    for place, moment in enumerate(story):
        if moment.asks and granted(story, place).max_cost_usd is not None:
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
        if moment.asks or requests_of(moment):
            assert moment.event.at < granted(story, place).deadline_at


def lost(story: Story) -> list[Reserve]:
    """What was set aside for calls that were begun and never answered, in the order in which that showed.

    The journal alone tells it: a reserve that the same call's next reserve, an end or a pause finds without an answer.
    """
    return [reserve for moment, standing in standing_before(story) for reserve in _lost_by(moment, standing)]


def standing_before(story: Story) -> Iterator[tuple[Moment, Reserve | None]]:
    """Each moment with the reserve that stood when it came."""
    standing: Reserve | None = None
    for moment in story:
        yield moment, standing
        if not is_entry(moment):
            continue
        if isinstance(moment.event, CallReserved):
            standing = moment.event.reserve if moment.asks else None
        elif _answers(moment) or after(moment).status is not Status.RUNNING:
            standing = None


def _lost_by(moment: Moment, standing: Reserve | None) -> Iterator[Reserve]:
    if standing is None or not is_entry(moment) or _answers(moment):
        return
    if isinstance(moment.event, CallReserved) or after(moment).status is not Status.RUNNING:
        yield standing


def _answers(moment: Moment) -> bool:
    return isinstance(moment.event, ModelReplied | ModelUnavailable)


def what_was_set_aside_and_not_answered_is_lost_once(story: Story) -> None:
    for place, moment in enumerate(story):
        gone, spent = lost(story[: place + 1]), after(moment).spent
        assert (spent.lost_calls, spent.lost_tokens) == (len(gone), sum(reserve.tokens for reserve in gone))
        assert spent.lost_cost_usd == total([reserve.cost_usd for reserve in gone])


def no_call_is_made_that_could_break_a_limit(story: Story) -> None:
    for place, moment in enumerate(story):
        if isinstance(moment.event, CallReserved) and moment.asks:
            limits, (tokens, cost) = granted(story, place), _at_most(story[: place + 1], moment.event.reserve)
            assert limits.max_tokens is None or tokens <= limits.max_tokens
            assert limits.max_cost_usd is None or (cost is not None and cost <= limits.max_cost_usd + 1e-9)


def _at_most(story: Story, reserve: Reserve) -> tuple[int, float | None]:
    """What is spent and lost, were `reserve` spent too."""
    gone, paid = [*lost(story), reserve], usages(story)
    tokens = sum(r.tokens for r in gone) + sum(usage.input_tokens + usage.output_tokens for usage in paid)
    return tokens, total([*(r.cost_usd for r in gone), *(usage.cost_usd for usage in paid)])


def a_reserve_stands_only_while_its_call_is_being_made(story: Story) -> None:
    assert all(after(moment).calling for moment in story if after(moment).reserve)


def a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget(story: Story) -> None:
    for moment in entries(story):
        event, before = moment.event, moment.before
        if isinstance(event, CallReserved) and before:
            ended = ("budget_tokens", "budget_cost", "budget_time", "completed" if before.claim else "")
            is_made = moment.asks and (moment.asks.call, after(moment).reserve) == (event.call, event.reserve)
            assert is_made or (not moment.asks and after(moment).ending_class in ended)
