"""Pace: no more than granted, first come first served, and long waits are put off instead of waited for."""

import asyncio

import pytest

from agent_service.errors import ModelError
from agent_service.pace import LONGEST_WAIT_S, Pace
from tests.shell.callers import begun

# Rates


async def test_without_a_rate_everybody_goes_on_at_once() -> None:
    _, time, callers = begun()
    for number in range(200):
        callers.ask(str(number), tokens=10**9)
    await time.passes(0)
    assert len(callers.admitted) == 200


async def test_a_minute_s_worth_of_requests_goes_on_at_once_and_the_rest_evenly() -> None:
    _, time, callers = begun(requests=60)
    for number in range(70):
        callers.ask(str(number))
    await time.passes(0)
    assert len(callers.admitted) == 60
    await time.passes(10)
    assert callers.instants[60:] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


async def test_tokens_are_paced_as_requests_are() -> None:
    _, time, callers = begun(tokens=6000)
    for name in "abcdef":
        callers.ask(name, tokens=1500)
    await time.passes(30)
    assert callers.instants == [0, 0, 0, 0, 15]
    assert callers.names == ["a", "b", "c", "d", "e"]
    assert list(callers.refused) == ["f"]


async def test_the_stricter_of_both_rates_holds() -> None:
    _, time, callers = begun(requests=6, tokens=600)
    callers.ask("large", tokens=500)
    for name in ("b", "c"):
        callers.ask(name, tokens=100)
    await time.passes(20)
    assert callers.instants == [0, 0, 10]


@pytest.mark.parametrize("minutes", [1, 5])
async def test_over_any_time_no_more_is_admitted_than_granted(minutes: int) -> None:
    _, time, callers = begun(requests=30, tokens=3000)
    for second in range(60 * minutes):
        for number in range(3):
            callers.ask(f"{second}.{number}", tokens=50 + 40 * number)
        await time.passes(1)
    spent = sum(50 + 40 * int(name[-1]) for name in callers.names)
    assert spent <= 3000 * (minutes + 1)
    assert 30 * minutes * 0.9 <= len(callers.admitted) <= 30 * (minutes + 1)
    await callers.leave()


async def test_what_was_not_used_fills_the_minute_and_no_more() -> None:
    _, time, callers = begun(requests=5)
    await time.passes(3600)
    for number in range(6):
        callers.ask(str(number))
    await time.passes(0)
    assert len(callers.admitted) == 5
    await callers.leave()


async def test_a_call_larger_than_a_minute_s_worth_waits_for_a_full_minute_and_holds_the_next_ones_back() -> None:
    _, time, callers = begun(tokens=6000)
    callers.ask("larger than all", tokens=9000)
    await time.passes(0)
    assert callers.names == ["larger than all"]
    callers.ask("next", tokens=100)
    await time.passes(0)
    assert callers.refused["next"].retry_after_s == pytest.approx(31)
    await time.passes(31)
    callers.ask("next", tokens=100)
    await time.passes(0)
    assert callers.names == ["larger than all", "next"]


# First come, first served


async def test_who_comes_first_is_served_first_though_the_next_needs_less() -> None:
    _, time, callers = begun(tokens=6000)
    callers.ask("first", tokens=6000)
    callers.ask("large", tokens=1000)
    callers.ask("small", tokens=1)
    await time.passes(20)
    assert callers.names == ["first", "large", "small"]


async def test_a_hundred_at_once_are_served_in_their_order() -> None:
    _, time, callers = begun(requests=600)
    for number in range(700):
        callers.ask(str(number))
    await time.passes(LONGEST_WAIT_S)
    assert callers.names == [str(number) for number in range(700)]
    assert callers.admitted[-1][0] == pytest.approx(10, abs=0.1)


async def test_who_gives_up_while_waiting_takes_nothing_and_holds_nobody_up() -> None:
    _, time, callers = begun(tokens=6000)
    callers.ask("first", tokens=6000)
    callers.ask("impatient", tokens=1500)
    callers.ask("patient", tokens=500)
    await time.passes(1)
    callers.give_up("impatient")
    await time.passes(4)
    assert callers.instants == [0, 5]
    assert callers.names == ["first", "patient"]


# Long waits


async def test_a_long_wait_is_put_off_with_the_time_it_would_take() -> None:
    pace, time, callers = begun(tokens=6000)
    callers.ask("first", tokens=6000)
    await time.passes(0)
    with pytest.raises(ModelError, match=r"rate limits of agent\.model are used up") as refusal:
        await pace.admit(2100)
    assert (refusal.value.remedy, refusal.value.error_class) == ("try_again", "rate_limit")
    assert refusal.value.retry_after_s == pytest.approx(21)
    await time.passes(21)
    await pace.admit(2100)


async def test_nobody_waits_longer_than_that_however_many_wait_already() -> None:
    _, time, callers = begun(requests=6)
    for number in range(100):
        callers.ask(str(number))
    await time.passes(0)
    assert len(callers.admitted) == 6
    assert len(callers.refused) == 100 - 6 - 2
    assert {round(error.retry_after_s or 0) for error in callers.refused.values()} == {30}
    await time.passes(LONGEST_WAIT_S)
    assert callers.names == [str(number) for number in range(8)]


async def test_who_was_put_off_is_told_the_same_words_however_often() -> None:
    pace, time, callers = begun(tokens=6000)
    callers.ask("first", tokens=6000)
    await time.passes(0)
    told = set()
    for _ in range(3):
        with pytest.raises(ModelError) as refusal:
            await pace.admit(6000)
        told.add(str(refusal.value))
    assert told == {"the rate limits of agent.model are used up"}


# Holding back


async def test_while_the_provider_holds_us_back_nobody_goes_on() -> None:
    pace, time, callers = begun()
    pace.hold(10, "429")
    for name in "abc":
        callers.ask(name)
    await time.passes(9.9)
    assert callers.admitted == []
    await time.passes(0.2)
    assert callers.instants == [10, 10, 10]


async def test_a_long_hold_is_put_off_and_says_what_the_provider_said() -> None:
    pace, time, _ = begun()
    pace.hold(30, "429: slow down")
    with pytest.raises(ModelError, match="the provider asked to wait: 429: slow down") as refusal:
        await pace.admit(1)
    assert refusal.value.retry_after_s == pytest.approx(30)
    await time.passes(30)
    await pace.admit(1)


async def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    pace, time, callers = begun()
    pace.hold(15, "429")
    pace.hold(1, "529")
    callers.ask("a")
    await time.passes(14.9)
    assert callers.admitted == []


async def test_who_is_waiting_already_is_held_back_too_and_put_off_when_that_is_long() -> None:
    pace, time, callers = begun(requests=6)
    for number in range(7):
        callers.ask(str(number))
    await time.passes(5)
    pace.hold(60, "429")
    await time.passes(5)
    assert len(callers.admitted) == 6
    assert callers.refused["6"].retry_after_s == pytest.approx(55)


# Settling


async def test_what_a_call_did_not_use_is_given_back() -> None:
    pace, time, callers = begun(tokens=6000)
    await pace.admit(6000)
    pace.settle(6000, 1000)
    callers.ask("next", tokens=5000)
    await time.passes(0)
    assert callers.names == ["next"]


async def test_what_a_call_used_beyond_is_taken() -> None:
    pace, time, callers = begun(tokens=6000)
    await pace.admit(1000)
    pace.settle(1000, 6000)
    callers.ask("next", tokens=500)
    await time.passes(4.9)
    assert callers.admitted == []
    await time.passes(0.2)
    assert callers.names == ["next"]


async def test_giving_back_never_makes_more_than_a_minute_s_worth() -> None:
    pace, time, callers = begun(tokens=6000)
    await pace.admit(6000)
    await time.passes(60)
    pace.settle(6000, 0)
    await time.passes(0)
    callers.ask("all", tokens=6000)
    callers.ask("more", tokens=600)
    await time.passes(5.9)
    assert callers.names == ["all"]
    await callers.leave()


async def test_a_request_is_not_given_back_with_its_tokens() -> None:
    pace, time, callers = begun(requests=1, tokens=6000)
    await pace.admit(100)
    pace.settle(100, 0)
    callers.ask("next", tokens=1)
    await time.passes(0)
    assert callers.refused["next"].retry_after_s == pytest.approx(60)


async def test_the_real_clock_keeps_the_pace() -> None:
    pace = Pace(requests_per_minute=6000)
    async with asyncio.timeout(5):
        await asyncio.gather(*(pace.admit(1) for _ in range(6003)))
