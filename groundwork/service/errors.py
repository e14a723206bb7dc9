"""The errors of both services, named by what to do about them. Each text says what happened and what to do now.

TryAgain        not done for now, and nothing is lost: the same again, later
  NoRoom        the place is full until a person makes room
GiveUp          this one message or request can never succeed: the others go on
Fatal           this process cannot go on
  Broken        something failed beneath it (a disk): restart the process, which resumes what was under way
    Unreachable nothing answers at the address: start what should be there, then the process
  Misconfigured nothing works before a person mends a setting, a permission, a stream or a file
"""

from collections.abc import Iterator


class Failure(Exception):
    """Any of the errors below."""


class TryAgain(Failure):
    """Not done for now. `delay_s` is a good time to wait, in seconds."""

    def __init__(self, message: str, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class NoRoom(TryAgain):
    """The place is full until a person makes room; the message says how."""


class GiveUp(Failure):
    """Repeating it cannot help, and nothing else is in trouble: the message belongs with the dead letters."""


class Fatal(Failure):
    """This process cannot go on."""


class Broken(Fatal):
    """What this process stands on has failed; the message says what."""


class Unreachable(Broken):
    """Nothing answers at any of the addresses."""


class Misconfigured(Fatal):
    """Cannot start or go on like this; the message says what to change."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, or those that its groups hold."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from causes(one)
    else:
        yield error
