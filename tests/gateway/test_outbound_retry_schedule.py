"""When a delivery is tried again, and when it is given up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ductile_gateway.outbound.notifications import CALLBACK, LONGEST_WISH_S, RELAY, Notification, next_try
from tests.gateway.parts import NOON, RUN


def a_delivery(target: str = CALLBACK, tries: int = 1) -> Notification:
    return Notification(
        target=target,
        lane=target,
        key="agentic:run:r:completed",
        run_id=RUN,
        type="agent.completed",
        url="",
        body=b"",
        accepted_at=NOON,
        tries=tries,
    )


def delay_s(delivery: Notification, *, wish_s: float = 0.0) -> float:
    due_at = next_try(delivery, now=NOON, wish_s=wish_s)
    assert due_at is not None
    return (due_at - NOON).total_seconds()


@pytest.mark.parametrize(("tries", "seconds"), [(1, 5), (2, 300), (3, 1800), (4, 7200), (5, 18000), (6, 36000)])
def test_a_callback_is_tried_ever_later(tries: int, seconds: float) -> None:
    assert seconds <= delay_s(a_delivery(tries=tries)) <= 1.1 * seconds


def test_what_failed_together_does_not_come_back_together() -> None:
    delays = {delay_s(replace(a_delivery(), key=f"key {number}")) for number in range(50)}
    assert len(delays) == 50


def test_the_same_failure_gives_the_same_instant() -> None:
    assert delay_s(a_delivery()) == delay_s(a_delivery())


def test_a_callback_is_tried_seven_times_in_most_of_a_day_and_then_given_up() -> None:
    now, tries = NOON, [NOON]
    while due_at := next_try(a_delivery(tries=len(tries)), now=now):
        now = due_at
        tries.append(now)
    assert len(tries) == 7
    assert timedelta(hours=17) < tries[-1] - NOON < timedelta(hours=24)


def test_what_waited_behind_another_for_a_day_is_given_up_after_one_try() -> None:
    assert next_try(a_delivery(), now=NOON + timedelta(hours=24)) is None


def test_a_receiver_may_ask_for_more_time_but_not_for_less_nor_for_days() -> None:
    assert delay_s(a_delivery(), wish_s=60) == 60
    assert delay_s(a_delivery(tries=3), wish_s=60) >= 1800
    assert delay_s(a_delivery(), wish_s=1e6) == LONGEST_WISH_S


def test_ductile_is_asked_every_five_minutes_for_a_week() -> None:
    late = a_delivery(RELAY, tries=900)
    assert 300 <= delay_s(late) <= 330
    assert next_try(late, now=NOON + timedelta(days=6)) is not None
    assert next_try(late, now=NOON + timedelta(days=7)) is None
