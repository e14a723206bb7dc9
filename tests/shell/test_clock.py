"""The agent's clock beside one that jumps."""

from datetime import timedelta

from agent_service.trust.identity import SystemClock
from tests.kit.runs import NOON

HOUR = 3600.0


class Computer:
    """What its clock shows, and the time that really passes."""

    def __init__(self) -> None:
        self.shown, self.passed = NOON, 0.0
        self.clock = SystemClock(lambda: self.shown, lambda: self.passed)

    def passes(self, seconds: float) -> None:
        self.shown += timedelta(seconds=seconds)
        self.passed += seconds

    def is_set_by(self, seconds: float) -> None:
        self.shown += timedelta(seconds=seconds)


def test_what_is_due_in_three_seconds_comes_within_six_though_the_clock_is_set_back_by_an_hour() -> None:
    computer = Computer()
    due_at = computer.clock.now() + timedelta(seconds=3)
    computer.is_set_by(-HOUR)
    computer.passes(5.9)
    assert computer.clock.now() < due_at
    computer.passes(0.1)
    assert computer.clock.now() >= due_at


def test_a_run_that_begins_while_the_clock_is_behind_comes_after_those_before() -> None:
    computer = Computer()
    first = computer.clock.new_run_id()
    computer.is_set_by(-HOUR)
    computer.passes(1.0)
    assert computer.clock.new_run_id() > first
