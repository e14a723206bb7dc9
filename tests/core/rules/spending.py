"""Rules of spending: no limit is exceeded, costs are reserved, and paid or lost calls are counted."""

from collections.abc import Iterator

from agent_service.core.events import ModelReplied, ModelUnavailable, ModelUsage, SignalReceived
from agent_service.core.facts import CallReserved
from agent_service.core.phases import Phase
from agent_service.core.waiting import CallReserve, Status
from tests.core.rules.reading import (
    Story,
    after,
    entries,
    granted,
    is_entry,
    paid_by,
    requests_of,
    sent,
    total,
)
from tests.core.script import ChangeRecord


def limits_grow_only_by_people_or_while_they_are_asked(story: Story) -> None:
    for change in entries(story)[1:]:
        assert change.before is not None
        before, now = vars(change.before.brief.limits), vars(after(change).brief.limits)
        grown = {name for name, most in now.items() if most != before[name]}
        assert all(now[name] > before[name] for name in grown)
        signal = change.event.signal if isinstance(change.event, SignalReceived) else None
        raised = {name for name, _ in signal.constraints or ()} if signal else set()
        rested = change.before.status in (Status.PAUSED, Status.ESCALATED)
        assert grown <= raised | ({"deadline_at", "max_attempts_of_run"} if rested else set())


def no_more_steps_and_attempts_are_taken_than_granted(story: Story) -> None:
    for change, limits in granted(story):
        for request in requests_of(change):
            assert request.step <= limits.max_steps
            assert request.attempt <= limits.max_attempts


def the_attempts_of_the_run_are_bounded(story: Story) -> None:
    """First attempts of tasks do not count: limits of the step bound them."""
    counted = [request for request in sent(story) if request.attempt > 1 or not request.task]
    *_, (_, limits) = granted(story)
    assert len(counted) <= limits.max_attempts_of_run


def no_more_reframes_are_made_than_granted(story: Story) -> None:
    made = 0
    for change, limits in granted(story):
        asking = change.before.open_call if change.before else None
        reframes = change.asks and change.asks.phase is Phase.FRAME and asking and asking.phase is Phase.REFLECT
        made += bool(reframes)
        assert made <= limits.max_reframes


def no_model_call_is_made_when_the_money_is_spent(story: Story) -> None:
    """Nor when a cost is limited and not known."""
    for change, limits in granted(story):
        if change.asks:
            tokens, cost = after(change).spent.used, after(change).spent.paid
            assert limits.max_tokens is None or tokens < limits.max_tokens
            assert limits.max_cost_usd is None or (cost is not None and cost < limits.max_cost_usd)


def every_paid_call_is_counted(story: Story) -> None:
    paid: list[ModelUsage] = []
    for change in story:
        paid += paid_by(change)
        spent = after(change).spent
        assert spent.calls == len(paid)
        assert spent.input_tokens == sum(usage.input_tokens for usage in paid)
        assert spent.output_tokens == sum(usage.output_tokens for usage in paid)
        assert spent.cache_read_tokens == sum(usage.cache_read_tokens for usage in paid)
        assert spent.cost_usd == total([usage.cost_usd for usage in paid])


def nothing_is_asked_at_or_after_the_deadline(story: Story) -> None:
    for change, limits in granted(story):
        if change.asks or requests_of(change):
            assert change.event.at < limits.deadline_at


def lost_with(story: Story) -> Iterator[tuple[ChangeRecord, list[CallReserve]]]:
    """Each moment with the reserves that are lost by then: the next reserve of the same call, an end or a pause found
    them without a reply.
    """
    gone: list[CallReserve] = []
    for change in story:
        standing = change.before.reserve if change.before and is_entry(change) else None
        left = isinstance(change.event, CallReserved) or after(change).status is not Status.RUNNING
        if standing and left and not isinstance(change.event, ModelReplied | ModelUnavailable):
            gone.append(standing)
        yield change, gone


def what_was_set_aside_and_not_answered_is_lost_once(story: Story) -> None:
    for change, gone in lost_with(story):
        spent = after(change).spent
        assert (spent.lost_calls, spent.lost_tokens) == (len(gone), sum(reserve.tokens for reserve in gone))
        assert spent.lost_cost_usd == total([reserve.cost_usd for reserve in gone])


def no_call_is_made_that_could_break_a_limit(story: Story) -> None:
    for change, limits in granted(story):
        if isinstance(change.event, CallReserved) and change.asks:
            spent, most = after(change).spent, change.event.reserve
            cost = total([spent.paid, most.cost_usd])
            assert limits.max_tokens is None or spent.used + most.tokens <= limits.max_tokens
            assert limits.max_cost_usd is None or (cost is not None and cost <= limits.max_cost_usd + 1e-9)


def a_reserve_stands_only_while_its_call_is_being_made(story: Story) -> None:
    assert all(after(change).active_call for change in story if after(change).reserve)


def a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget(story: Story) -> None:
    for change in entries(story):
        event, before = change.event, change.before
        if isinstance(event, CallReserved) and before:
            ended = ("budget_tokens", "budget_cost", "budget_time", "completed" if before.claim else "")
            is_made = change.asks and (change.asks.call, after(change).reserve) == (event.call, event.reserve)
            assert is_made or (not change.asks and after(change).ending_class in ended)
