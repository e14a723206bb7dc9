"""Errors of the gateway, named by what to do about them.

Unacceptable      no delivery of this message can ever succeed: to the dead letters (core/asked.py)
TryAgain          not done for now: the same again, later (NoRoom: once a person has made room)
Unreachable       no bus answers: start one, then the process, which resumes what was under way
Broken            nothing more can be stored or sent: restart the process, which resumes what was under way
Misconfigured     nothing works before a person mends the configuration
"""


class TryAgain(Exception):
    """Not done for now. `delay_s` is a good time to wait, in seconds."""

    def __init__(self, message: str, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class NoRoom(TryAgain):
    """The place is full until a person makes room; the message says how."""


class Broken(Exception):
    """This process cannot go on; the message says what failed."""


class Unreachable(Broken):
    """No bus answers."""


class Misconfigured(Exception):
    """Cannot start or go on like this; the message says what to change."""
