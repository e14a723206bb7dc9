"""Exit codes, for scripts: how a run ended, or why a command did not do what it was asked."""

from enum import IntEnum

from groundwork.service import beginning


class Exit(IntEnum):
    """0 is success; a run that ended otherwise and a command that failed have codes of their own."""

    OK = 0
    FAILED = 1
    """The run failed, or a check found something wrong."""
    USAGE = 2
    """The command line is wrong."""
    ESCALATED = 3
    """The run escalated, or pauses for a person."""
    CANCELLED = 4
    NOT_FOUND = 5
    """There is no such run, or no such dead letter."""
    REFUSED = 6
    """The agent refused the request; the message says why."""
    UNREACHABLE = 69
    """No agent or no bus answers (EX_UNAVAILABLE of sysexits.h)."""
    TRY_AGAIN = 75
    """Nothing was done for now: the same again, later (EX_TEMPFAIL)."""
    MISCONFIGURED = 78
    """A setting, a file or the environment has to be changed first (EX_CONFIG)."""
    INTERRUPTED = beginning.INTERRUPTED
    """Left with Ctrl-C."""
    CLOSED_PIPE = 141
    """Whoever read the output went away, as `head` does."""


OF_STATUS = {
    "done": Exit.OK,
    "escalated": Exit.ESCALATED,
    "paused": Exit.ESCALATED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}
"""Of the states in which a run waits for nobody but a person, or nobody at all."""
