"""When a delivery is tried again, and when it is given up."""

from datetime import timedelta

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


def test_a_callback_is_tried_seven_times_in_most_of_a_day_and_then_given_up() -> None:
    now, tries = NOON, [NOON]
    while due_at := next_try(a_delivery(tries=len(tries)), now=now):
        now = due_at
        tries.append(now)
    assert len(tries) == 7
    assert timedelta(hours=17) < tries[-1] - NOON < timedelta(hours=24)


def test_a_receiver_may_ask_for_more_time_but_not_for_less_nor_for_days() -> None:
    assert delay_s(a_delivery(), wish_s=60) == 60
    assert delay_s(a_delivery(tries=3), wish_s=60) >= 1800
    assert delay_s(a_delivery(), wish_s=1e6) == LONGEST_WISH_S


def test_ductile_is_asked_every_five_minutes_for_a_week() -> None:
    late = a_delivery(RELAY, tries=900)
    assert 300 <= delay_s(late) <= 330
    assert next_try(late, now=NOON + timedelta(days=6)) is not None
    assert next_try(late, now=NOON + timedelta(days=7)) is None
