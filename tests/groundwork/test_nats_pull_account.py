"""How many messages a pull loop asks for, and when it doubts that they come."""

from groundwork.nats.consuming.pull_loop import SILENCE_SECONDS, PullAccount


def account(slots: int = 10) -> PullAccount:
    return PullAccount(slots, last=100.0)


def test_all_slots_are_asked_for_when_none_is_taken() -> None:
    assert account(slots=10).to_ask(busy=0) == 10


def test_never_more_is_asked_for_than_slots_are_free() -> None:
    one = account(slots=10)
    one.asked(4, now=100.0)
    assert one.to_ask(busy=3) == 3
    assert one.to_ask(busy=6) == 0


def test_nothing_is_asked_for_while_most_slots_are_already_asked_for() -> None:
    one = account(slots=10)
    one.asked(6, now=100.0)
    assert one.to_ask(busy=0) == 0
    one.arrived(100.1)
    assert one.to_ask(busy=1) == 4


def test_a_single_slot_is_asked_for_again_as_soon_as_it_is_free() -> None:
    one = account(slots=1)
    one.asked(1, now=100.0)
    one.arrived(100.1)
    assert one.to_ask(busy=1) == 0
    assert one.to_ask(busy=0) == 1


def test_a_heartbeat_is_a_sign_of_life_and_ends_nothing() -> None:
    one = account()
    one.asked(10, now=100.0)
    one.heard(1, {"Status": "100"}, now=102.0)
    assert (one.want, one.last, one.trouble) == (10, 102.0, "")


def test_a_pull_whose_time_is_over_gives_back_what_it_lacked() -> None:
    one = account()
    one.asked(10, now=100.0)
    one.heard(1, {"Status": "408", "Nats-Pending-Messages": "7"}, now=130.0)
    assert (one.want, one.trouble) == (3, "")


def test_an_ended_pull_that_does_not_say_what_it_lacked_ends_them_all() -> None:
    one = account()
    one.asked(10, now=100.0)
    one.heard(1, {"Status": "409", "Description": "Consumer Deleted"}, now=101.0)
    assert (one.want, one.trouble) == (0, "409 Consumer Deleted")


def test_a_message_ends_the_trouble() -> None:
    one = account()
    one.heard(1, {"Status": "503"}, now=101.0)
    assert one.trouble == "503"
    one.arrived(102.0)
    assert one.trouble == ""


def test_the_end_of_a_pull_of_an_older_generation_is_no_news() -> None:
    one = account()
    one.start_over(now=101.0)
    one.asked(10, now=101.0)
    one.heard(1, {"Status": "409", "Description": "Server Shutdown"}, now=102.0)
    assert (one.want, one.trouble) == (10, "")


def test_silence_is_doubted_only_while_something_is_due() -> None:
    one = account()
    late = 100.0 + SILENCE_SECONDS + 0.1
    assert not one.silent(late)
    one.asked(10, now=100.0)
    assert one.silent(late)
    one.arrived(late)
    assert not one.silent(late + 1.0)


def test_a_long_time_with_all_slots_taken_is_no_silence() -> None:
    one = account()
    one.asked(1, now=500.0)
    assert not one.silent(500.1)
