"""When a bus may have forgotten: by what is seen of its stream, twice."""

from datetime import UTC, datetime

import pytest

from groundwork.nats.keeping_informed import Sight

MADE, MADE_ANEW = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)


def seen(first_seq: int, last_seq: int, *, reconnects: int = 0, created: datetime = MADE) -> Sight:
    return Sight(reconnects, created, first_seq, last_seq)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (seen(1, 5), seen(1, 5, reconnects=1)),
        (seen(1, 5), seen(1, 9, created=MADE_ANEW)),
        (seen(1, 5), seen(1, 4)),
        (seen(1, 5), seen(6, 5)),
        (seen(1, 5), seen(9, 12)),
        (seen(0, 0), seen(3, 2)),
        (seen(6, 5), seen(8, 7)),
    ],
    ids=["was away", "made anew", "lost its end", "emptied", "emptied and used", "emptied once used", "emptied again"],
)
def test_a_stream_that_lacks_what_it_had_may_have_forgotten(before: Sight, now: Sight) -> None:
    assert now.may_have_forgotten(before)


@pytest.mark.parametrize(
    ("before", "now"),
    [(seen(0, 0), seen(1, 1)), (seen(1, 5), seen(1, 9)), (seen(1, 5), seen(4, 9)), (seen(6, 5), seen(6, 8))],
    ids=["its first message", "more of them", "some grew old", "used after it was emptied"],
)
def test_a_stream_that_is_used_has_forgotten_nothing(before: Sight, now: Sight) -> None:
    assert not now.may_have_forgotten(before)
