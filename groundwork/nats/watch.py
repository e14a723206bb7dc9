"""What the NATS client reports about its connection, as a few facts and one log line per change.

While a server is away the client reports the same failure four times a second: the first is the reason that is logged.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import nats.errors

from groundwork.nats.client import NotEncrypted
from groundwork.nats.denials import Denial, read_denial
from groundwork.nats.pending_answers import PendingAnswers
from groundwork.service.errors import Failure, Misconfigured, TryAgain, Unreachable
from groundwork.service.outage import Outage

MOST_DENIALS = 100
DENIED_FOR_S = 60.0
_OF_A_LOST_CONNECTION = (nats.errors.UnexpectedEOF, nats.errors.StaleConnectionError, ConnectionError)

log = logging.getLogger(__name__)


class ConnectionWatch:
    """The callbacks of one client. `answers` are failed as soon as it is known that they cannot come."""

    def __init__(self, answers: PendingAnswers, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = answers
        self._clock = clock
        self._outage = Outage("NATS", log)
        self._last_logged = ""
        self._logged_in = False
        self.closing = False  # by ourselves
        self.up = asyncio.Event()
        self.closed = asyncio.Event()
        self.last_error = ""
        self.violation = ""  # the latest denied permission, in lower case as the client hands it on
        self._denials: dict[Denial, float] = {}  # and when it was denied at last

    @property
    def denials(self) -> tuple[Denial, ...]:
        """What was denied in the last DENIED_FOR_S seconds. A server that has been told better says nothing of it."""
        fresh = {denial: at for denial, at in self._denials.items() if self._clock() - at < DENIED_FOR_S}
        self._denials = fresh
        return tuple(fresh)

    def callbacks(self) -> dict[str, Any]:
        return {
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnect,
            "reconnected_cb": self._on_reconnect,
            "closed_cb": self._on_close,
        }

    def logged_in(self) -> None:
        self._logged_in = True
        self.up.set()

    async def _on_error(self, error: Exception) -> None:
        self.last_error = str(error) or type(error).__name__
        if "permissions violation" in self.last_error:
            self._note_violation(self.last_error.removeprefix("nats: "))
        # Raised from here it ends the client's first attempt to connect, which would go on for ever.
        if "authorization violation" in self.last_error.lower() and not self._logged_in:
            raise Misconfigured("the login is refused. Check user, password, token, nkey or credentials")
        if isinstance(error, NotEncrypted) and not self._logged_in:
            raise Misconfigured(self.last_error)
        if self._logged_in and not self.up.is_set():
            self._note_outage()
        elif isinstance(error, _OF_A_LOST_CONNECTION):
            return  # what follows says more
        elif self.last_error != self._last_logged:
            self._last_logged = self.last_error
            log.warning("NATS: %s", self.last_error)

    def _note_outage(self) -> None:
        if not self.closing:
            self._outage.goes_on(self.last_error or "the connection was lost")

    def _note_violation(self, violation: str) -> None:
        self.violation = violation
        denial = read_denial(violation)
        if denial and (denial in self._denials or len(self._denials) < MOST_DENIALS):
            self._denials[denial] = self._clock()
        if denial and denial.deed == "publish":
            error = Misconfigured(f"NATS denies us this subject: {violation}. Give this user the permission")
            self._answers.fail(error, subject=denial.subject)

    async def _on_disconnect(self) -> None:
        self._lost(TryAgain("the connection to NATS was lost before the answer came"))

    async def _on_reconnect(self) -> None:
        self.up.set()
        self._last_logged = ""
        self._note_outage()  # which nothing has told yet where it was got back at the first try
        self._outage.over()

    async def _on_close(self) -> None:
        self.closed.set()
        self._lost(Unreachable("the connection to NATS is closed for good: restart the service"))

    def _lost(self, error: Failure) -> None:
        self.up.clear()
        self._answers.fail(error)
